/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Host calls, threads, stacks, and the load of a signal frame. */
#include "common/asm.h"
#include "state/offsets.h"

	.text
/*
 * s64 ph_host_call(u64 nr, a, b, c, d, e, f). The filter admits system calls only when they return
 * to ph_host_call_end. This program has no other syscall instruction.
 */
ENTRY(ph_host_call)
	/*
	 * Counts calls made on a vCPU's own stack, not those on the guest's or the zygote's stack.
	 */
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
 * s64 ph_clone(u64 flags, void *stack, void (*start)(void *), void *argument). The new thread
 * returns from the system call on its own stack, and from there into ph_thread.
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
 * void ph_load_context(const struct host_ucontext *): does not return. The signal return expects
 * its argument at rsp.
 */
ENTRY(ph_load_context)
	movq	%rdi, %rsp
	movl	$15, %eax
	jmp	ph_syscall
END(ph_load_context)

/*
 * s64 ph_set_thread_area(void *description): exists as a 32-bit system call only, so the
 * description is below 4 GiB. A host without 32-bit calls kills the caller: see try_descriptors()
 * in birth/zygote.c.
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

	.section .note.GNU-stack, "", @progbits
