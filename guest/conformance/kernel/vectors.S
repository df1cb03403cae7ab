/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Entries: 256 vectors and the syscall instruction; returns; going to user mode.
 * The GS base is the kernel's everywhere between the two swapgs sites.
 */
#include "layout.h"
#include "site.h"

	.macro	PUSH_REGS
	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	pushq	%rcx
	pushq	%rax
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	.endm

	.macro	POP_REGS
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rax
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
	.endm

	.section .text, "ax"

	/* One stub of 16 bytes for each vector: a frame always has an error code. */
	.balign	16
	.globl	vector_stubs, vector_stubs_end
vector_stubs:
	.set	vector, 0
	.rept	256
	.balign	16
	.if	!(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21)
	pushq	$0
	.endif
	pushq	$vector
	jmp	vector_common
	.set	vector, vector + 1
	.endr
	.balign	16
vector_stubs_end:

	/*
	 * On the stack: vector, error code, the processor's frame. The
	 * selectors in it are the kernel's own, so bits 1:0 of cs tell the mode.
	 */
vector_common:
	testb	$3, REGS_CS - REGS_VECTOR(%rsp)
	jz	1f
	SITE_CALL(CPU_SWAPGS)
1:	cld
	PUSH_REGS
	movq	%rsp, %rdi
	movq	%rsp, %rbp
	andq	$-16, %rsp
	call	trap
	movq	%rbp, %rsp

	/* rsp: a struct regs to go on with. A trap gate leaves interrupts on. */
	.globl	return_regs
return_regs:
	SITE_CALL(CPU_IRQ_DISABLE)
	testb	$3, REGS_CS(%rsp)
	jz	2f
	POP_REGS
	addq	$16, %rsp
	SITE_CALL(CPU_SWAPGS)
	SITE_CALL(CPU_IRET)
2:	POP_REGS
	addq	$16, %rsp
	SITE_CALL(CPU_IRET)

	/*
	 * LSTAR. The user's stack pointer is still loaded; SFMASK has cleared
	 * the interrupt flag, so nothing comes in before the stack is switched.
	 */
	.globl	syscall_entry
syscall_entry:
	SITE_CALL(CPU_SWAPGS)
	movq	%rsp, %gs:PERCPU_USER_RSP
	movq	%gs:PERCPU_KERNEL_RSP, %rsp
	pushq	$USER_SS
	pushq	%gs:PERCPU_USER_RSP
	pushq	%r11
	pushq	$USER_CS
	pushq	%rcx
	pushq	$0
	pushq	$VECTOR_SYSCALL
	PUSH_REGS
	movq	%rsp, %rdi
	movq	%rsp, %rbp
	andq	$-16, %rsp
	call	trap
	movq	%rbp, %rsp
	jmp	return_regs

	/*
	 * user_enter(const struct regs *regs, u64 *save, void *tss,
	 *	      u64 *kernel_rsp, set_kernel_stack entry)
	 * Keeps the callee-saved registers on this stack, its pointer in *save,
	 * makes what is below the stack for entries, and goes to user mode. It
	 * "returns" when user_leave() is called in such an entry.
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
	/* A frame of our own below: the regs may not be on this stack. */
	subq	$REGS_SIZE, %rsp
	movq	%rdi, %rsi
	movq	%rsp, %rdi
	movl	$(REGS_SIZE / 8), %ecx
	rep movsq
	POP_REGS
	addq	$16, %rsp
	SITE_CALL(CPU_SWAPGS)
	SITE_CALL(CPU_IRET)

	/* rcx and r11 are the user's rip and flags; rsp is the user's at the end. */
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

	/* user_leave(u64 saved): back out of user_enter(), interrupts off. */
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

	/*
	 * catch_call(u64 *rsp, function, argument): calls function(argument),
	 * its own stack pointer in *rsp. catch_land: where an exception goes on
	 * with that stack pointer, as if function had returned.
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

	/* set_cr3(cr3, context, generation): a call of class sysv with a site. */
	.globl	set_cr3
set_cr3:
	subq	$8, %rsp			/* aligned for a call */
	SITE_CALL(MMU_SET_CR3)
	addq	$8, %rsp
	ret

	/*
	 * Where smp.set_ap_state starts a vCPU for work: rsp is its own stack,
	 * 16-byte aligned, the GS base its struct percpu.
	 */
	.globl	ap_entry
ap_entry:
	xorl	%ebp, %ebp
	call	ap_main
	ud2

	.section .note.GNU-stack, "", @progbits
