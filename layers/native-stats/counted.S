/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * An entry counted_<section>_<call> around each native_<section>_<call>.
 *
 * Calls that run with the kernel's GS base count in their vCPU's layer data; those of "any GS base"
 * and the jumps count in stats_machine. The additions are locked, so an interrupt, a move to
 * another vCPU or a reset in between loses nothing. Before core.init has succeeded there is no
 * layer data, and nothing is counted.
 */
#include "asm.h"
#include "stats.h"

/* Calls of "any GS base", as vmi.toml lists them (any_gs). */
#define ANY_GS(num)						\
	(num == VMI_CALL_CORE_PROBE) | (num == VMI_CALL_CORE_VERSION) |		\
	(num == VMI_CALL_CORE_CONSOLE_WRITE) | (num == VMI_CALL_CPU_PAUSE) |	\
	(num == VMI_CALL_CPU_READ_TSC) | (num == VMI_CALL_CPU_SET_GS_BASE) |	\
	(num == VMI_CALL_CPU_SWAPGS) | (num == VMI_CALL_CPU_IO_DELAY)

/* Does not return either, although its class does not say so. */
#define STOPS(num) num == VMI_CALL_CPU_STOP

/*
 * Not wrapped here: core.init, which stats.c wraps; stats.reset, which would spoil its own zero;
 * calls that are not offered.
 */
#define WRAPPED(num) num != VMI_CALL_CORE_INIT && num != VMI_CALL_STATS_RESET &&	\
	num >> 8 != VMI_SECTION_LINE

	.set	call_index, 0

/* Address of this call's struct vmi_call_stats. */
.macro load_stats reg
	.if any_gs
	leaq	stats_machine + call_index * VMI_SIZE_CALL_STATS(%rip), \reg
	.else
	movq	stats_gs_offset(%rip), \reg
	movq	%gs:VMI_OFF_PERCPU_DATA(\reg), \reg
	addq	$STATS_PERCPU_OFFSET + call_index * VMI_SIZE_CALL_STATS, \reg
	.endif
.endm

/* rax = counter; rdx is overwritten */
.macro read_counter
	rdtsc
	shlq	$32, %rdx
	orq	%rdx, %rax
.endm

/* Adds a call of rax - \start cycles. Overwrites rax, rcx and rdx; \start may be rcx. */
.macro account start
	subq	\start, %rax
	jns	1f
	xorl	%eax, %eax		/* the counters of two processors are out of step */
1:	load_stats %rcx
	lock incq VMI_OFF_CALL_STATS_CALLS(%rcx)
#if !FAULT(STATS_NO_CYCLES)
	lock addq %rax, VMI_OFF_CALL_STATS_CYCLES(%rcx)
#endif
	orq	$1, %rax		/* 0 cycles belong to bucket 0, as 1 does */
	bsrq	%rax, %rdx
#if FAULT(STATS_BUCKET_OFF)
	incl	%edx
#endif
	cmpl	$VMI_STATS_BUCKETS - 1, %edx
	jbe	1f
	movl	$VMI_STATS_BUCKETS - 1, %edx
1:	lock incq VMI_OFF_CALL_STATS_BUCKETS(%rcx, %rdx, 8)
.endm

/*
 * Invariant: preserves every register but rax, as the native entry does, and does not touch the
 * argument in rdi. Uses 40 bytes of stack and the native entry's own.
 */
.macro wrap_primitive native
	cmpb	$0, stats_ready(%rip)
	je	\native
	pushq	%rdx
	pushq	%rcx
	read_counter
	movq	%rax, %rcx
	call	\native
	pushq	%rax
	read_counter
	account %rcx
	popq	%rax
	popq	%rcx
	popq	%rdx
	ret
.endm

/* Invariant: no call has more arguments than the six registers, of which only rdx is used here. */
.macro wrap_sysv native
	cmpb	$0, stats_ready(%rip)
	je	\native
	pushq	%rbx			/* aligns the stack for the call as well */
	movq	%rdx, %r10
	read_counter
	movq	%rax, %rbx
	movq	%r10, %rdx
	call	\native
	movq	%rax, %r11
	read_counter
	account %rbx
	movq	%r11, %rax
	popq	%rbx
	ret
.endm

/* Invariant: uses no register, no stack, no GS; flags come from the frame or from r11. */
.macro wrap_jump native
	lock incq stats_machine + call_index * VMI_SIZE_CALL_STATS + VMI_OFF_CALL_STATS_CALLS(%rip)
	jmp	\native
.endm

#define WRAP_PRIMITIVE wrap_primitive
#define WRAP_SYSV wrap_sysv
#define WRAP_JUMP wrap_jump

#define WRAP(S, s, N, n, num, class, since)			\
	.set any_gs, ANY_GS(num);				\
	.if WRAPPED(num);					\
	ENTRY(counted_##s##_##n);				\
	.if STOPS(num);						\
	wrap_jump native_##s##_##n;				\
	.else;							\
	WRAP_##class native_##s##_##n;				\
	.endif;							\
	END(counted_##s##_##n);					\
	.endif;							\
	.set call_index, call_index + 1;

	.text
	VMI_FOR_EACH_CALL(WRAP)

	.section .note.GNU-stack, "", @progbits
