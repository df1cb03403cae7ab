/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
#include "harness.h"
#include "../kernel/layout.h"
#include "../kernel/site.h"

	.section .text, "ax"

	/* fpu_load(state, level): level 1 adds ymm, 2 zmm and k. */
	.globl	fpu_load
fpu_load:
	fxrstor64 (%rdi)
	cmpl	$1, %esi
	jb	9f
	.irp	n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
	vmovdqu	FPU_YMM + 32 * \n(%rdi), %ymm\n
	.endr
	cmpl	$2, %esi
	jb	9f
	.irp	n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27, \
		28,29,30,31
	vmovdqu64 FPU_ZMM + 64 * \n(%rdi), %zmm\n
	.endr
	.irp	n, 0,1,2,3,4,5,6,7
	kmovw	FPU_K + 8 * \n(%rdi), %k\n
	.endr
9:	ret

	.globl	fpu_store
fpu_store:
	fxsave64 (%rdi)
	cmpl	$1, %esi
	jb	9f
	.irp	n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
	vmovdqu	%ymm\n, FPU_YMM + 32 * \n(%rdi)
	.endr
	cmpl	$2, %esi
	jb	9f
	.irp	n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27, \
		28,29,30,31
	vmovdqu64 %zmm\n, FPU_ZMM + 64 * \n(%rdi)
	.endr
	.irp	n, 0,1,2,3,4,5,6,7
	kmovw	%k\n, FPU_K + 8 * \n(%rdi)
	.endr
9:	ret

	/*
	 * harness_run(h). While the target runs, the harness owns no register: it finds h through
	 * the stack, where 8(%rsp) holds h and (%rsp) the target.
	 */
	.globl	harness_run
harness_run:
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	movq	%rdi, %rbx
	movq	%rsp, HARNESS_RSP(%rbx)
	leaq	HARNESS_FPU_IN(%rbx), %rdi
	movl	HARNESS_LEVEL(%rbx), %esi
	subq	$8, %rsp
	call	fpu_load
	/* rsp is 16-byte aligned here; two or three words move it by 16 or 8. */
	cmpl	$0, HARNESS_ODD(%rbx)
	je	1f
	pushq	%rbx
1:	pushq	%rbx
	pushq	HARNESS_TARGET(%rbx)
	/* Arithmetic flags from h. The others, the interrupt flag above all, stay. */
	pushfq
	andq	$~0x8d5, (%rsp)
	movq	HARNESS_FLAGS_IN(%rbx), %rax
	andq	$0x8d5, %rax
	orq	%rax, (%rsp)
	popfq
	movq	%rsp, HARNESS_IN + 8 * 4(%rbx)
	movq	HARNESS_IN + 8 * 0(%rbx), %rax
	movq	HARNESS_IN + 8 * 1(%rbx), %rcx
	movq	HARNESS_IN + 8 * 2(%rbx), %rdx
	movq	HARNESS_IN + 8 * 5(%rbx), %rbp
	movq	HARNESS_IN + 8 * 6(%rbx), %rsi
	movq	HARNESS_IN + 8 * 7(%rbx), %rdi
	movq	HARNESS_IN + 8 * 8(%rbx), %r8
	movq	HARNESS_IN + 8 * 9(%rbx), %r9
	movq	HARNESS_IN + 8 * 10(%rbx), %r10
	movq	HARNESS_IN + 8 * 11(%rbx), %r11
	movq	HARNESS_IN + 8 * 12(%rbx), %r12
	movq	HARNESS_IN + 8 * 13(%rbx), %r13
	movq	HARNESS_IN + 8 * 14(%rbx), %r14
	movq	HARNESS_IN + 8 * 15(%rbx), %r15
	movq	HARNESS_IN + 8 * 3(%rbx), %rbx
	call	*(%rsp)
	xchgq	%rax, 8(%rsp)			/* h; its place on the stack keeps the result */
	movq	%rcx, HARNESS_OUT + 8 * 1(%rax)
	movq	%rdx, HARNESS_OUT + 8 * 2(%rax)
	movq	%rbx, HARNESS_OUT + 8 * 3(%rax)
	movq	%rsp, HARNESS_OUT + 8 * 4(%rax)
	movq	%rbp, HARNESS_OUT + 8 * 5(%rax)
	movq	%rsi, HARNESS_OUT + 8 * 6(%rax)
	movq	%rdi, HARNESS_OUT + 8 * 7(%rax)
	movq	%r8, HARNESS_OUT + 8 * 8(%rax)
	movq	%r9, HARNESS_OUT + 8 * 9(%rax)
	movq	%r10, HARNESS_OUT + 8 * 10(%rax)
	movq	%r11, HARNESS_OUT + 8 * 11(%rax)
	movq	%r12, HARNESS_OUT + 8 * 12(%rax)
	movq	%r13, HARNESS_OUT + 8 * 13(%rax)
	movq	%r14, HARNESS_OUT + 8 * 14(%rax)
	movq	%r15, HARNESS_OUT + 8 * 15(%rax)
	movq	8(%rsp), %rcx
	movq	%rcx, HARNESS_OUT(%rax)
	movq	%rax, %rbx
	pushfq
	popq	HARNESS_FLAGS_OUT(%rbx)
	cld
	movq	HARNESS_RSP(%rbx), %rsp
	leaq	HARNESS_FPU_OUT(%rbx), %rdi
	movl	HARNESS_LEVEL(%rbx), %esi
	subq	$8, %rsp
	call	fpu_store
	fninit
	addq	$8, %rsp
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	ret

	/* A site for each primitive, and its record for harness.h. */
	.macro	STUB_RECORD call
	.pushsection .rodata.stubs, "a"
	.quad	\call, 1b
	.popsection
	.endm

	.section .rodata.stubs, "a"
	.balign	8
	.globl	site_stubs, site_stubs_end
site_stubs:
	.text

#define STUB_PRIMITIVE(NAME, number)	\
	.balign	16;			\
1:	STUB_RECORD number;		\
	SITE_CALL(NAME);		\
	ret;
#define STUB_SYSV(NAME, number)
#define STUB_JUMP(NAME, number)
#define X(SECTION, section, CALL, name, number, CLASS, since)	\
	STUB_##CLASS(SECTION##_##CALL, number)
	VMI_FOR_EACH_CALL(X)

	.section .rodata.stubs, "a"
site_stubs_end:
	.text

	/* One swapgs is half of a pair. Nothing may need GS in between: interrupts are off. */
	.globl	swapgs_by_site, swapgs_by_entry
swapgs_by_site:
	SITE_CALL(CPU_SWAPGS)
	SITE_CALL(CPU_SWAPGS)
	ret
swapgs_by_entry:
	pushq	harness_entry(%rip)
	call	*(%rsp)
	call	*(%rsp)
	leaq	8(%rsp), %rsp
	ret

	/*
	 * iret to the next instruction on this stack. No register changes. The interrupt flag in
	 * the frame is the virtual one: off here.
	 */
	.macro	IRET_FRAME to
	pushq	$KERNEL_SS
	pushq	%rsp
	addq	$8, (%rsp)
	pushfq
	andq	$~0x200, (%rsp)
	pushq	$KERNEL_CS
	pushq	$\to
	.endm

	.globl	iret_by_site, iret_by_entry
iret_by_site:
	IRET_FRAME 1f
	SITE_CALL(CPU_IRET)
1:	ret
iret_by_entry:
	IRET_FRAME 1f
	jmp	*harness_entry(%rip)
1:	ret

	.section .bss, "aw", @nobits
	.balign	8
	.globl	harness_entry
harness_entry:
	.skip	8

	.section .note.GNU-stack, "", @progbits
