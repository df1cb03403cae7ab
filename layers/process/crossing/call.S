/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The ways of a call: to a function of C, and back into the guest. */
#include "common/asm.h"
#include "state/offsets.h"

	.section .thunks, "awx", @progbits

/*
 * A call with any GS base, of the function in rax: that an event waits is noted in a word of the process, one bit for each vCPU. A bit of
 * another vCPU costs a signal for nothing.
 */
ENTRY(ph_any_gs)
	subq	$8, %rsp
	call	*%rax
	addq	$8, %rsp
	.globl	ph_any_tail, ph_any_tail_end
ph_any_tail:
#if !FAULT(ANY_GS_BLIND)
	cmpq	$0, ph_any_pending
	jne	1f
#endif
	ret
1:	hlt
ph_any_tail_end:

/* The vCPU goes off. Not on this stack: as soon as it is off, the memory is somebody else's. */
ENTRY(thunk_cpu_stop)
	hlt
END(thunk_cpu_stop)

/*
 * Runs the function in rax on the vCPU's host stack. The callee-saved registers go to struct vcpu, so that
 * a hand-over to another process can return from the call there (ph_resume_call).
 */
ENTRY(ph_sysv)
	movq	GS(F_VCPU), %r11
	movq	%rbx, V_RBX(%r11)
	movq	%rbp, V_RBP(%r11)
	movq	%r12, V_R12(%r11)
	movq	%r13, V_R13(%r11)
	movq	%r14, V_R14(%r11)
	movq	%r15, V_R15(%r11)
	movq	%rsp, V_RSP(%r11)
	movq	V_HOST_STACK(%r11), %rsp
	call	*%rax
	movq	GS(F_VCPU), %rcx
	movq	V_RSP(%rcx), %rsp
	jmp	ph_tail

/* The same for a primitive: the function may change what System V lets it, the caller sees none of it. */
ENTRY(ph_primitive)
	pushq	%rcx
	pushq	%rdx
	pushq	%rsi
	pushq	%rdi
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	movq	GS(F_VCPU), %r11
	movq	%rsp, V_RSP(%r11)
	movq	V_HOST_STACK(%r11), %rsp
	call	*%rax
	movq	GS(F_VCPU), %rcx
	movq	V_RSP(%rcx), %rsp
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rdi
	popq	%rsi
	popq	%rdx
	popq	%rcx
	jmp	ph_tail

/* void ph_resume_call(struct vcpu *): returns 0 from the call that the vCPU made, in this process. */
ENTRY(ph_resume_call)
	movq	V_RBX(%rdi), %rbx
	movq	V_RBP(%rdi), %rbp
	movq	V_R12(%rdi), %r12
	movq	V_R13(%rdi), %r13
	movq	V_R14(%rdi), %r14
	movq	V_R15(%rdi), %r15
	movq	V_RSP(%rdi), %rsp
	xorl	%eax, %eax
	jmp	ph_tail
END(ph_resume_call)

	.text
/*
 * void ph_resume_full(void): the vCPU starts in the state of struct vcpu.ap. Only a signal return can load all
 * registers at once, so this asks for a signal; fixup.c knows it.
 */
ENTRY(ph_resume_full)
	hlt
END(ph_resume_full)

	.section .note.GNU-stack, "", @progbits
