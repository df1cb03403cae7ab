/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The statistics layer for common/header.S: assembler only. */
#ifndef STATS_LAYER_H
#define STATS_LAYER_H

#include "features.h"
#include "stats.h"

#define LAYER_NAME "native-stats"
#define LAYER_PERCPU_SIZE STATS_PERCPU_SIZE

#define LAYER_SECTIONS								\
	(((1 << VMI_SECTION_COUNT) - 1) & ~(1 << VMI_SECTION_LINE | 1 << VMI_SECTION_BUS))

#define LAYER_ENTRY(s, n) counted_##s##_##n

/*
 * Every site calls, in order to be counted, except swapgs: a call there would measure a kernel's
 * entry and exit code while it has no GS base that it can trust. Locks a kernel had better do in
 * its own way.
 */
#define LAYER_RELOC(S, s, N, n, num, class)		\
	.set layer_reloc, LAYER_RELOC_##class;		\
	.if num == VMI_CALL_CPU_SWAPGS ||		\
	    num >> 8 == VMI_SECTION_LOCK;		\
	.set layer_reloc, VMI_RELOC_NONE;		\
	.endif
#define LAYER_RELOC_PRIMITIVE VMI_RELOC_CALL
#define LAYER_RELOC_SYSV VMI_RELOC_CALL
#define LAYER_RELOC_JUMP VMI_RELOC_JUMP

#endif
