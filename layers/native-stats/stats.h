/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Where the statistics are, for C and assembler. */
#ifndef NATIVE_STATS_H
#define NATIVE_STATS_H

#include <paravane/vmi.h>

#include "percpu_size.h"

#define STATS_ONE(S, s, N, n, num, class, since) +1
/* Calls are numbered from 0 in the order of VMI_FOR_EACH_CALL. */
#define STATS_CALLS (0 VMI_FOR_EACH_CALL(STATS_ONE))

/* Each vCPU's layer data: the native layer's, then struct vmi_call_stats for each call. */
#define STATS_PERCPU_OFFSET NATIVE_PERCPU_SIZE
#define STATS_PERCPU_BYTES (STATS_PERCPU_OFFSET + STATS_CALLS * VMI_SIZE_CALL_STATS)
#define STATS_PERCPU_SIZE \
	((STATS_PERCPU_BYTES + VMI_PERCPU_ALIGN - 1) / VMI_PERCPU_ALIGN * VMI_PERCPU_ALIGN)

#endif
