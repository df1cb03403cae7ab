/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* How a call reaches a function of C, and returns to the guest. */
#include "common/asm.h"
#include "state/offsets.h"

	.section .thunks, "awx", @progbits

/*
 * A call that may have any GS base, of the function in rax. An event that arrives during the call
 * is noted in a word of the process, one bit for each vCPU. A bit of another vCPU costs a needless
 * signal.
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

/*
 * Stops the vCPU. It does not use this stack: once the vCPU is off, the kernel may use the memory
 * for something else.
 */
ENTRY(thunk_cpu_stop)
	hlt
END(thunk_cpu_stop)

/*
 * Runs the function in rax on the vCPU's host stack. The callee-saved registers go to struct vcpu,
 * so that a hand-over to another process can return from the call there (ph_resume_call).
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

/*
 * Enters the function of a primitive: the function may change the registers that System V allows,
 * and the caller sees none of that.
 */
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

/*
 * A return from a call (ph_tail), while an interrupt can be delivered. All registers are as the
 * caller gets them. Comes back to the tail with the stack of the interrupt's gate, whose address is
 * on top; with the same stack if nothing is to be delivered; or takes the tail's signal, for what
 * needs all registers. The flag is off in an interrupt gate, so the tail does not come here
 * again from there; in a trap gate only for an interrupt of a higher class.
 */
	.globl	ph_deliver
ph_deliver:
	movq	%rax, GS(F_SCRATCH)
	movq	GS(F_VCPU), %rax
	movq	%rsp, V_RSP(%rax)
	movq	V_HOST_STACK(%rax), %rsp
	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	pushq	%rcx
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	pushq	GS(F_SCRATCH)
	pushfq
	movq	(%rsp), %rsi
	movq	%rax, %rdi
	call	*ph_deliver_with
	movq	GS(F_VCPU), %rdx
	/* The signal, if there is no stack: the zero flag stays until it is looked at. */
	testq	%rax, %rax
	cmovzq	V_RSP(%rdx), %rax
	movq	%rax, GS(F_SCRATCH)
	popq	%rax
	popq	%rax
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
	movq	GS(F_SCRATCH), %rsp
	jz	ph_tail_signal
	jmp	ph_tail

/* void ph_resume_call(struct vcpu *): returns 0 from the vCPU's call, in this process. */
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
 * void ph_resume_full(void): the vCPU starts in the state of struct vcpu.ap. Only a signal return
 * can load all registers at once, so this raises a signal, which entry/fixup.c recognises.
 */
ENTRY(ph_resume_full)
	hlt
END(ph_resume_full)

	.section .note.GNU-stack, "", @progbits
