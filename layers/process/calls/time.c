// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Section time: real, available and stolen time; alarms.
 *
 * Real time is the machine's clock since core.init: the host's CLOCK_MONOTONIC and the suspends of
 * the host in which the time-stamp counter went on. It is computed from the counter with factors
 * that the monitor corrects. Stolen time is real time minus thread CPU time, while a thread owns
 * the vCPU and wants to run. A sample costs one host call (about 170 ns), so a short run slice is
 * only added up for the thread's next sample: if the host took the CPU away, the slice is not
 * short. The time between two slices, from the wake-up of the next thread or of the halted one
 * until it runs, is stolen too if it is longer than a hand-over or a wake-up takes.
 *
 * An alarm belongs to the vCPU. A halted vCPU sleeps until the deadline by itself. While it runs,
 * in whatever process, the monitor's alarm thread watches the deadline.
 */
#include "calls/calls.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "host/clock.h"
#include "host/lock.h"
#include "state/state.h"
#include "vcpu/alarm.h"
#include "vcpu/guest_clock.h"
#include "vcpu/irq.h"

u64 process_time_frequency(void)
{
	return shared->s.clock.tsc_hz;
}

void process_time_read(struct vmi_times *t)
{
	struct vmi_times sample;

	times(this_vcpu(), &sample);
	if (FAULT(RUN_STATE_AS_READ))
		WRITE_ONCE(this_vcpu()->run.stolen, sample.stolen);
	*t = sample;
}

u64 process_time_wallclock(void)
{
	static u64 first;

	if (FAULT(WALLCLOCK_IGNORES_STEPS)) {
		first = first ? first : READ_ONCE(shared->s.wall_offset_ns);
		return now_ns() + first;
	}
	return now_ns() + READ_ONCE(shared->s.wall_offset_ns);
}

int process_time_wallclock_updated(void)
{
	struct vcpu *v = vcpu_at(0);
	u32 updates = READ_ONCE(shared->s.wall_updates);

	/* A kernel may ask at each alarm. That writes nothing that another vCPU reads. */
	if (READ_ONCE(v->wall_seen) == updates || FAULT(WALLCLOCK_UPDATED_NEVER))
		return 0;
	return __atomic_exchange_n(&v->wall_seen, updates, __ATOMIC_RELAXED) != updates;
}

int process_time_set_clock(struct vmi_clock *clock, u64 gpa)
{
	if (!clock && !gpa) {
		lock_take(&shared->clock_lock);
		shared->guest_clock = 0;
		shared->s.clock_page = 0;
		lock_release(&shared->clock_lock);
		return 0;
	}
	if (((u64)clock & 63) || (((u64)clock ^ gpa) & (PAGE_SIZE - 1)) || !guest_ram(gpa))
		return -VMI_EINVAL;
	lock_take(&shared->clock_lock);
	shared->guest_clock = gpa;
	shared->s.clock_page = !FAULT(CLOCK_PAGE_ASLEEP);
	clock_write(guest_ram(gpa));
	lock_release(&shared->clock_lock);
	return 0;
}

int process_time_set_alarm(u32 flags, u64 expiry, u64 period, u32 vector)
{
	struct vcpu *v = this_vcpu();
	u32 counter = flags & 0xff;
	struct alarm *a;

	if ((flags & ~(0xffU | VMI_ALARM_PERIODIC)) || counter > VMI_TIME_STOLEN)
		return -VMI_EINVAL;
	if (vector < VMI_VECTOR_MIN || vector > VMI_VECTOR_MAX)
		return -VMI_EINVAL;
	if (flags & VMI_ALARM_PERIODIC ? period < VMI_ALARM_MIN_PERIOD_NS : period != 0)
		return -VMI_EINVAL;
	if (counter == VMI_TIME_STOLEN)
		return 0;
	a = &v->alarms[counter];
	a->armed = 1;
	a->periodic = (flags & VMI_ALARM_PERIODIC) != 0;
	a->expiry = expiry;
	a->period = period;
	v->alarm_vector = vector;
	v->alarm_fired &= ~(1U << counter);
	alarm_check(v);
	irq_refresh(v);
	return 0;
}

int process_time_cancel_alarm(u32 counter)
{
	struct vcpu *v = this_vcpu();
	struct vmi_times t;
	int was;

	if (counter > VMI_TIME_STOLEN)
		return -VMI_EINVAL;
	if (counter == VMI_TIME_STOLEN)
		return 0;
	was = v->alarms[counter].armed != 0;
	v->alarms[counter].armed = 0;
	v->alarm_fired &= ~(1U << counter);
	times(v, &t);
	deadline_set(v, &t);
	return was;
}

u64 process_time_ack_alarm(void)
{
	struct vcpu *v = this_vcpu();
	struct vmi_times t;
	u64 fired = v->alarm_fired;
	u32 i;

	times(v, &t);
	v->alarm_fired = 0;
	for (i = 0; i < 2; i++) {
		struct alarm *a = &v->alarms[i];
		u64 now = i == VMI_TIME_REAL ? t.real : t.available;

		if (!(fired & 1U << i))
			continue;
		if (!a->periodic)
			a->armed = 0;
		else if (now >= a->expiry)
			a->expiry += ((now - a->expiry) / a->period + 1) * a->period;
	}
	alarm_check(v);
	irq_refresh(v);
	return fired;
}
