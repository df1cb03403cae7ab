// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Run slices: the time for which a thread owns the vCPU, and what of it was stolen. */
#include "vcpu/slice.h"
#include "host/call.h"
#include "host/clock.h"
#include "state/cpu.h"
#include "state/state.h"

/* Shorter than any time slice that the host would give to another thread, ns. */
#define SLICE_SHORT 500000
/* Longer than a woken thread needs to start, on another CPU that slept too, ns. */
#define WAKE_LONG 100000

static u64 cpu_ns(void)
{
	struct host_timespec t;

	host2(clock_gettime, CLOCK_THREAD_CPUTIME_ID, &t);
	return (u64)t.sec * 1000000000 + (u64)t.nsec;
}

static u64 waited(const struct vcpu *v, u64 now)
{
	u64 woken = READ_ONCE(v->woken);
	u64 ns = woken && (s64)(now - woken) > 0 ? cycles_ns(now - woken) : 0;

	return ns > WAKE_LONG ? ns : 0;
}

u64 slice_waited(const struct vcpu *v)
{
	return waited(v, rdtsc_rough());
}

bool slice_begin(struct vcpu *v)
{
	u64 now = rdtsc_rough(), stolen = waited(v, now);

	v->s.stolen_ns += stolen;
	v->slice_start = now;
	v->running = 1;
	return stolen;
}

/* Takes a sample: the time as the owner less the thread's CPU time was stolen. */
void slice_sample(struct vcpu *v, u64 now)
{
	struct thread *t = thread_of(v);
	u64 cpu = cpu_ns(), ran = cpu - t->sampled_cpu,
		real = cycles_ns(t->unsampled + (now - v->slice_start));

	t->sampled_cpu = cpu;
	t->unsampled = 0;
	v->slice_start = now;
	if (real > ran)
		v->s.stolen_ns += real - ran;
}

void slice_end(struct vcpu *v)
{
	u64 now = rdtsc_rough(), length = now - v->slice_start;

	v->woken = now;
	if (!v->running)
		return;
	v->running = 0;
	if (cycles_ns(length) >= SLICE_SHORT)
		slice_sample(v, now);
	else
		thread_of(v)->unsampled += length;
}
