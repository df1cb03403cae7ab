/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Entries of the 256 vectors and of the syscall instruction, and the way back.
 * Between the two swapgs sites the GS base is always the kernel's.
 */
#include "layout.h"
#include "push_regs.h"
#include "site.h"

	.section .text, "ax"

	/* A stub of 16 bytes for each vector. It pushes 0 if the vector has no error code. */
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
	 * On the stack: vector, error code, the processor's frame. Bits 1:0 of
	 * cs in the frame are the mode that was interrupted.
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

	/* rsp: the struct regs to load. A trap gate may have left interrupts on. */
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
	 * LSTAR. The user's stack pointer is still loaded. SFMASK has cleared the
	 * interrupt flag, so no interrupt arrives before the stack is switched.
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

	.section .note.GNU-stack, "", @progbits
