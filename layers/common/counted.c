/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The sums over all vCPUs of what common/counted.inc counts. */
#include "counted.h"

static u32 call_index(u32 call)
{
	static const u16 numbers[STATS_CALLS] = {
#define NUMBER(S, s, N, n, num, class, since) num,
		VMI_FOR_EACH_CALL(NUMBER)
	};
	u32 index = 0;

	while (index < STATS_CALLS && numbers[index] != call)
		index++;
	return index;
}

static void add(struct vmi_call_stats *sum, const struct vmi_call_stats *part)
{
	sum->calls += READ_ONCE(part->calls);
	sum->cycles += READ_ONCE(part->cycles);
	for (u32 i = 0; i < VMI_STATS_BUCKETS; i++)
		sum->buckets[i] += READ_ONCE(part->buckets[i]);
}

static void clear(struct vmi_call_stats *stats)
{
	WRITE_ONCE(stats->calls, 0);
	WRITE_ONCE(stats->cycles, 0);
	for (u32 i = 0; i < VMI_STATS_BUCKETS; i++)
		WRITE_ONCE(stats->buckets[i], 0);
}

int stats_sum(u32 call, struct vmi_call_stats *sum)
{
	u32 index = call_index(call);

	if (index == STATS_CALLS)
		return -VMI_ENOENT;
	clear(sum);
	add(sum, &stats_machine[index]);
	for (u32 vcpu = 0; vcpu < stats_vcpus(); vcpu++) {
		const struct vmi_call_stats *part = stats_of(vcpu);

		if (part)
			add(sum, &part[index]);
	}
	return 0;
}

void stats_clear(void)
{
	if (FAULT(STATS_RESET_NOTHING))
		return;
	for (u32 index = 0; index < STATS_CALLS; index++)
		clear(&stats_machine[index]);
	for (u32 vcpu = 0; vcpu < stats_vcpus(); vcpu++) {
		struct vmi_call_stats *part = stats_of(vcpu);

		for (u32 index = 0; part && index < STATS_CALLS; index++)
			clear(&part[index]);
	}
}
