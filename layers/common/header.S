/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Start of a ROM: struct vmi_rom_header, then the tables. The layer's own layer.h gives name and
 * sizes. mkrom fills in what a difference of symbols cannot express (rom_length, checksum,
 * extable_count).
 */
#include "asm.h"
#include "layer.h"

/* Linear addresses that the hypervisor keeps for itself. */
#ifndef LAYER_RESERVE_START
#define LAYER_RESERVE_START 0
#define LAYER_RESERVE_END 0
#endif

#define LAYER_BASE vmi_rom_header

	.section .vmi.header, "a", @progbits
	.globl	vmi_rom_header
	.hidden	vmi_rom_header
vmi_rom_header:
	.short	VMI_ROM_SIGNATURE
	.byte	0			/* rom_length */
	/*
	 * The firmware calls this in real mode with a far call, which must return at once.
	 * Invariant: one instruction, nothing changed.
	 */
	.code16
	lretw
	nop
	nop
	nop
	.code64
	.byte	0			/* checksum */
	.long	VMI_SIGNATURE
	.byte	VMI_API_MINOR, VMI_API_MAJOR
	.short	VMI_HEADER_SIZE
	.long	layer_image_end - vmi_rom_header
	.long	layer_load_end - vmi_rom_header
	.short	0, 0			/* no PCI data structure, no PnP header */
	.long	LAYER_PERCPU_SIZE
	.long	layer_section_table - vmi_rom_header
	.short	(layer_section_table_end - layer_section_table) / VMI_SIZE_SECTION
	.short	VMI_SIZE_SECTION
	.long	layer_extable - vmi_rom_header
	.long	layer_extable_end - vmi_rom_header	/* its end; mkrom: its count */
	.quad	LAYER_RESERVE_START, LAYER_RESERVE_END
0:	.ascii	LAYER_NAME
	.org	0b + 16
	.long	0			/* flags: the kernel copies it */
	.long	VMI_SIZE_CALL_ENTRY
	.org	vmi_rom_header + VMI_HEADER_SIZE

#include "tables.inc"

	.text
/* u64 layer_image_base(void): where the image was loaded */
ENTRY(layer_image_base)
	leaq	vmi_rom_header(%rip), %rax
	ret
END(layer_image_base)

	.section .rodata
	.globl	layer_sections
	.hidden	layer_sections
	.balign	4
layer_sections:
	.long	LAYER_SECTIONS

	.section .note.GNU-stack, "", @progbits
