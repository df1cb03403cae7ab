/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The way to user mode, and out of it from an entry. */
#include "layout.h"
#include "push_regs.h"
#include "site.h"

	.section .text, "ax"

	/*
	 * user_enter(const struct regs *regs, u64 *save, void *tss,
	 *	      u64 *kernel_rsp, set_kernel_stack entry)
	 * Saves the callee-saved registers on this stack and the stack pointer in
	 * *save. Gives the memory below to entries from user mode as their stack,
	 * then enters user mode. user_leave(), called in such an entry, returns
	 * from this function.
	 */
	.globl	user_enter
user_enter:
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	subq	$8, %rsp			/* 16-byte aligned from here */
	movq	%rdi, %rbx
	movq	%rsp, (%rsi)
	movq	%rsp, (%rcx)
	movq	%rdx, %rdi
	movq	%rsp, %rsi
	call	*%r8
	SITE_CALL(CPU_IRQ_DISABLE)
	movq	%rbx, %rdi
	cmpq	$VECTOR_SYSCALL, REGS_VECTOR(%rdi)
	je	by_sysret
	/* Copy the frame: regs may not be on this stack. */
	subq	$REGS_SIZE, %rsp
	movq	%rdi, %rsi
	movq	%rsp, %rdi
	movl	$(REGS_SIZE / 8), %ecx
	rep movsq
	POP_REGS
	addq	$16, %rsp
	SITE_CALL(CPU_SWAPGS)
	SITE_CALL(CPU_IRET)

	/* rcx and r11 are the user's rip and flags. rsp is loaded second to last. */
by_sysret:
	movq	REGS_R15(%rdi), %r15
	movq	REGS_R14(%rdi), %r14
	movq	REGS_R13(%rdi), %r13
	movq	REGS_R12(%rdi), %r12
	movq	REGS_RBP(%rdi), %rbp
	movq	REGS_RBX(%rdi), %rbx
	movq	REGS_RFLAGS(%rdi), %r11
	movq	REGS_R10(%rdi), %r10
	movq	REGS_R9(%rdi), %r9
	movq	REGS_R8(%rdi), %r8
	movq	REGS_RAX(%rdi), %rax
	movq	REGS_RIP(%rdi), %rcx
	movq	REGS_RDX(%rdi), %rdx
	movq	REGS_RSI(%rdi), %rsi
	movq	REGS_RSP(%rdi), %rsp
	movq	REGS_RDI(%rdi), %rdi
	SITE_CALL(CPU_SWAPGS)
	SITE_CALL(CPU_SYSRET)

	/* user_leave(u64 saved): returns from user_enter(). Interrupts are off. */
	.globl	user_leave
user_leave:
	movq	%rdi, %rsp
	addq	$8, %rsp
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	ret

	.section .note.GNU-stack, "", @progbits
