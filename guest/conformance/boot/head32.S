/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Bare metal only: from the 32-bit PVH entry to 64-bit mode. This section is
 * linked at its physical address; a hypervisor that uses the VMI entry neither
 * needs nor runs it. The tables made here are used until the kernel has made
 * its own: 4 GiB of identity and direct map, 16 MiB of image.
 */
#include "../kernel/layout.h"

#define PTE_TABLE	0x003			/* present, writable */
#define PTE_LEAF	0x083			/* and a large page */

	.section .boot.text, "ax"
	.code32
	.globl	pvh_entry
pvh_entry:
	/* 32-bit protected mode, flat segments, paging off, ebx: start info. */
	cld
	cli
	movl	$boot_pml4, %eax
	movl	%eax, %cr3
	movl	%cr4, %eax
	orl	$0x20, %eax			/* PAE */
	movl	%eax, %cr4
	movl	$0xc0000080, %ecx		/* EFER: LME, NXE */
	rdmsr
	orl	$0x900, %eax
	wrmsr
	movl	$0x80010033, %eax		/* PG WP NE ET MP PE */
	movl	%eax, %cr0
	lgdt	boot_gdt_register
	ljmp	$KERNEL_CS, $boot64

	.code64
boot64:
	movl	$KERNEL_SS, %eax
	movl	%eax, %ss
	xorl	%eax, %eax
	movl	%eax, %ds
	movl	%eax, %es
	movl	%eax, %fs
	movl	%eax, %gs
	movl	%ebx, %edi
	movabsq	$pvh_start, %rax
	jmp	*%rax

	.section .boot.data, "aw"
	.balign	8
boot_gdt:
	.quad	0, 0
	.quad	0x00af9b000000ffff		/* KERNEL_CS */
	.quad	0x00cf93000000ffff		/* KERNEL_SS */
boot_gdt_end:
boot_gdt_register:
	.short	boot_gdt_end - boot_gdt - 1
	.long	boot_gdt

	.balign	4096
boot_pml4:
	.quad	boot_pdpt_low + PTE_TABLE
	.fill	PML4_INDEX(DIRECT_MAP) - 1, 8, 0
	.quad	boot_pdpt_low + PTE_TABLE
	.fill	511 - PML4_INDEX(DIRECT_MAP) - 1, 8, 0
	.quad	boot_pdpt_high + PTE_TABLE
boot_pdpt_low:
	.quad	boot_pd_low + PTE_TABLE
	.quad	boot_pd_low + 0x1000 + PTE_TABLE
	.quad	boot_pd_low + 0x2000 + PTE_TABLE
	.quad	boot_pd_low + 0x3000 + PTE_TABLE
	.fill	508, 8, 0
boot_pd_low:
	.set	page, 0
	.rept	2048
	.quad	page + PTE_LEAF
	.set	page, page + 0x200000
	.endr
boot_pdpt_high:
	.fill	510, 8, 0
	.quad	boot_pd_image + PTE_TABLE	/* the last 2 GiB begin here */
	.quad	0
boot_pd_image:
	.fill	8, 8, 0				/* 16 MiB into them */
	.set	page, IMAGE_PHYSICAL
	.rept	8
	.quad	page + PTE_LEAF
	.set	page, page + 0x200000
	.endr
	.fill	496, 8, 0

	/* QEMU looks for this note to find the entry. */
	.section .note.Xen, "a", @note
	.balign	4
	.long	4, 8, 18			/* XEN_ELFNOTE_PHYS32_ENTRY */
	.asciz	"Xen"
	.quad	pvh_entry

	.section .note.GNU-stack, "", @progbits
