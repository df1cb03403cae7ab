/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The program's start, its one host-call instruction, threads, signals, full register loads. */
#include "../common/asm.h"
#include "offsets.h"

	.text
/* The host enters here with nothing that we want on the stack. */
ENTRY(_start)
	xorl	%ebp, %ebp
	leaq	ph_boot_stack_top(%rip), %rsp
	call	zygote_main
	ud2
END(_start)

/*
 * s64 ph_host_call(u64 nr, a, b, c, d, e, f). The filter admits system calls only when they
 * return to ph_host_call_end: there is no other such instruction in this program.
 */
ENTRY(ph_host_call)
	movq	%rdi, %rax
	movq	%rsi, %rdi
	movq	%rdx, %rsi
	movq	%rcx, %rdx
	movq	%r8, %r10
	movq	%r9, %r8
	movq	8(%rsp), %r9
ph_syscall:
	syscall
	.globl	ph_host_call_end
ph_host_call_end:
	ret
END(ph_host_call)

/* Where the host's signal frames return to. */
ENTRY(ph_sigreturn)
	movl	$15, %eax
	jmp	ph_syscall
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

/*
 * void ph_resume_full(void): the vCPU starts in the state of struct vcpu.ap. Only a signal return can load all
 * registers at once, so this asks for a signal; windows.c knows it.
 */
ENTRY(ph_resume_full)
	ud2
END(ph_resume_full)

	.bss
	.balign	16
	.skip	16384
ph_boot_stack_top:

	.section .note.GNU-stack, "", @progbits
