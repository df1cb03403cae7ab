// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Section stats. */
#include "calls/calls.h"
#include "stats/layer.h"

VMI_FOR_EACH_STATS_CALL(CALL_PROTOTYPE)

u32 stats_vcpus(void)
{
	return shared->s.vcpu_count;
}

/* The guest can write both pointers at any time. */
struct vmi_call_stats *stats_of(u32 vcpu)
{
	struct vmi_percpu *percpu = READ_ONCE(vcpu_at(vcpu)->percpu);
	u64 data;

	if (!percpu || !percpu_good((u64)percpu))
		return NULL;
	data = READ_ONCE(percpu->data);
	return data % 8 == 0 && kernel_data(data, STATS_BYTES) ? to_pointer(data) : NULL;
}

int process_stats_read(u32 call, struct vmi_call_stats *stats)
{
	return stats_sum(call, stats);
}

void process_stats_reset(void)
{
	stats_clear();
}
