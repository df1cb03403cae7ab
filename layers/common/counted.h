/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* What the entries of common/counted.inc have counted, for C and assembler. */
#ifndef LAYER_COUNTED_H
#define LAYER_COUNTED_H

#include <paravane/vmi.h>

#define STATS_ONE(S, s, N, n, num, class, since) +1
/* Calls are numbered from 0 in the order of VMI_FOR_EACH_CALL. */
#define STATS_CALLS (0 VMI_FOR_EACH_CALL(STATS_ONE))

/* Bytes of a vCPU: struct vmi_call_stats for each call. */
#define STATS_BYTES (STATS_CALLS * VMI_SIZE_CALL_STATS)

#ifndef __ASSEMBLER__
#include "types.h"

/* Counts of jumps and of calls with any GS base. */
extern struct vmi_call_stats stats_machine[STATS_CALLS];

/* The layer's: how many vCPUs there may be, and the counts of one; NULL if it has none yet. */
u32 stats_vcpus(void);
struct vmi_call_stats *stats_of(u32 vcpu);

/* stats.read: 0, or -VMI_ENOENT if there is no such call */
int stats_sum(u32 call, struct vmi_call_stats *sum);
/* stats.reset */
void stats_clear(void);
#endif

#endif
