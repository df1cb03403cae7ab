/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Start of the program: the header that the kernel finds through vmi_boot_info.rom. The layer stays
 * where it is linked (VMI_HEADER_IN_PLACE), so this is no option ROM: nothing scans for it, and its
 * checksum is not checked. Faults inside the layer never reach the kernel, so there is no exception
 * table.
 */
#include "common/asm.h"
#include <paravane/process.h>

#include "calls/layer.h"

#define LAYER_BASE vmi_rom_header

	.section .vmi.header, "a", @progbits
	.globl	vmi_rom_header
vmi_rom_header:
	.short	VMI_ROM_SIGNATURE
	.byte	ph_rom_length
	.code16
	lretw
	nop
	nop
	nop
	.code64
	.byte	0
	.long	VMI_SIGNATURE
	.byte	VMI_API_MINOR, VMI_API_MAJOR
	.short	VMI_HEADER_SIZE
	.long	ph_image_end - vmi_rom_header
	.long	ph_load_end - vmi_rom_header
	.short	0, 0
	.long	LAYER_PERCPU_SIZE
	.long	layer_section_table - vmi_rom_header
	.short	(layer_section_table_end - layer_section_table) / VMI_SIZE_SECTION
	.short	VMI_SIZE_SECTION
	.long	0, 0				/* no exception table */
	.quad	PHV_KERNEL_END, 0x800000000000
0:	.ascii	LAYER_NAME
	.org	0b + 16
	.long	VMI_HEADER_IN_PLACE | VMI_HEADER_PARAVIRT
	.long	VMI_SIZE_CALL_ENTRY
	.org	vmi_rom_header + VMI_HEADER_SIZE

	/* patch.c sets a feature bit in it */
	.globl	layer_section_table, layer_section_table_end
#include "common/tables.inc"

	.section .note.GNU-stack, "", @progbits
