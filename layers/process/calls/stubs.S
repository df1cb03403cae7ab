/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Templates of cpuid stubs and their body, which patch.c copies.
 *
 * The copies run as user code, at user addresses. cpuid overwrites rax, rbx, rcx and rdx, so these
 * are free. The stack does not change, nor do the flags: ax holds them, and the last instructions
 * that could change them come before those that restore them. Everything is in registers at any
 * time, so this is no critical section.
 */
#include "common/faults.h"
#include "state/offsets.h"

	.section .rodata, "a", @progbits

/*
 * The stub, after a copy of the instructions before cpuid: eax has the leaf, ecx the subleaf.
 * patch.c sets the displacements of the two jumps that leave it. When the body returns, rcx points
 * to the table's entry, of which ecx and edx remain to be loaded; or it continues at 2 if there is
 * no entry.
 */
	.globl	ph_cpuid_stub, ph_cpuid_stub_body, ph_cpuid_stub_back, ph_cpuid_stub_end
ph_cpuid_stub:
	leaq	1f(%rip), %rdx
	.byte	0xe9
ph_cpuid_stub_body:
	.long	0
1:	movl	CPUID_EDX(%rcx), %edx
	movl	CPUID_ECX(%rcx), %ecx
	jmp	3f
2:	cpuid
3:	.byte	0xe9
ph_cpuid_stub_back:
	.long	0
ph_cpuid_stub_end:
	.set	stub_miss, 2b - 1b

/*
 * The body. eax: leaf, ecx: subleaf, rdx: where to continue. The table has the same address in all
 * processes of the machine, below 4 GiB, and does not change. It ends with a leaf that no program
 * asks for.
 */
	.globl	ph_cpuid_body, ph_cpuid_body_end
ph_cpuid_body:
	movl	%eax, %ebx
	lahf
#if FAULT(CPUID_STUB_LOSES_OVERFLOW)
	movb	$0, %al
#else
	seto	%al
#endif
	shlq	$32, %rcx
	orq	%rcx, %rbx
	movl	$cpuid_stub_table, %ecx
1:	cmpl	$CPUID_NONE, (%rcx)
	je	4f
	cmpl	%ebx, (%rcx)
	je	2f
	addq	$CPUID_ENTRY, %rcx
	jmp	1b
	/* The leaf is the same. The subleaf must be the same, or not matter. */
2:	rorq	$32, %rbx
	cmpl	%ebx, CPUID_SUBLEAF(%rcx)
	je	3f
#if FAULT(CPUID_STUB_ANY_SUBLEAF)
	jmp	3f
#endif
	cmpl	$CPUID_ANY, CPUID_SUBLEAF(%rcx)
	je	3f
	rorq	$32, %rbx
	addq	$CPUID_ENTRY, %rcx
	jmp	1b
	/* 0x7f + 1 overflows and 0x7f + 0 does not. sahf leaves that flag alone. */
3:	addb	$0x7f, %al
	sahf
#if FAULT(CPUID_STUB_WIDE)
	movq	CPUID_EAX(%rcx), %rax
#else
	movl	CPUID_EAX(%rcx), %eax
#endif
	movl	CPUID_EBX(%rcx), %ebx
	jmp	*%rdx
4:	movq	%rbx, %rcx
#if !FAULT(CPUID_MISS_LOSES_SUBLEAF)
	shrq	$32, %rcx
#endif
	addb	$0x7f, %al
	sahf
	movl	%ebx, %eax
	leaq	stub_miss(%rdx), %rdx
	jmp	*%rdx
ph_cpuid_body_end:

	.section .note.GNU-stack, "", @progbits
