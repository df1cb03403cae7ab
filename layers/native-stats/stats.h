/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Where the statistics are, for C and assembler. */
#ifndef NATIVE_STATS_H
#define NATIVE_STATS_H

#include "counted.h"
#include "percpu_size.h"

/* Each vCPU's layer data: the native layer's, then the counts. */
#define STATS_PERCPU_OFFSET NATIVE_PERCPU_SIZE
#define STATS_PERCPU_BYTES (STATS_PERCPU_OFFSET + STATS_BYTES)
#define STATS_PERCPU_SIZE \
	((STATS_PERCPU_BYTES + VMI_PERCPU_ALIGN - 1) / VMI_PERCPU_ALIGN * VMI_PERCPU_ALIGN)

#endif
