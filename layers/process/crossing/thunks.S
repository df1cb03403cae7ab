/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Entry points of the calls, and the ways back into the guest.
 *
 * The section is mapped from the shared area in every process, because core.init edits it: each
 * displacement GS(field) becomes the kernel's (edit_thunks in core.c). While one of these runs the GS
 * base is the kernel's, but for the last instructions of a return to user mode.
 *
 * Interrupts and this code. A signal that finds the instruction pointer in the layer never
 * enters the kernel; it notes F_PENDING. So every path back into guest code ends in a *window*: a test
 * of F_PENDING and the few instructions behind it. A signal that hits a window completes the return by
 * itself (windows.c knows each window's state of registers and stack), and so does the one of the hlt that a
 * window ends in when the test says so. Nothing is lost in between. (Why hlt: under some hypervisors of the
 * host an invalid opcode costs three times as much.)
 */
#include "common/asm.h"
#include "state/offsets.h"

	.section .thunks, "awx", @progbits
	.balign	4096
	.globl	ph_thunks_start
ph_thunks_start:

	/* Displacement of struct vmi_percpu from the GS base, for C code; not edited by pattern. */
	.globl	gs_displacement
gs_displacement:
	.quad	0
	/* vmi_init.kernel_cs */
	.globl	ph_kernel_cs
ph_kernel_cs:
	.quad	0
	/* vmi_init.user_cs, user_ss */
	.globl	ph_user_selectors
ph_user_selectors:
	.quad	0

/*
 * Up to ph_layer_code it is as good as the guest's own code: no instruction has anything half done that an interrupt
 * must not see, so signals are delivered here as everywhere in the guest.
 *
 * Two and a half stores: the flag is the kernel's own memory, one instruction each, so that a kernel
 * that moves to another vCPU between two of them still does the right thing.
 */
ENTRY(thunk_cpu_pause)
	pause
	ret
END(thunk_cpu_pause)

ENTRY(thunk_cpu_read_tsc)
	VMI_NATIVE_CPU_READ_TSC
	ret
END(thunk_cpu_read_tsc)

ENTRY(thunk_cpu_swapgs)
ENTRY(thunk_cpu_io_delay)
ENTRY(thunk_cpu_wbinvd)
	ret
END(thunk_cpu_wbinvd)
END(thunk_cpu_io_delay)
END(thunk_cpu_swapgs)

ENTRY(thunk_cpu_irq_disable)
	movb	$0, GS(F_IRQ)
	ret
END(thunk_cpu_irq_disable)

ENTRY(thunk_cpu_irq_flag)
	movzbl	GS(F_IRQ), %eax
	shll	$9, %eax
	ret
END(thunk_cpu_irq_flag)

ENTRY(thunk_cpu_irq_save)
	movzbl	GS(F_IRQ), %eax
	movb	$0, GS(F_IRQ)
	shll	$9, %eax
	ret
END(thunk_cpu_irq_save)

ENTRY(thunk_cpu_irq_restore)
	testl	$VMI_FLAGS_IF, %edi
	jnz	thunk_cpu_irq_enable
	movb	$0, GS(F_IRQ)
	ret
END(thunk_cpu_irq_restore)

ENTRY(thunk_cpu_irq_enable)
	movb	$1, GS(F_IRQ)
END(thunk_cpu_irq_enable)

	/* fall through */

/* Window: everything is as the caller gets it, the return address on top of the stack. */
	.globl	ph_layer_code, ph_tail, ph_tail_end
ph_layer_code:
ph_tail:
	cmpw	$0, GS(F_PENDING)
	jne	1f
	ret
1:	testb	$FORCE_EVENT, GS(F_FORCE)
	jnz	2f
	cmpb	$0, GS(F_PENDING)
	je	3f
	cmpb	$0, GS(F_IRQ)
	jne	2f
3:	ret
2:	hlt
ph_tail_end:

/*
 * The same for calls with any GS base: that an event waits is noted in a word of the process, one bit for each vCPU. A bit of
 * another vCPU costs a signal for nothing.
 */
	.balign	16
ph_any_gs:
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

#define THUNK(S, s, N, n, num, class, since) THUNK_##class(s, n, num)

/*
 * A function of C. Those that may be called with any GS base, or before there is one, run right
 * on the guest's stack; they use little of it and hold nothing that an interrupt must not see.
 */
#define THUNK_SYSV(s, n, num)					\
	.if num >> 8 != VMI_SECTION_STATS && num != VMI_CALL_CPU_STOP;	\
	ENTRY(thunk_##s##_##n);					\
	movl $process_##s##_##n, %eax;				\
	.if num == VMI_CALL_CORE_PROBE || num == VMI_CALL_CORE_INIT ||		\
		num == VMI_CALL_CORE_VERSION || num == VMI_CALL_CORE_CONSOLE_WRITE ||	\
		num == VMI_CALL_CPU_SET_GS_BASE;		\
	jmp ph_any_gs;						\
	.else;							\
	jmp ph_sysv;						\
	.endif;							\
	END(thunk_##s##_##n);					\
	.endif;

/* By hand below, or a function of C that must keep all registers. */
#define THUNK_PRIMITIVE(s, n, num)				\
	.if num > VMI_CALL_CPU_IRQ_SAVE && num != VMI_CALL_CPU_PAUSE &&		\
		num != VMI_CALL_CPU_READ_TSC && num != VMI_CALL_CPU_SWAPGS &&	\
		num != VMI_CALL_CPU_IO_DELAY && num != VMI_CALL_CPU_WBINVD;	\
	ENTRY(thunk_##s##_##n);					\
	movl $process_##s##_##n, %eax;				\
	jmp ph_primitive;					\
	END(thunk_##s##_##n);					\
	.endif;

#define THUNK_JUMP(s, n, num)

	VMI_FOR_EACH_CALL(THUNK)

/*
 * Runs the function in rax on the vCPU's host stack. The callee-saved registers go to struct vcpu, so that
 * a hand-over to another process can return from the call there (ph_resume_call).
 */
	.balign	16
ph_sysv:
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
	.balign	16
ph_primitive:
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

/*
 * Return by an interrupt frame: rip cs rflags rsp ss at the stack pointer. iretq works at privilege level 3 as
 * long as the selectors are the host's; a user frame with others goes the long way through the hlt. So does the
 * return from an NMI: another one may wait for it.
 */
#if FAULT(IRET_FORGETS_NMI)
#define IRET_LOOKS_AT	FORCE_EVENT
#else
#define IRET_LOOKS_AT	(FORCE_EVENT | FORCE_IRET)
#endif
	.globl	ph_iret_window, ph_iretq, ph_iret_kernel_changed, ph_iretq_kernel, ph_iret_deliver, ph_iret_end
ENTRY(thunk_cpu_iret)
	pushq	%rax
	testb	$3, 16(%rsp)
	jz	3f
	movb	$1, GS(F_IRQ)
	cmpw	$0x33, 16(%rsp)
	jne	2f
	cmpw	$0x2b, 40(%rsp)
	jne	2f
ph_iret_window:
	cmpw	$0, GS(F_PENDING)
	jne	2f
	movq	GS(F_VCPU), %rax
	movl	$0x33, V_USER_CS(%rax)
	movl	$0x2b, V_USER_CS + 4(%rax)
	movq	V_USER_GS(%rax), %rax
	wrgsbase %rax
	popq	%rax
ph_iretq:
	iretq

	/* Into the kernel: its flag from the frame, its selectors are not the host's. */
3:	movzwl	16(%rsp), %eax
	cmpl	%eax, ph_kernel_cs
	jne	2f
	movl	24(%rsp), %eax
	shrl	$9, %eax
	andl	$1, %eax
	movb	%al, GS(F_IRQ)
	cmpw	$0, GS(F_PENDING)
	jne	4f
5:	movq	$0x33, 16(%rsp)
	/* From here on the frame does not tell any more that it is the kernel's. */
ph_iret_kernel_changed:
	movq	$0x2b, 40(%rsp)
	popq	%rax
ph_iretq_kernel:
	iretq
4:	testb	$IRET_LOOKS_AT, GS(F_FORCE)
	jnz	2f
	testb	%al, %al
	jz	5b
	cmpb	$0, GS(F_PENDING)
	je	5b
2:	popq	%rax
ph_iret_deliver:
	hlt
ph_iret_end:
END(thunk_cpu_iret)

/*
 * Return from a system call: rcx has the address, r11 the flags, rsp is the user's. The user's registers go to
 * struct vcpu first; so a signal in the window finds them there wherever it hits. The flags are
 * popped from a word there too, since nothing may be written below the user's stack pointer.
 */
	.globl	ph_sysret_window, ph_sysret_end
ENTRY(thunk_cpu_sysret)
	movq	%rax, GS(F_SCRATCH)
	movq	GS(F_VCPU), %rax
	movq	%rcx, V_USER_RIP(%rax)
	movq	%r11, V_USER_FLAGS(%rax)
	movq	%rsp, V_USER_RSP(%rax)
	movq	GS(F_SCRATCH), %rcx
	movq	%rcx, V_USER_RAX(%rax)
	movq	ph_user_selectors, %rcx
	movq	%rcx, V_USER_CS(%rax)
	movb	$1, GS(F_IRQ)
ph_sysret_window:
	cmpw	$0, GS(F_PENDING)
	jne	1f
	testl	$0x40100, %r11d		/* TF would trap inside here; AC too */
	jnz	1f
	leaq	V_SCRATCH(%rax), %rsp
	movq	V_USER_GS(%rax), %rcx
	wrgsbase %rcx
	pushq	%r11
	movq	V_USER_RIP(%rax), %rcx
	popfq
	movq	V_USER_RAX - V_SCRATCH(%rsp), %rax
	movq	V_USER_RSP - V_SCRATCH(%rsp), %rsp
	jmp	*%rcx
1:	hlt
ph_sysret_end:
END(thunk_cpu_sysret)

/*
 * A slot of a rewritten system-call site comes here (patch.c): rax has the number, rcx the return address, everything
 * else is the user's, the GS base too. Which vCPU this is only the limit of a descriptor tells that each thread
 * has for itself; lsl changes ZF, so there is a path for each value that it had. From here on as the processor
 * does it: r11 has the flags, rsp stays, interrupts are off. Of the flags that SFMASK clears those go that would harm the kernel:
 * DF, AC, since it runs at level 3, and NT, with which iretq is refused. TF is never set here: see layer_fault.
 *
 * All of it is a window: what the user had is in the registers or in the scratch words, by the labels. A signal makes it a system
 * call that is done.
 */
#if FAULT(INJECTED_KEEPS_NT)
#define INJECTED_CLEARS	0x40000
#else
#define INJECTED_CLEARS	0x44000
#endif
	.macro	injected zf
	.globl	ph_which_vcpu_\zf, ph_injected_rsp_\zf, ph_injected_flags_\zf, ph_injected_rcx_\zf, ph_injected_gs_\zf
	.globl	ph_injected_end_\zf
ph_which_vcpu_\zf:
	movl	$THREAD_SELECTOR, %r11d
	lsll	%r11d, %r11d
	movq	ph_vcpu_table(, %r11, 8), %r11
	movq	%rsp, V_USER_RSP(%r11)
	leaq	V_SCRATCH(%r11), %rsp
ph_injected_rsp_\zf:
	pushfq
ph_injected_flags_\zf:
	.if	\zf
	orl	$0x240, (%rsp)
	.else
	andl	$~0x40, (%rsp)
	orl	$0x200, (%rsp)
	.endif
	pushq	%rcx
ph_injected_rcx_\zf:
	rdgsbase %rcx
	movq	%rcx, V_USER_GS(%r11)
	movq	V_KERNEL_GS(%r11), %rcx
	wrgsbase %rcx
ph_injected_gs_\zf:
	movb	$0, GS(F_IRQ)
	cld
	testl	$INJECTED_CLEARS, 8(%rsp)
	jnz	2f
3:	popq	%rcx
	popq	%r11
	movq	V_USER_RSP - V_SCRATCH(%rsp), %rsp
	jmp	*GS(F_LSTAR)
2:	pushfq
	andl	$~INJECTED_CLEARS, (%rsp)
	popfq
	jmp	3b
ph_injected_end_\zf:
	.endm

ENTRY(ph_injected_syscall)
	jz	1f
	injected 0
1:	injected 1
END(ph_injected_syscall)

	.globl	ph_thunks_end
ph_thunks_end:

	.section .note.GNU-stack, "", @progbits
