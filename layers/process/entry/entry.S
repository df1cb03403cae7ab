/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The program's start, its one host-call instruction, threads, signals, full register loads. */
#include "common/asm.h"
#include "state/offsets.h"

/* In struct host_registers; signal.h asserts them. */
#define REGS_R8		0
#define REGS_RDI	64
#define REGS_RSP	120
#define REGS_RIP	128
#define REGS_RFLAGS	136
#define REGS_FPSTATE	184

	.text
/* The host enters here with nothing that we want on its stack, which does for the first two host calls. */
ENTRY(_start)
	xorl	%ebp, %ebp
	call	zygote_stack
	movq	%rax, %rsp
	call	zygote_main
	ud2
END(_start)

/*
 * s64 ph_host_call(u64 nr, a, b, c, d, e, f). The filter admits system calls only when they
 * return to ph_host_call_end: there is no other such instruction in this program.
 */
ENTRY(ph_host_call)
	/* Counted where this is a vCPU's own stack; not on the guest's, nor in the zygote. */
	movq	%rsp, %rax
	shrq	$32, %rax
	cmpl	$(PHV_STACKS >> 32), %eax
	jne	1f
	movq	%rsp, %rax
	andq	$-PHV_STACK_SIZE, %rax
	movq	T_VCPU(%rax), %rax
	incq	V_HOST_CALLS(%rax)
1:	movq	%rdi, %rax
	movq	%rsi, %rdi
	movq	%rdx, %rsi
	movq	%rcx, %rdx
	movq	%r8, %r10
	movq	%r9, %r8
	movq	8(%rsp), %r9
	.globl	ph_syscall
ph_syscall:
	syscall
	.globl	ph_host_call_end
ph_host_call_end:
	ret
END(ph_host_call)

/*
 * Where the host's signal frames return to; rsp is the frame's ucontext, all other registers are free. A signal that came while
 * the handler was on has only marked: if the handler goes back to the guest, what is marked is delivered first. One that
 * comes here begins again at the top (window_rollback).
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
 * s64 ph_clone(u64 flags, void *stack, void (*start)(void *), void *argument). The new thread comes
 * back from the system call on its own stack, and returns from there into ph_thread.
 */
ENTRY(ph_clone)
	subq	$24, %rsi
	leaq	ph_thread(%rip), %rax
	movq	%rax, (%rsi)
	movq	%rdx, 8(%rsi)
	movq	%rcx, 16(%rsi)
	movl	$56, %eax
	xorl	%edx, %edx
	xorl	%r10d, %r10d
	xorl	%r8d, %r8d
	jmp	ph_syscall
END(ph_clone)

ph_thread:
	popq	%rax
	popq	%rdi
	xorl	%ebp, %ebp
	call	*%rax
	ud2

/* void ph_on_stack(void *top, void (*function)(void *), void *argument): does not return. */
ENTRY(ph_on_stack)
	movq	%rdi, %rsp
	movq	%rdx, %rdi
	xorl	%ebp, %ebp
	call	*%rsi
	ud2
END(ph_on_stack)

/* void ph_load_context(const struct host_ucontext *): does not return. The signal return finds its argument at rsp. */
ENTRY(ph_load_context)
	movq	%rdi, %rsp
	movl	$15, %eax
	jmp	ph_syscall
END(ph_load_context)

/*
 * void ph_resume_full(void): the vCPU starts in the state of struct vcpu.ap. Only a signal return can load all
 * registers at once, so this asks for a signal; windows.c knows it.
 */
ENTRY(ph_resume_full)
	hlt
END(ph_resume_full)

/*
 * s64 ph_set_thread_area(void *description): exists as a 32-bit system call only, so the description is below
 * 4 GiB. A host without 32-bit calls ends who does this: see try_descriptors in zygote.c.
 */
ENTRY(ph_set_thread_area)
	pushq	%rbx
	movl	%edi, %ebx
	movl	$243, %eax
	int	$0x80
	movslq	%eax, %rax
	popq	%rbx
	ret
END(ph_set_thread_area)

/*
 * void ph_enter_kernel(const struct host_registers *, const struct vmi_percpu *): into guest kernel code, out of a
 * signal handler, without a signal return, which would cost a fifth of the whole.
 *
 * Invariant: interrupts are off in the guest, so that only an NMI or an INIT must still be looked at. The signal
 * frame may be overwritten by one as soon as rsp has left the signal stack: everything is copied to the kernel's
 * stack first, below where rsp will be (a kernel has no red zone). rflags has no TF and no AC. rdi stays as it is until
 * then, for window_rollback; the pops are a window.
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
	/* r8 to r15, then rdi rsi rbp rbx rdx rax rcx, as the frame has them */
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
	.error	"complete_pops in windows.c counts these bytes"
	.endif
END(ph_enter_kernel)

	.section .note.GNU-stack, "", @progbits
