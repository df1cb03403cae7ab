/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
#include "../kernel/site.h"

	.section .text, "ax"

	/*
	 * smp.c starts a vCPU here with every register set. Stores them before any changes. rsp is
	 * a 16-byte aligned stack.
	 */
	.globl	ap_probe
ap_probe:
	movq	%rax, ap_probe_gpr + 8 * 0(%rip)
	movq	%rcx, ap_probe_gpr + 8 * 1(%rip)
	movq	%rdx, ap_probe_gpr + 8 * 2(%rip)
	movq	%rbx, ap_probe_gpr + 8 * 3(%rip)
	movq	%rsp, ap_probe_gpr + 8 * 4(%rip)
	movq	%rbp, ap_probe_gpr + 8 * 5(%rip)
	movq	%rsi, ap_probe_gpr + 8 * 6(%rip)
	movq	%rdi, ap_probe_gpr + 8 * 7(%rip)
	movq	%r8, ap_probe_gpr + 8 * 8(%rip)
	movq	%r9, ap_probe_gpr + 8 * 9(%rip)
	movq	%r10, ap_probe_gpr + 8 * 10(%rip)
	movq	%r11, ap_probe_gpr + 8 * 11(%rip)
	movq	%r12, ap_probe_gpr + 8 * 12(%rip)
	movq	%r13, ap_probe_gpr + 8 * 13(%rip)
	movq	%r14, ap_probe_gpr + 8 * 14(%rip)
	movq	%r15, ap_probe_gpr + 8 * 15(%rip)
	pushfq
	popq	ap_probe_flags(%rip)
	SITE_CALL(CPU_IRQ_FLAG)
	movq	%rax, ap_probe_irq_flag(%rip)
	cld
	xorl	%ebp, %ebp
	call	ap_probe_main
	ud2

	.section .bss, "aw", @nobits
	.balign	8
	.globl	ap_probe_gpr, ap_probe_flags, ap_probe_irq_flag
ap_probe_gpr:
	.skip	8 * 16
ap_probe_flags:
	.skip	8
ap_probe_irq_flag:
	.skip	8

	.section .note.GNU-stack, "", @progbits
