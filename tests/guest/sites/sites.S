/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* System-call sites of all shapes. */
	.text

	.macro	function name
	.balign	16
	.globl	\name
	.type	\name, @function
\name:
	.endm

	.macro	site name nr
	function \name
	mov	$\nr, %eax
	syscall
	ret
	.endm

	.balign	4096
	.globl	site_page_start, site_page_end
site_page_start:
	/* The first instruction of a page is not rewritten: what lies before it is unknown. */
	.skip	16, 0xcc
	site	site_getppid 110
	site	site_getpid 39
	site	site_pause 34
	site	site_step 110
	site	site_traced 110
	site	site_forced 110
	site	site_writable 110
	site	site_core 110
	site	site_off 110

	/* As in a C library's read: 2 bytes, followed by padding */
	function site_read
	xor	%eax, %eax
	syscall
	cmp	$-4096, %rax
	ja	1f
	ret
1:	ret
	.balign	16
	function site_zero
	ret

	/*
	 * As in Go's runtime, after the arguments: the number is in rax, the rest in rbx, rcx, rdi
	 */
	function site_go
	push	%rbx
	mov	$110, %eax
	mov	%rsi, %rbx
	mov	%rdx, %rcx
	call	site_go_inner
	pop	%rbx
	ret
	function site_go_inner
	mov	%rsi, %r10
	mov	%rdi, %rdx
	mov	%rcx, %rsi
	mov	%rbx, %rdi
	syscall
	cmp	$-4095, %rax
	ja	2f
	ret
2:	ret
	.balign	16, 0xcc

	/* As in syscall(): number first, then six more, the last one on the stack */
	function site_generic
	mov	%rdi, %rax
	mov	%rsi, %rdi
	mov	%rdx, %rsi
	mov	%rcx, %rdx
	mov	%r8, %r10
	mov	%r9, %r8
	mov	8(%rsp), %r9
	syscall
	ret

	/* As in glibc 2.41 for a single thread: the number is on the stack */
	function site_single
	push	%rbx
	mov	16(%rsp), %rax
	syscall
	pop	%rbx
	ret

	/*
	 * As there for threads that can be cancelled: a word for the state, then number and
	 * arguments
	 */
	function site_cancelled
	mov	%rdi, %r11
	mov	%rsi, %rax
	mov	%rdx, %rdi
	mov	%rcx, %rsi
	mov	%r8, %rdx
	mov	%r9, %r10
	mov	8(%rsp), %r8
	mov	16(%rsp), %r9
	mov	%r11, 8(%rsp)
	syscall
	ret

	/* An instruction between the number and the call */
	function site_futex
	mov	$110, %eax
	xor	$0x80, %sil
	syscall
	ret

	/* A stub has no room for all of it: the instruction that loads an argument is replaced */
	function site_wake
	mov	$110, %eax
	xor	$0x81, %dl
	mov	%edx, %esi
	mov	$0x7fffffff, %edx
	syscall
	ret

	/* As in recvfrom(): after the number, two arguments from the stack */
	function site_loaded
	mov	$110, %eax
	mov	16(%rsp), %rdx
	mov	8(%rsp), %rsi
	syscall
	ret

	/* Instructions that can be moved: and, shl, lea */
	function site_moved
	mov	$110, %eax
	and	$0x80, %esi
	shl	$7, %edx
	syscall
	ret
	function site_address
	mov	$110, %eax
	lea	2(,%rdi,8), %edi
	syscall
	ret
	.balign	4096
site_page_end:

	.globl	site_crowd
	.skip	16, 0xcc
site_crowd:
	.rept	254
	.balign	16
	mov	$110, %eax
	syscall
	ret
	.endr
	.balign	4096

	/*
	 * cpuid instructions that become short jumps: nothing before them is long enough, and there
	 * is padding after them. Takes leaf and subleaf, returns eax.
	 */
	.globl	site_cpuids
site_cpuids:
	.rept	32
	.balign	16
	push	%rbx
	mov	%edi, %eax
	mov	%esi, %ecx
	cpuid
	pop	%rbx
	ret
	.endr
	.balign	4096

	/* The code that proves where it begins is in the page before. */
	.globl	site_first
	.skip	16, 0x90
site_first:
	mov	$110, %eax
	syscall
	ret

	/* Most of the bytes before it begin instructions that run past its beginning. */
	.globl	site_unproven
	.skip	160, 0xb8
site_unproven:
	mov	$110, %eax
	syscall
	ret

	/*
	 * long site_registers(site, u64 before[16], u64 after[18]): loads all registers, calls the
	 * site, stores all
	 */
	function site_registers
	push	%rbx
	push	%rbp
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	push	%rdx
	push	%rdi
	mov	%rsi, %rax
	mov	0(%rax), %rbx
	mov	8(%rax), %rdx
	mov	16(%rax), %rsi
	mov	24(%rax), %rdi
	mov	32(%rax), %rbp
	mov	40(%rax), %r8
	mov	48(%rax), %r9
	mov	56(%rax), %r10
	mov	64(%rax), %r12
	mov	72(%rax), %r13
	mov	80(%rax), %r14
	mov	88(%rax), %r15
	pushq	96(%rax)
	popf
	/* The memory below the stack pointer belongs to the program, too. */
	mov	104(%rax), %rax
	mov	%rax, -24(%rsp)
	mov	%rax, -128(%rsp)
	call	*(%rsp)
	pushf
	push	%rax
	mov	24(%rsp), %rax
	mov	%rbx, 0(%rax)
	mov	%rdx, 8(%rax)
	mov	%rsi, 16(%rax)
	mov	%rdi, 24(%rax)
	mov	%rbp, 32(%rax)
	mov	%r8, 40(%rax)
	mov	%r9, 48(%rax)
	mov	%r10, 56(%rax)
	mov	%r12, 64(%rax)
	mov	%r13, 72(%rax)
	mov	%r14, 80(%rax)
	mov	%r15, 88(%rax)
	mov	8(%rsp), %rbx
	mov	%rbx, 96(%rax)
	mov	-24+16(%rsp), %rbx
	mov	%rbx, 104(%rax)
	mov	-128+16(%rsp), %rbx
	mov	%rbx, 128(%rax)
	mov	%rcx, 112(%rax)
	mov	%r11, 120(%rax)
	pop	%rax
	popf
	cld
	pop	%rdi
	pop	%rdx
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbp
	pop	%rbx
	ret

	/* long site_step_over(site): calls it with the trap flag set */
	function site_step_over
	pushf
	orl	$0x100, (%rsp)
	popf
	call	*%rdi
	pushf
	andl	$~0x100, (%rsp)
	popf
	ret

	/* What it loads is an instruction, 2 bytes after its start: mov $110,%eax; syscall; ret */
	function site_hidden
	movabs	$0xc3050f0000006eb8, %rax
	ret
	.skip	64, 0x90

	/* Padding, so that none of this is in the last page of the text, and that page has room. */
#ifndef FILL
#define FILL	0
#endif
	.skip	4096 + FILL, 0xcc

	/* Identified in the file by its bytes. */
	function site_marker
	movl	$0x4d5a172a, %eax
	ret

	.section .note.GNU-stack, "", @progbits
