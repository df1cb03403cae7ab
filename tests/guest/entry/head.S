/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * From the 32-bit PVH entry, at which QEMU starts this program, to 64-bit mode. The tables map 4
 * GiB three times: as they are, as the direct map of the boot information, and 1 GiB of them as
 * the last two GiB, where the kernel is linked.
 */
#include "entry.h"

#define TABLE 0x003			/* present, writable */
#define LEAF 0x083			/* and a large page */

	.section .text.start, "ax"
	.code32
	.globl	start
start:
	/* Flat segments, paging off, ebx: start info. */
	cld
	cli
	movl	$pml4, %eax
	movl	%eax, %cr3
	movl	%cr4, %eax
	orl	$0x20, %eax		/* PAE */
	movl	%eax, %cr4
	movl	$0xc0000080, %ecx	/* EFER: LME, NXE */
	rdmsr
	orl	$0x900, %eax
	wrmsr
	movl	$0x80010033, %eax	/* PG WP NE ET MP PE */
	movl	%eax, %cr0
	lgdt	gdt_register
	ljmp	$8, $1f

	.code64
1:	movl	$16, %eax
	movl	%eax, %ss
	movl	%eax, %ds
	movl	%eax, %es
	movl	$stack_end, %esp
	movl	%ebx, %edi
	call	load
	/* rax: the kernel's VMI entry, rdi: the boot information, both linear */
	movq	info_address(%rip), %rdi
	jmp	*%rax

	.data
	.balign	8
gdt:	.quad	0
	.quad	0x00af9b000000ffff
	.quad	0x00cf93000000ffff
gdt_register:
	.short	. - gdt - 1
	.long	gdt

	.balign	4096
pml4:	.quad	low + TABLE
	.fill	DIRECT_MAP_SLOT - 1, 8, 0
	.quad	low + TABLE
	.fill	511 - DIRECT_MAP_SLOT - 1, 8, 0
	.quad	high + TABLE
low:	.quad	pages + TABLE, pages + 0x1000 + TABLE, pages + 0x2000 + TABLE
	.quad	pages + 0x3000 + TABLE
	.fill	508, 8, 0
high:	.fill	510, 8, 0
	.quad	pages + TABLE, 0
pages:
	.set	page, 0
	.rept	2048
	.quad	page + LEAF
	.set	page, page + 0x200000
	.endr

	.bss
	.balign	16
	.skip	16384
stack_end:

	.section .note.Xen, "a", @note
	.balign	4
	.long	4, 4, 18		/* XEN_ELFNOTE_PHYS32_ENTRY */
	.asciz	"Xen"
	.long	start

	.section .note.GNU-stack, "", @progbits
