/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The native layer for common/header.S: assembler only. */
#ifndef NATIVE_LAYER_H
#define NATIVE_LAYER_H

#include "features.h"
#include "percpu_size.h"

#define LAYER_NAME "native"
#define LAYER_PERCPU_SIZE NATIVE_PERCPU_SIZE

/* All sections but statistics, lines and buses. */
#define LAYER_SECTIONS								\
	(((1 << VMI_SECTION_COUNT) - 1) &					\
	 ~(1 << VMI_SECTION_STATS | 1 << VMI_SECTION_LINE | 1 << VMI_SECTION_BUS))

#define LAYER_ENTRY(s, n) native_##s##_##n

/*
 * A call with a native form keeps it. VMI_NATIVE_... of a call without one does not expand, so
 * STRING, which expands, and STRING_, which does not, give the same. Locks, interprocessor
 * interrupts, clock and timers a kernel has as good or better itself.
 */
#define LAYER_RELOC(S, s, N, n, num, class)						\
	.set layer_reloc, VMI_RELOC_NONE;						\
	.ifeqs STRING(VMI_NATIVE_##S##_##N), STRING_(VMI_NATIVE_##S##_##N);		\
	.set layer_reloc, VMI_RELOC_CALL;						\
	.endif;										\
	.if num >> 8 == VMI_SECTION_LOCK || num == VMI_CALL_APIC_SEND_IPI ||		\
	    num == VMI_CALL_TIME_READ || num == VMI_CALL_TIME_SET_ALARM;		\
	.set layer_reloc, VMI_RELOC_NONE;						\
	.endif

#endif
