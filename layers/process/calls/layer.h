/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Input of common/tables.inc for this layer. All entries are thunks (thunks.S, crossing/). */
#ifndef PROCESS_LAYER_H
#define PROCESS_LAYER_H

#include "common/faults.h"

#define LAYER_NAME "process"
#define LAYER_PERCPU_SIZE 64

/* Every section except the statistics. */
#define LAYER_SECTIONS (((1 << VMI_SECTION_COUNT) - 1) & ~(1 << VMI_SECTION_STATS))

#define LAYER_FEATURES_CORE 0
#define LAYER_FEATURES_CPU 0
#define LAYER_FEATURES_MMU					\
	(VMI_MMU_FLUSH_SPACE | VMI_MMU_FILL_REPLACES |		\
	 VMI_MMU_NO_VECTORS | VMI_MMU_NO_VECTORS_2 |		\
	 VMI_MMU_FLUSH_KERNEL)
#define LAYER_FEATURES_APIC 0
#define LAYER_FEATURES_SMP 0
#if FAULT(CLOCK_PAGE_UNANNOUNCED)
#define LAYER_FEATURES_TIME 0
#else
#define LAYER_FEATURES_TIME VMI_TIME_PAGE_KEPT
#endif
#define LAYER_FEATURES_LOCK VMI_LOCK_RUN_STATES
#define LAYER_FEATURES_PATCH 0
#define LAYER_FEATURES_STATS 0
#define LAYER_FEATURES_LINE 0
#define LAYER_FEATURES_BUS 0

#define LAYER_ENTRY(section, call) thunk_##section##_##call

/* Privileged instructions do not work here: a site becomes a call, a jump, or nothing. */
#define PROCESS_RELOC_PRIMITIVE VMI_RELOC_CALL
#define PROCESS_RELOC_SYSV VMI_RELOC_CALL
#define PROCESS_RELOC_JUMP VMI_RELOC_JUMP

#if FAULT(WBINVD_STAYS)
#define PROCESS_RELOC_WBINVD VMI_RELOC_NONE
#else
#define PROCESS_RELOC_WBINVD VMI_RELOC_NOP
#endif

/* These do nothing on this hypervisor, or work as they are. */
#define LAYER_RELOC(S, s, N, n, num, class)			\
	.set layer_reloc, PROCESS_RELOC_##class;		\
	.if num == VMI_CALL_CPU_SWAPGS;				\
	.set layer_reloc, VMI_RELOC_NOP;			\
	.elseif num == VMI_CALL_CPU_IO_DELAY;			\
	.set layer_reloc, VMI_RELOC_NOP;			\
	.elseif num == VMI_CALL_CPU_WBINVD;			\
	.set layer_reloc, PROCESS_RELOC_WBINVD;			\
	.elseif num == VMI_CALL_CPU_PAUSE;			\
	.set layer_reloc, VMI_RELOC_NONE;			\
	.elseif num == VMI_CALL_CPU_READ_TSC;			\
	.set layer_reloc, VMI_RELOC_NONE;			\
	.endif

#endif
