/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The entries that count around those of the layer.
 *
 * They count as the guest's own code (crossing/tail.S): no instruction leaves anything half done
 * that an interrupt must not see, and the code that is entered from here tests F_PENDING last. A
 * call may return in another process, because this code, the guest's stack and both places of the
 * counts have the same addresses in each process.
 */
#include "common/asm.h"
#include "state/offsets.h"
#include "stats/layer.h"

/* core.init is below. stats.reset would spoil its own zero. */
#define WRAPPED(num) num != VMI_CALL_CORE_INIT && num != VMI_CALL_STATS_RESET

#define COUNTED_ENTRY(name) ENTRY(name)
#define COUNTED(s, n) thunk_##s##_##n

.macro stats_data reg
	movq	GS(VMI_OFF_PERCPU_DATA), \reg
.endm

	/* Of all processes, and in pages without code: stores beside code would be expensive. */
	.section .thunks.counts, "aw", @progbits
	.balign	4096
	.globl	stats_machine, stats_ready
stats_machine:
	.skip	STATS_BYTES
stats_ready:
	.byte	0
	.balign	4096

#if FAULT(COUNTED_IS_LAYER)
	.section .thunks, "awx", @progbits
#else
	.section .thunks.counted, "awx", @progbits
#endif

ENTRY(thunk_stats_read)
	movl	$process_stats_read, %eax
	jmp	ph_sysv
END(thunk_stats_read)

ENTRY(counted_stats_reset)
	movl	$process_stats_reset, %eax
	jmp	ph_sysv
END(counted_stats_reset)

/* From its success on there are layer data. */
ENTRY(counted_core_init)
	subq	$8, %rsp
	call	thunk_core_init
	addq	$8, %rsp
	testl	%eax, %eax
	jnz	1f
	movb	$1, stats_ready(%rip)
1:	ret
END(counted_core_init)

#include "common/counted.inc"

	.section .note.GNU-stack, "", @progbits
