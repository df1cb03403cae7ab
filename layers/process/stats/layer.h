/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Input of common/tables.inc for process-stats: what differs from calls/layer.h. */
#ifndef PROCESS_STATS_LAYER_H
#define PROCESS_STATS_LAYER_H

#include "calls/layer.h"
#include "common/counted.h"

/* Each vCPU's layer data are the counts. */
#define PROCESS_STATS_SIZE \
	((STATS_BYTES + VMI_PERCPU_ALIGN - 1) / VMI_PERCPU_ALIGN * VMI_PERCPU_ALIGN)

#ifdef __ASSEMBLER__
#undef LAYER_NAME
#define LAYER_NAME "process-stats"
#undef LAYER_PERCPU_SIZE
#define LAYER_PERCPU_SIZE PROCESS_STATS_SIZE
#undef LAYER_SECTIONS
#define LAYER_SECTIONS ((1 << VMI_SECTION_COUNT) - 1)
#undef LAYER_ENTRY
#define LAYER_ENTRY(section, call) counted_##section##_##call
#endif

#endif
