/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Section time: counters and wall clock. Alarms are in alarm.c. */
#include "native.h"

u64 native_time_frequency(void)
{
	return FAULT(FREQUENCY_KHZ) ? native.tsc_hz / 1000 : native.tsc_hz;
}

void native_time_read(struct vmi_times *times)
{
	native_times(times);
#if FAULT(TIME_READ_SHARED)
	static volatile u64 last;

	last = times->real;
	for (int i = 0; i < 300; i++)
		cpu_pause();
	times->real = last;
	for (int i = 0; i < 300; i++)
		cpu_pause();
	times->available = last - times->stolen;
#endif
}

u64 native_time_wallclock(void)
{
	return native.wall_start + (FAULT(WALLCLOCK_STANDS) ? 0 : native_real_time());
}

int native_time_wallclock_updated(void)
{
	return FAULT(WALLCLOCK_UPDATED_ALWAYS);
}

int native_time_set_clock(struct vmi_clock *clock, u64 gpa)
{
	u32 sequence;

	if (!clock && !gpa)
		return 0; /* nothing updates the page */
	if (!clock || (u64)clock % sizeof(*clock) || ((u64)clock ^ gpa) & 0xfff)
		return -VMI_EINVAL;
	/* Readers see an odd sequence or all of it: this processor keeps its stores in order. */
	sequence = READ_ONCE(clock->sequence) | 1;
	WRITE_ONCE(clock->sequence, sequence);
	barrier();
	clock->flags = 1; /* valid on all vCPUs */
	clock->tsc = native.tsc_start;
	clock->real_ns = 0;
	clock->wall_ns = native.wall_start;
	clock->mult = native.mult;
	clock->shift = native.shift;
	if (FAULT(CLOCK_PAGE_FAST))
		clock->mult += clock->mult >> 4;
	barrier();
	WRITE_ONCE(clock->sequence, sequence + 1);
	return 0;
}
