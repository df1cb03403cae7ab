/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* System calls from stubs. */
#include "common/asm.h"
#include "state/offsets.h"

	.section .thunks, "awx", @progbits

/*
 * The stub of a replaced system-call site jumps here (calls/patch.c): rax has the number, rcx the
 * return address, and everything else is the user's, including the GS base. Only the limit of a
 * descriptor that each thread has for itself shows which vCPU this is. lsl changes ZF, so there is
 * one path for each value of it. The rest is as on a processor: r11 gets the flags, rsp stays,
 * interrupts are off. It clears only those flags of SFMASK that would harm the kernel: DF; AC,
 * because it runs at level 3; and NT, with which iretq is refused. TF is never set here: see
 * layer_fault().
 *
 * All of it is a critical section: the labels show which of the user's values are in registers and
 * which in the scratch words. A signal turns it into a completed system call.
 */
#if FAULT(INJECTED_KEEPS_NT)
#define INJECTED_CLEARS	0x40000
#else
#define INJECTED_CLEARS	0x44000
#endif
	.macro	injected zf
	.globl	ph_which_vcpu_\zf, ph_injected_rsp_\zf, ph_injected_flags_\zf
	.globl	ph_injected_rcx_\zf, ph_injected_gs_\zf, ph_injected_end_\zf
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

	.section .note.GNU-stack, "", @progbits
