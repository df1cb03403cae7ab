/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The entries that count around those of the native layer (common/counted.inc). */
#include "stats.h"

/*
 * Not wrapped here: core.init, which stats.c wraps; stats.reset, which would spoil its own zero;
 * calls that are not offered.
 */
#define WRAPPED(num) num != VMI_CALL_CORE_INIT && num != VMI_CALL_STATS_RESET &&	\
	num >> 8 != VMI_SECTION_LINE && num >> 8 != VMI_SECTION_BUS

#define COUNTED_ENTRY(name) CALL_ENTRY_POINT(name)
#define COUNTED(s, n) native_##s##_##n

/* The layer may be anywhere, so the displacement is in a variable. */
.macro stats_data reg
	movq	stats_gs_offset(%rip), \reg
	movq	%gs:VMI_OFF_PERCPU_DATA(\reg), \reg
	addq	$STATS_PERCPU_OFFSET, \reg
.endm

	.text
#include "counted.inc"

	.section .note.GNU-stack, "", @progbits
