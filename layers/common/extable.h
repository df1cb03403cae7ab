/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Exception table entries of inline assembler.
 *
 * An entry says: a fault of the instruction at insn continues at fixup, with every register and the
 * stack unchanged. Both are 32-bit offsets from the field itself, so an object needs no absolute
 * address. common/mkrom.c turns them into offsets from the image's start, as in struct
 * vmi_extable_entry. A kernel that links the native layer reads them as they are (struct
 * layer_extable_entry).
 */
#ifndef LAYER_EXTABLE_H
#define LAYER_EXTABLE_H

#define EXTABLE(insn, fixup)			\
	".pushsection vmi_extable, \"a\"\n\t"	\
	".balign 4\n\t"				\
	".long (" insn ") - .\n\t"		\
	".long (" fixup ") - .\n\t"		\
	".popsection\n\t"

#endif
