/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* User programs of the benchmark, and the system-call entry that it measures. */
#include "../kernel/layout.h"
#include "../kernel/site.h"
#include "vmi_bench.h"

	.section .user.text, "ax"

	/* Makes rdi system calls. A site may not cross a page: hence the alignment. */
	.macro	CALLS name
	.balign	64
	.globl	\name
\name:
	movl	$BENCH_GETPPID, %eax
	syscall
	decq	%rdi
	jnz	\name
	movl	$BENCH_END, %eax
	syscall
	.endm

	CALLS	u_bench_calls			/* its site is rewritten */
	CALLS	u_bench_calls_trapped

	/* Writes one word into each of rsi pages at rdi. */
	.balign	64
	.globl	u_bench_write
u_bench_write:
	movq	%rdi, (%rdi)
	addq	$4096, %rdi
	decq	%rsi
	jnz	u_bench_write
	movl	$BENCH_END, %eax
	syscall

	.section .text, "ax"

	/*
	 * LSTAR of the benchmark: like syscall_entry, with a complete struct regs, but it ends with
	 * sysret. The program's last call takes the normal way.
	 */
	.globl	bench_syscall_entry
bench_syscall_entry:
	cmpl	$BENCH_END, %eax
	je	syscall_entry
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
	.irp	r, rdi,rsi,rdx,rcx,rax,r8,r9,r10,r11,rbx,rbp,r12,r13,r14,r15
	pushq	%\r
	.endr
	/* The stack for entries is 16-byte aligned, and REGS_SIZE is a multiple of 16. */
	movq	%rsp, %rdi
	call	bench_syscall
	SITE_CALL(CPU_IRQ_DISABLE)
	.irp	r, r15,r14,r13,r12,rbp,rbx,r11,r10,r9,r8,rax,rcx,rdx,rsi,rdi
	popq	%\r
	.endr
	movq	REGS_RSP - REGS_VECTOR(%rsp), %rsp
	SITE_CALL(CPU_SWAPGS)
	SITE_CALL(CPU_SYSRET)

	.section .note.GNU-stack, "", @progbits
