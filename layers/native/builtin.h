/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The native layer linked into a kernel, which uses it when it finds no layer. See
 * layers/README.md.
 */
#ifndef NATIVE_BUILTIN_H
#define NATIVE_BUILTIN_H

#include <paravane/vmi.h>

/* Entry point of a call, NULL if the native layer does not have it. */
void *native_builtin_entry(unsigned int call);

/* VMI_RELOC_* of a call; VMI_RELOC_NONE if there is no such call. */
unsigned int native_builtin_reloc(unsigned int call);

/*
 * The exception table. The instruction is at (char *)&entry->insn + entry->insn, and execution
 * continues at (char *)&entry->fixup + entry->fixup. The linker makes the two bounds of the section
 * vmi_extable, which the kernel's linker script must keep under this name (or bound with these
 * symbols itself).
 */
struct native_builtin_extable {
	__s32 insn;
	__s32 fixup;
};
extern const struct native_builtin_extable __start_vmi_extable[], __stop_vmi_extable[];

#endif
