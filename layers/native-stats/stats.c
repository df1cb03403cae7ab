/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Section stats, and the start of counting. counted.S counts. */
#include "native.h"
#include "stats.h"

vmi_core_init_fn counted_core_init;
vmi_stats_reset_fn counted_stats_reset;

/* Counts of jumps and of calls with any GS base. */
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

static struct vmi_call_stats *vcpu_stats(u32 vcpu)
{
	u8 *data = (u8 *)native_other(vcpu);

	return data ? (struct vmi_call_stats *)(data + STATS_PERCPU_OFFSET) : NULL;
}

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

int native_stats_read(u32 call, struct vmi_call_stats *stats)
{
	u32 index = call_index(call);

	if (index == STATS_CALLS)
		return -VMI_ENOENT;
	clear(stats);
	add(stats, &stats_machine[index]);
	for (u32 vcpu = 0; vcpu < native.vcpu_count; vcpu++) {
		const struct vmi_call_stats *part = vcpu_stats(vcpu);

		if (part)
			add(stats, &part[index]);
	}
	return 0;
}

void counted_stats_reset(void)
{
	if (FAULT(STATS_RESET_NOTHING))
		return;
	for (u32 index = 0; index < STATS_CALLS; index++)
		clear(&stats_machine[index]);
	for (u32 vcpu = 0; vcpu < native.vcpu_count; vcpu++) {
		struct vmi_call_stats *part = vcpu_stats(vcpu);

		for (u32 index = 0; part && index < STATS_CALLS; index++)
			clear(&part[index]);
	}
}
