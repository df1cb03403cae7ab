/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * User programs: position independent, with arguments in rdi and rsi. They end with a system call
 * with the result in rax. Some do on purpose what user mode may not.
 */
	.macro	PROGRAM name
	.balign	16
	.globl	\name
\name:
	.endm

	.section .user.text, "ax"

	PROGRAM	u_nop
	syscall

	PROGRAM	u_load
	movq	(%rdi), %rax
	syscall

	PROGRAM	u_store
	movq	%rsi, (%rdi)
	syscall

	/* Stores, and reads the word again. */
	PROGRAM	u_store_load
	movq	%rsi, (%rdi)
	movq	(%rdi), %rax
	syscall

	/* Jumps to data that is expected to hold "mov $imm32,%eax; syscall". */
	PROGRAM	u_execute
	jmp	*%rdi

	PROGRAM	u_int3
	int3
	syscall

	PROGRAM	u_int_gate
	int	$0x31
	syscall

	/* A gate that only the kernel may use. */
	PROGRAM	u_int_kernel
	int	$0x30
	syscall

	PROGRAM	u_ud2
	ud2

	PROGRAM	u_divide
	xorl	%edx, %edx
	xorl	%ecx, %ecx
	movl	$1, %eax
	divl	%ecx
	syscall

	/* Waits until the byte at rdi differs from rsi. */
	PROGRAM	u_spin
1:	pause
	cmpb	%sil, (%rdi)
	je	1b
	syscall

	PROGRAM	u_add
	leaq	(%rdi, %rsi), %rax
	syscall

	/* Loops rdi times. */
	PROGRAM	u_loop
	xorl	%eax, %eax
1:	incq	%rax
	cmpq	%rdi, %rax
	jne	1b
	syscall

	PROGRAM	u_pushf
	pushfq
	popq	%rax
	syscall

	/* Tries to change the interrupt flag: popf must ignore it. */
	PROGRAM	u_popf
	pushfq
	andq	$~0x200, (%rsp)
	popfq
	pushfq
	popq	%rax
	syscall

	PROGRAM	u_cli
	cli
	syscall
	PROGRAM	u_sti
	sti
	syscall
	PROGRAM	u_hlt
	hlt
	syscall
	PROGRAM	u_rdcr3
	movq	%cr3, %rax
	syscall
	PROGRAM	u_invlpg
	invlpg	(%rdi)
	syscall
	PROGRAM	u_lgdt
	lgdt	(%rdi)
	syscall
	PROGRAM	u_swapgs
	swapgs
	syscall
	PROGRAM	u_rdmsr
	movl	$0xc0000080, %ecx
	rdmsr
	syscall
	PROGRAM	u_inb
	movl	$0x80, %edx
	inb	%dx, %al
	syscall

	/* Writes a byte to port rdi. */
	PROGRAM	u_in
	movl	%edi, %edx
	inb	%dx, %al
	syscall

	PROGRAM	u_unaligned
	leaq	-15(%rsp), %rax
	movl	%eax, (%rax)
	syscall

	/* An FPU instruction, for #NM. */
	PROGRAM	u_fp
	fninit
	syscall

	PROGRAM	u_x87
	fnstcw	-8(%rsp)
	movzwl	-8(%rsp), %eax
	syscall

	/* Adds one to the low words of xmm0 to xmm15 and swaps xmm0 with xmm1. */
	PROGRAM	u_xmm_swap
	movdqa	%xmm0, %xmm2
	movdqa	%xmm1, %xmm0
	movdqa	%xmm2, %xmm1
	syscall

	/* Returns all registers as they came in, except rax. */
	PROGRAM	u_sysret_regs
	movq	%rcx, %rax
	syscall

	PROGRAM	u_fs_load
	movq	%fs:0, %rax
	syscall
	PROGRAM	u_gs_load
	movq	%gs:0, %rax
	syscall

	/* Loads a selector, then reads the first word of that segment. */
	PROGRAM	u_fs_select
	movl	%edi, %fs
	movq	%fs:0, %rax
	syscall
	PROGRAM	u_gs_select
	movl	%edi, %gs
	movq	%gs:0, %rax
	syscall
	/* Returns the selector in GS. */
	PROGRAM	u_gs_selector
	movl	%gs, %eax
	syscall

	/* With the direction flag set, which SFMASK clears for the kernel. */
	PROGRAM	u_std
	std
	syscall

	/* Single steps: each instruction is one exception. */
	PROGRAM	u_steps
	movl	$1, %eax
	movl	$2, %eax
	movl	$3, %eax
	syscall

	PROGRAM	u_overflow
	int	$4
	syscall

	PROGRAM	u_noncanonical
	movabsq	$0x800000000000, %rax
	movq	(%rax), %rax
	syscall

	/* Changes xmm0 to xmm15 and mxcsr to the 16 * 16 + 4 bytes at rdi. */
	PROGRAM	u_load_xmm
	.irp	n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
	movdqu	16 * \n(%rdi), %xmm\n
	.endr
	ldmxcsr	256(%rdi)
	syscall

	PROGRAM	u_cs
	movl	%cs, %eax
	syscall

	/* Sets rsi words of 8 bytes at rdi to their own addresses. */
	PROGRAM	u_fill
	movq	%rdi, (%rdi)
	addq	$8, %rdi
	decq	%rsi
	jnz	u_fill
	syscall

	/* Reads one word of each of rsi pages at rdi. rax: their xor. */
	PROGRAM	u_touch
	xorl	%eax, %eax
1:	xorq	(%rdi), %rax
	addq	$4096, %rdi
	decq	%rsi
	jnz	1b
	syscall

	/*
	 * Makes calls in a loop with rdi in five words below the stack pointer. rax: whether one
	 * has changed.
	 */
	PROGRAM	u_keep_below
	.irp	n, 8, 16, 24, 32, 40
	movq	%rdi, -\n(%rsp)
	.endr
	syscall
	.irp	n, 8, 16, 24, 32, 40
	cmpq	%rdi, -\n(%rsp)
	jne	1f
	.endr
	xorl	%eax, %eax
	jmp	u_keep_below
1:	movl	$1, %eax
	jmp	u_keep_below

	/*
	 * Makes rdi system calls that do nothing. Then int $0x31 with, in rax, how often something
	 * other than rcx and r11 had changed, including the flags. A site may not cross a page:
	 * hence the alignment.
	 */
	PROGRAM	u_call_loop
	.globl	u_call_loop_site
	xorl	%edx, %edx
	movq	%rsp, %rbx
	movq	%rdi, %rsi
	.balign	64
1:	testl	$1, %edi
	pushfq
	popq	%r12
u_call_loop_site:
	movl	$58, %eax
	syscall
2:	pushfq
	popq	%r13
	cmpq	%r12, %r13
	jne	3f
	cmpq	%r12, %r11
	jne	3f
	leaq	2b(%rip), %r14
	cmpq	%r14, %rcx
	jne	3f
	cmpq	%rbx, %rsp
	jne	3f
	cmpl	$58, %eax
	je	4f
3:	incq	%rdx
	movq	%rbx, %rsp
4:	decq	%rdi
	jnz	1b
	movq	%rdx, %rax
	int	$0x31

	/* Stores the result of cpuid, leaf rdi, subleaf rsi, at rdx as struct vmi_cpuid. */
	PROGRAM	u_cpuid
	.globl	u_cpuid_instruction
	movq	%rdx, %r8
	movl	%edi, %eax
	movl	%esi, %ecx
u_cpuid_instruction:
	cpuid
	movl	%eax, (%r8)
	movl	%ebx, 4(%r8)
	movl	%ecx, 8(%r8)
	movl	%edx, 12(%r8)
	syscall

	/*
	 * Executes cpuid of leaf 0xd, subleaf rsi, rdi times. Then int $0x31 with, in rax, how
	 * often the result was not r8, r9, r10, r11 or something else had changed, including the
	 * flags. A site may not cross a page: hence the alignment.
	 */
	PROGRAM	u_cpuid_loop
	.globl	u_cpuid_loop_site
	xorl	%r14d, %r14d
	movq	%rsp, %r15
	.balign	64
1:	testl	$0x81, %edi
	pushfq
	popq	%r12
	movl	%esi, %ecx
u_cpuid_loop_site:
	movl	$0xd, %eax
	cpuid
	pushfq
	popq	%r13
	cmpq	%r12, %r13
	jne	2f
	cmpq	%r8, %rax
	jne	2f
	cmpq	%r9, %rbx
	jne	2f
	cmpq	%r10, %rcx
	jne	2f
	cmpq	%r11, %rdx
	jne	2f
	cmpq	%rsp, %r15
	je	3f
2:	incq	%r14
3:	decq	%rdi
	jnz	1b
	movq	%r14, %rax
	int	$0x31

	/* Jumps to 32-bit code: rdi points to its address and selector. */
	PROGRAM	u_compatibility
	ljmp	*(%rdi)

	/* A string store over rsi bytes: a fault in the middle must resume there. */
	PROGRAM	u_stos
	movq	%rsi, %rcx
	movb	$0x5a, %al
	rep stosb
	movq	%rdi, %rax
	syscall

	/* The first touch of a page, while unaligned accesses fault. */
	PROGRAM	u_aligned_load
	pushfq
	orl	$0x40000, (%rsp)
	popfq
	movq	(%rdi), %rax
	syscall

	/*
	 * Makes rsi system calls with the stack pointer rdi, which return with r8. Then int $0x31
	 * with, in rax, how often it was another one. A site may not cross a page: hence the
	 * alignment.
	 */
	PROGRAM	u_any_stack
	.globl	u_any_stack_site
	xorl	%edx, %edx
	.balign	64
1:	movq	%rdi, %rsp
u_any_stack_site:
	movl	$59, %eax
	syscall
	cmpq	%r8, %rsp
	je	2f
	incq	%rdx
2:	decq	%rsi
	jnz	1b
	movq	%rdx, %rax
	int	$0x31

	/* A stack pointer that the caller chooses. */
	PROGRAM	u_stack
	movq	%rdi, %rsp
	syscall

	/* Denies itself all memory with protection keys, then loads from rdi. */
	PROGRAM	u_wrpkru_load
	xorl	%ecx, %ecx
	xorl	%edx, %edx
	movl	$-1, %eax
	wrpkru
	movq	(%rdi), %rax
	syscall

	PROGRAM	u_wrpkru
	xorl	%ecx, %ecx
	xorl	%edx, %edx
	movl	$-1, %eax
	wrpkru
	syscall

	.section .note.GNU-stack, "", @progbits
