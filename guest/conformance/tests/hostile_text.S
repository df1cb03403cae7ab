/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Code that a guest wants to execute on the host, and instructions that no kernel needs, in the
 * section that may hold them.
 */
	.section .user.text, "ax"

	/*
	 * Every gate of the attacking vCPU points here. In a process with a filter the first call
	 * ends the process. Without a filter it creates a file on the host and waits, so that the
	 * test sees that it stays. The host ends it after a while.
	 */
	.balign	16
	.globl	h_payload
h_payload:
	movl	$257, %eax		/* openat */
	movq	$-100, %rdi
	leaq	h_payload_path(%rip), %rsi
	movl	$0101, %edx		/* O_WRONLY | O_CREAT */
	movl	$0644, %r10d
	call	*h_payload_call(%rip)
	movl	$37, %eax		/* alarm */
	movl	$20, %edi
	call	*h_payload_call(%rip)
1:	movl	$34, %eax		/* pause */
	call	*h_payload_call(%rip)
	jmp	1b

	/*
	 * void h_enter(const u64 regs[16], u64 target): loads rax rbx rcx rdx rsi rdi rbp r8 to r15
	 * and jumps to the target
	 */
	.balign	16
	.globl	h_enter
h_enter:
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	leaq	h_back(%rip), %rax
	pushq	%rax
	pushq	%rsi
	movq	%rdi, %rax
	movq	8(%rax), %rbx
	movq	16(%rax), %rcx
	movq	24(%rax), %rdx
	movq	32(%rax), %rsi
	movq	40(%rax), %rdi
	movq	48(%rax), %rbp
	movq	56(%rax), %r8
	movq	64(%rax), %r9
	movq	72(%rax), %r10
	movq	80(%rax), %r11
	movq	88(%rax), %r12
	movq	96(%rax), %r13
	movq	104(%rax), %r14
	movq	112(%rax), %r15
	movq	(%rax), %rax
	ret
h_back:
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	ret

	.globl	h_int80, h_sysenter, h_syscall
	.balign	16
h_int80:
	int	$0x80
	ret
	.balign	16
h_sysenter:
	sysenter
	ret
	.balign	16
h_syscall:
	syscall
	ret

	/* This kernel's own system calls enter here. Returns at once. */
	.globl	h_syscall_entry
	.balign	16
h_syscall_entry:
	jmp	*%rcx

	.balign	8
	.globl	h_payload_call, h_payload_path
h_payload_call:
	.quad	0
h_payload_path:
	.skip	128
