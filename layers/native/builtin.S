/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Tables as in a ROM, for the native layer linked into a kernel; see builtin.h. */
#include "asm.h"
#include "layer.h"

#define LAYER_BASE native_builtin_base

	.section .rodata
	.globl	native_builtin_base, native_builtin_sections, native_builtin_sections_end
	.hidden	native_builtin_base, native_builtin_sections, native_builtin_sections_end
	.balign	8
native_builtin_base:
native_builtin_sections:
#include "tables.inc"
	.set native_builtin_sections_end, layer_section_table_end

	.globl	layer_sections
	.hidden	layer_sections
	.balign	4
layer_sections:
	.long	LAYER_SECTIONS

	.text
/* There is no image: core.init does not compare vmi_init.layer_base with anything. */
ENTRY(layer_image_base)
	xorl	%eax, %eax
	ret
END(layer_image_base)

	.section .note.GNU-stack, "", @progbits
