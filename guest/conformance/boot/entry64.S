/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The two entries of the image, both in 64-bit mode, and the ELF note of the VMI entry. */
#include <paravane/vmi.h>
#include "../kernel/layout.h"

	.section .text, "ax"

	/* From head32.S. rdi: hvm_start_info, guest-physical. */
	.globl	pvh_start
pvh_start:
	leaq	boot_stack_end(%rip), %rsp
	xorl	%ebp, %ebp
	call	pvh_boot_info
	movq	%rax, %rdi
	leaq	pvh_apic_ids(%rip), %rsi
	call	kernel_main
	ud2

	/* From a hypervisor. rdi: struct vmi_boot_info, linear; interrupts off. */
	.globl	vmi_entry
vmi_entry:
	movq	%rsp, entry_rsp(%rip)
	pushfq
	popq	entry_flags(%rip)
	movq	$0, -4096(%rsp)		/* so much of the stack can be used */
	leaq	boot_stack_end(%rip), %rsp
	xorl	%ebp, %ebp
	xorl	%esi, %esi
	call	kernel_main
	ud2

	.section .bss, "aw", @nobits
	.balign	16
	.globl	entry_rsp, entry_flags
entry_rsp:
	.skip	8
entry_flags:
	.skip	8
	.globl	boot_stack_end
boot_stack:
	.skip	BOOT_STACK_SIZE
boot_stack_end:

	.section .note.VMI, "a", @note
	.balign	4
	.long	4, VMI_SIZE_NOTE_ENTRY, VMI_NOTE_ENTRY
	.asciz	"VMI"
	.quad	vmi_entry
	.long	VMI_API_VERSION
	.long	VMI_NOTE_COMPACT

	.section .note.GNU-stack, "", @progbits
