/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The ways out of a signal handler. */
#include "common/asm.h"
#include "state/offsets.h"

/* Offsets in struct host_registers; host/signals.h asserts them. */
#define REGS_R8		0
#define REGS_RDI	64
#define REGS_RSP	120
#define REGS_RIP	128
#define REGS_RFLAGS	136
#define REGS_FPSTATE	184

	.text
/*
 * The host's signal frames return to here. rsp is the frame's ucontext, and all other registers are
 * free. A signal during the handler has only set marks: if the handler returns to the guest, they
 * are delivered first. A signal in here starts again at the top (fixup_rollback).
 */
#define CONTEXT_REGS	40
#define CONTEXT_RIP	(CONTEXT_REGS + REGS_RIP)

#if FAULT(SHORT_CALLS_MARK)
#define GUEST_END	PHV_LAYER_BASE
#else
#define GUEST_END	ph_layer_code
#endif

	.globl	ph_sigreturn_end
ENTRY(ph_sigreturn)
#if !FAULT(HANDLER_END_BLIND)
	movq	CONTEXT_RIP(%rsp), %rax
	cmpq	$GUEST_END, %rax
	jb	1f
	cmpq	$ph_text_end, %rax
	jb	2f
1:	movq	%rsp, %rdi
	andq	$-PHV_STACK_SIZE, %rdi
	movq	T_VCPU(%rdi), %rdi
	movq	V_PERCPU(%rdi), %rcx
	testq	%rcx, %rcx
	jz	2f
	testb	$FORCE_EVENT, F_FORCE(%rcx)
	jnz	3f
	cmpb	$0, F_PENDING(%rcx)
	je	2f
	cmpb	$0, F_IRQ(%rcx)
	jne	3f
2:
#endif
	movl	$15, %eax
	jmp	ph_syscall
ph_sigreturn_end:
3:	leaq	CONTEXT_REGS(%rsp), %rsi
	movq	%rsp, %rbx
	andq	$-16, %rsp
	call	signal_again
	movq	%rbx, %rsp
	jmp	ph_sigreturn
END(ph_sigreturn)

/*
 * void ph_enter_kernel(const struct host_registers *, const struct vmi_percpu *): leaves a signal
 * handler into guest kernel code without a signal return, which would cost a fifth of the whole.
 *
 * Invariant: interrupts are off in the guest, so only an NMI or an INIT remains to be looked at. A
 * signal may overwrite the frame as soon as rsp has left the signal stack, so everything is copied
 * to the kernel's stack first, below the final rsp (a kernel has no red zone). rflags has neither
 * TF nor AC. rdi stays unchanged until then, for fixup_rollback. The pops are a critical section.
 */
#define FPSTATE_MAGIC	464
#define FPSTATE_FEATURES 472

	.globl	ph_enter_pops, ph_enter_kernel_end
ENTRY(ph_enter_kernel)
#if !FAULT(HANDLER_END_BLIND)
	testb	$FORCE_EVENT, F_FORCE(%rsi)
	jnz	4f
#endif
	movq	REGS_FPSTATE(%rdi), %rsi
	testq	%rsi, %rsi
	jz	2f
	cmpl	$0x46505853, FPSTATE_MAGIC(%rsi)
	jne	1f
	movl	FPSTATE_FEATURES(%rsi), %eax
	movl	FPSTATE_FEATURES + 4(%rsi), %edx
	xrstor64 (%rsi)
	jmp	2f
4:	leaq	-CONTEXT_REGS(%rdi), %rsp
	jmp	ph_sigreturn
1:	fxrstor64 (%rsi)
2:	movq	REGS_RSP(%rdi), %rcx
	leaq	-17 * 8(%rcx), %rcx
	/* r8 to r15, then rdi rsi rbp rbx rdx rax rcx, in the order of the frame */
	.set	i, 0
	.rept	15
	movq	8 * i(%rdi), %rax
	movq	%rax, 8 * i(%rcx)
	.set	i, i + 1
	.endr
	movq	REGS_RFLAGS(%rdi), %rax
	movq	%rax, 15 * 8(%rcx)
	movq	REGS_RIP(%rdi), %rax
	movq	%rax, 16 * 8(%rcx)
	movq	%rcx, %rsp
ph_enter_pops:
	popq	%r8
	popq	%r9
	popq	%r10
	popq	%r11
	popq	%r12
	popq	%r13
	popq	%r14
	popq	%r15
	popq	%rdi
	popq	%rsi
	popq	%rbp
	popq	%rbx
	popq	%rdx
	popq	%rax
	popq	%rcx
	popfq
	ret
ph_enter_kernel_end:
	.if	ph_enter_kernel_end - ph_enter_pops != 25
	.error	"complete_pops in fixup.c counts these bytes"
	.endif
END(ph_enter_kernel)

	.section .note.GNU-stack, "", @progbits
