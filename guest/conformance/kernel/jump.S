/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Ways out of a function from anywhere in it: after an exception, after a failed check. */
	.section .text, "ax"

	/*
	 * catch_call(u64 *rsp, function, argument): stores its stack pointer in
	 * *rsp and calls function(argument). trap() continues an exception in the
	 * function at catch_land with that stack pointer, as if it had returned.
	 */
	.globl	catch_call, catch_land
catch_call:
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	subq	$8, %rsp
	movq	%rsp, (%rdi)
	movq	%rdx, %rdi
	call	*%rsi
catch_land:
	addq	$8, %rsp
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	ret

	/* int jump_set(struct test_jump *): 0, and 1 again after jump_to(). */
	.globl	jump_set, jump_to
jump_set:
	movq	(%rsp), %rax
	movq	%rax, 0(%rdi)
	leaq	8(%rsp), %rax
	movq	%rax, 8(%rdi)
	movq	%rbx, 16(%rdi)
	movq	%rbp, 24(%rdi)
	movq	%r12, 32(%rdi)
	movq	%r13, 40(%rdi)
	movq	%r14, 48(%rdi)
	movq	%r15, 56(%rdi)
	xorl	%eax, %eax
	ret
jump_to:
	movq	8(%rdi), %rsp
	movq	16(%rdi), %rbx
	movq	24(%rdi), %rbp
	movq	32(%rdi), %r12
	movq	40(%rdi), %r13
	movq	48(%rdi), %r14
	movq	56(%rdi), %r15
	movl	$1, %eax
	jmp	*0(%rdi)

	.section .note.GNU-stack, "", @progbits
