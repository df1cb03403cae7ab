/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Section stats, and the start of counting. counted.S counts. */
#include "native.h"
#include "stats.h"

vmi_core_init_fn counted_core_init;
vmi_stats_reset_fn counted_stats_reset;

struct vmi_call_stats stats_machine[STATS_CALLS];

bool stats_ready;
u64 stats_gs_offset;

int counted_core_init(struct vmi_init *init)
{
	int error = native_core_init(init);

	if (!error) {
		stats_gs_offset = native.percpu_gs_offset;
		barrier();
		WRITE_ONCE(stats_ready, true);
	}
	return error;
}

u32 stats_vcpus(void)
{
	return native.vcpu_count;
}

struct vmi_call_stats *stats_of(u32 vcpu)
{
	u8 *data = (u8 *)native_other(vcpu);

	return data ? (struct vmi_call_stats *)(data + STATS_PERCPU_OFFSET) : NULL;
}

int native_stats_read(u32 call, struct vmi_call_stats *stats)
{
	return stats_sum(call, stats);
}

void counted_stats_reset(void)
{
	stats_clear();
}
