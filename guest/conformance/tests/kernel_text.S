/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Kernel code that takes exceptions on purpose. catch_trap() enters it; labels mark the
 * instructions that fault.
 */
#include "../kernel/layout.h"
#include "../kernel/site.h"

	.section .text, "ax"

	/*
	 * An entry for NMIs that needs neither a GS base nor a kernel stack. An NMI before the iret
	 * of another one is nested.
	 */
	.globl	k_nmi_entry, k_nmis, k_nmis_nested, k_nmi_depth, k_nmi_spins
k_nmi_entry:
	lock incq k_nmis(%rip)
	incl	k_nmi_depth(%rip)
	cmpl	$1, k_nmi_depth(%rip)
	je	1f
	incq	k_nmis_nested(%rip)
1:	pushq	%rax
	movl	k_nmi_spins(%rip), %eax
2:	subl	$1, %eax
	ja	2b
	popq	%rax
	decl	k_nmi_depth(%rip)
	SITE_CALL(CPU_IRET)
	.pushsection .bss, "aw", @nobits
	.balign	8
k_nmis:
	.skip	8
k_nmis_nested:
	.skip	8
k_nmi_depth:
	.skip	4
k_nmi_spins:
	.skip	4
	.popsection

	/*
	 * LSTAR: a slow system call that stays on the program's stack pointer: first the one that
	 * it entered with, then the one in r8. Changes rax.
	 */
	.globl	k_slow_call_entry
k_slow_call_entry:
	movl	$3000, %eax
1:	decl	%eax
	jnz	1b
	movq	%r8, %rsp
	movl	$3000, %eax
2:	decl	%eax
	jnz	2b
	SITE_CALL(CPU_SYSRET)

	/* LSTAR: a system call that does nothing, on the user's stack. */
	.globl	k_call_entry
k_call_entry:
	SITE_CALL(CPU_SYSRET)

	/*
	 * LSTAR: a slow system call on the kernel's stack, with five words there that nothing may
	 * change. Returns with the stack pointer r8, or r8 + 8 if a word was changed. Changes rax.
	 */
	.globl	k_stack_call_entry
k_stack_call_entry:
	SITE_CALL(CPU_SWAPGS)
	movq	%gs:PERCPU_KERNEL_RSP, %rsp
	.rept	5
	pushq	$0x5afe
	.endr
	movl	$10000, %eax
1:	decl	%eax
	jnz	1b
	.irp	n, 0, 8, 16, 24, 32
	cmpq	$0x5afe, \n(%rsp)
	jne	2f
	.endr
	movq	%r8, %rsp
	jmp	3f
2:	leaq	8(%r8), %rsp
3:	SITE_CALL(CPU_SWAPGS)
	SITE_CALL(CPU_SYSRET)

	.globl	k_divide, k_divide_at
k_divide:
	movl	$1, %eax
	xorl	%edx, %edx
	xorl	%ecx, %ecx
k_divide_at:
	divl	%ecx
	ret

	.globl	k_ud2, k_ud2_at
k_ud2:
k_ud2_at:
	ud2
	ret

	.globl	k_int3, k_int3_after
k_int3:
	int3
k_int3_after:
	ret

	/* A read of a non-canonical address: #GP(0). */
	.globl	k_noncanonical, k_noncanonical_at
k_noncanonical:
	movabsq	$0x800000000000, %rax
k_noncanonical_at:
	movq	(%rax), %rax
	ret

	/* The same through rsp: #SS(0). */
	.globl	k_stack, k_stack_at
k_stack:
	movq	%rsp, %rcx
	movabsq	$0x800000000000, %rbp
k_stack_at:
	movq	(%rbp), %rax
	ret

	/* rdi: the address. */
	.globl	k_read, k_read_at, k_write, k_write_at, k_jump
k_read:
k_read_at:
	movq	(%rdi), %rax
	ret
k_write:
k_write_at:
	movq	%rdi, (%rdi)
	ret
k_jump:
	jmp	*%rdi

	/* popf sets TF. #DB follows the next instruction. */
	.globl	k_step, k_step_after
k_step:
	pushfq
	orq	$0x100, (%rsp)
	popfq
	nop
k_step_after:
	ret

	/* iret with the five words at rdi. No swapgs: it must not succeed. */
	.globl	k_iret
k_iret:
	pushq	32(%rdi)
	pushq	24(%rdi)
	pushq	16(%rdi)
	pushq	8(%rdi)
	pushq	0(%rdi)
	SITE_CALL(CPU_IRET)

	/* Every register must keep its value over the exception: see exceptions.c. */
	.globl	k_registers, k_registers_after
k_registers:
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	pushq	%rdi
	movq	0(%rdi), %rax
	movq	8(%rdi), %rcx
	movq	16(%rdi), %rdx
	movq	24(%rdi), %rbx
	movq	40(%rdi), %rbp
	movq	48(%rdi), %rsi
	movq	64(%rdi), %r8
	movq	72(%rdi), %r9
	movq	80(%rdi), %r10
	movq	88(%rdi), %r11
	movq	96(%rdi), %r12
	movq	104(%rdi), %r13
	movq	112(%rdi), %r14
	movq	120(%rdi), %r15
	movq	56(%rdi), %rdi
	int3
k_registers_after:
	/* The handler continued here: store the registers, 128 bytes further. */
	xchgq	%rdi, (%rsp)
	movq	%rax, 128(%rdi)
	movq	%rcx, 136(%rdi)
	movq	%rdx, 144(%rdi)
	movq	%rbx, 152(%rdi)
	movq	%rbp, 168(%rdi)
	movq	%rsi, 176(%rdi)
	movq	%r8, 192(%rdi)
	movq	%r9, 200(%rdi)
	movq	%r10, 208(%rdi)
	movq	%r11, 216(%rdi)
	movq	%r12, 224(%rdi)
	movq	%r13, 232(%rdi)
	movq	%r14, 240(%rdi)
	movq	%r15, 248(%rdi)
	popq	%rax
	movq	%rax, 184(%rdi)
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	ret

	.section .note.GNU-stack, "", @progbits
