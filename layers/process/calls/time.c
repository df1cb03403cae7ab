// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Section time: real, available and stolen time; alarms.
 *
 * Real time is the host's CLOCK_MONOTONIC through the time-stamp counter (the monitor keeps the factors right), from
 * core.init on. Stolen time is real time less thread CPU time while a thread is the vCPU and wants to run. A sample costs
 * one host call (about 170 ns), so a short stint is only added up for the thread's next sample: a thread that the host took
 * the CPU from does not have a short one. Between two stints, from the moment that the next thread, or the halted one, was told to
 * run until it does, time is stolen too if it is longer than a hand-over or a wake-up takes by itself. An alarm is the vCPU's: it sleeps to the deadline itself when it is halted, and the
 * monitor's alarm thread watches it while it runs, wherever that is.
 */
#include "calls/calls.h"
#include "host/host.h"
#include "vcpu/irq.h"
#include "mm/mmu.h"
#include "vcpu/space.h"

/* Shorter than any time slice that the host would give to somebody else, ns. */
#define STINT_SHORT 500000
/* Longer than a thread needs to begin once it was woken, on another CPU that slept too, ns. */
#define WAKE_LONG 100000

u64 cycles_ns(u64 cycles)
{
	const struct phv_clock *c = &shared->s.clock;

	return (u64)((u128)cycles * READ_ONCE(c->mult) >> (READ_ONCE(c->shift) & 63));
}

/* A consistent copy of the monitor's page; its sequence. */
static u32 clock_read(struct phv_clock *copy)
{
	const struct phv_clock *c = &shared->s.clock;
	u32 sequence;

	do {
		sequence = __atomic_load_n(&c->sequence, __ATOMIC_ACQUIRE);
		copy->tsc = READ_ONCE(c->tsc);
		copy->ns = READ_ONCE(c->ns);
		copy->mult = READ_ONCE(c->mult);
		copy->shift = READ_ONCE(c->shift) & 63;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while ((sequence & 1) || READ_ONCE(c->sequence) != sequence);
	return sequence;
}

/* The counter of another CPU may be a little behind that of the one which wrote the page: time waits there. */
static u64 clock_at(const struct phv_clock *c, u64 tsc)
{
	u64 passed = (s64)(tsc - c->tsc) > 0 ? tsc - c->tsc : 0;

	return c->ns + (u64)((u128)passed * c->mult >> c->shift);
}

u64 now_ns(void)
{
	const struct phv_clock *page = &shared->s.clock;
	struct phv_clock c;
	u32 sequence;
	u64 ns;

	/* The counter is read inside: who has seen a page has not read the counter later than the next one was written. */
	do {
		sequence = clock_read(&c);
		ns = clock_at(&c, rdtsc());
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (READ_ONCE(page->sequence) != sequence);
	return ns;
}

static u64 cpu_ns(void)
{
	struct host_timespec t;

	host2(clock_gettime, CLOCK_THREAD_CPUTIME_ID, &t);
	return (u64)t.sec * 1000000000 + (u64)t.nsec;
}

u64 tsc_at(u64 ns)
{
	u64 tsc = rdtsc_rough(), now = now_ns(), ago = now > ns ? now - ns : 0;

	/* Minutes at most: nothing overflows. */
	if (ago > 1ULL << 36)
		ago = 1ULL << 36;
	return tsc - ago * (shared->s.clock.tsc_hz / 1000000) / 1000;
}

void stint_begin(struct vcpu *v)
{
	u64 now = rdtsc_rough(), woken = v->woken;
	u64 waited = woken && (s64)(now - woken) > 0 ? cycles_ns(now - woken) : 0;

	if (waited > WAKE_LONG)
		v->s.stolen_ns += waited;
	v->stint_start = now;
	v->running = 1;
}

/* Takes a sample: what this thread was the vCPU for, less what it ran, was stolen. */
static void stint_sample(struct vcpu *v, u64 now)
{
	struct thread *t = thread_of(v);
	u64 cpu = cpu_ns(), ran = cpu - t->sampled_cpu, real = cycles_ns(t->unsampled + (now - v->stint_start));

	t->sampled_cpu = cpu;
	t->unsampled = 0;
	v->stint_start = now;
	if (real > ran)
		v->s.stolen_ns += real - ran;
}

void stint_end(struct vcpu *v)
{
	u64 now = rdtsc_rough(), length = now - v->stint_start;

	v->woken = now;
	if (!v->running)
		return;
	v->running = 0;
	if (cycles_ns(length) >= STINT_SHORT)
		stint_sample(v, now);
	else
		thread_of(v)->unsampled += length;
}

static void times(struct vcpu *v, struct vmi_times *t)
{
	u64 real = now_ns() - shared->start_ns, stolen;

	clock_follow();
	if (v->running)
		stint_sample(v, rdtsc_rough());
	stolen = v->s.stolen_ns;

	/* Available time never goes back either: stolen grows by at most what real time did. */
	if (real < v->last_real)
		real = v->last_real;
	if (stolen < v->last_stolen)
		stolen = v->last_stolen;
	if (stolen - v->last_stolen > real - v->last_real)
		stolen = v->last_stolen + (real - v->last_real);
	v->last_real = real;
	v->last_stolen = stolen;
	t->real = real;
	t->stolen = stolen;
	t->available = real - stolen;
}

/* Tells the alarm thread, and irq_wait, when to look again. */
static void deadline_set(struct vcpu *v, const struct vmi_times *t)
{
	u64 earliest = U64_MAX, at;
	u32 i;

	for (i = 0; i < 2; i++) {
		const struct alarm *a = &v->alarms[i];

		if (!a->armed || (v->alarm_fired & 1U << i))
			continue;
		at = a->expiry;
		if (i == VMI_TIME_AVAILABLE && at > t->available)
			at = at - t->available > U64_MAX / 2 ? U64_MAX / 2 : t->real + (at - t->available);
		at = at > U64_MAX / 2 ? U64_MAX : at + shared->start_ns;
		earliest = at < earliest ? at : earliest;
	}
	__atomic_store_n(&v->s.deadline_ns, earliest, __ATOMIC_SEQ_CST);
	if (earliest < __atomic_load_n(&shared->s.alarm_next_ns, __ATOMIC_SEQ_CST)) {
		__atomic_fetch_add(&shared->s.alarm_word, 1, __ATOMIC_SEQ_CST);
		futex_wake(&shared->s.alarm_word, 1);
	}
}

void alarm_check(struct vcpu *v)
{
	struct vmi_times t;
	bool fired = false;
	u32 i;

	times(v, &t);
	for (i = 0; i < 2; i++) {
		const struct alarm *a = &v->alarms[i];

		if (!a->armed || (v->alarm_fired & 1U << i))
			continue;
		if (a->expiry <= (i == VMI_TIME_REAL ? t.real : t.available)) {
			v->alarm_fired |= 1U << i;
			fired = true;
		}
	}
	if (fired)
		irq_request(v, v->alarm_vector);
	tlb_age(v, rdtsc_rough());
	deadline_set(v, &t);
}

u64 process_time_frequency(void)
{
	return shared->s.clock.tsc_hz;
}

void process_time_read(struct vmi_times *t)
{
	struct vmi_times sample;

	times(this_vcpu(), &sample);
	*t = sample;
}

u64 process_time_wallclock(void)
{
	return now_ns() + READ_ONCE(shared->s.wall_offset_ns);
}

int process_time_wallclock_updated(void)
{
	struct vcpu *v = vcpu_at(0);
	u32 updates = READ_ONCE(shared->s.wall_updates);

	return __atomic_exchange_n(&v->wall_seen, updates, __ATOMIC_RELAXED) != updates;
}

/*
 * The guest's clock page says what the monitor's says, in the guest's terms. Its readers wait while the sequence is odd. It is
 * written through the direct map: where else the kernel shows it, or no longer, does not matter. Under the lock.
 */
static void clock_write(struct vmi_clock *page)
{
	struct phv_clock c;

	shared->guest_clock_sequence = clock_read(&c);
	shared->guest_clock_wall = READ_ONCE(shared->s.wall_offset_ns);
	/* From before core.init, when real time began. */
	if (c.ns < shared->start_ns) {
		u64 now = rdtsc();

		c.ns = clock_at(&c, now);
		c.tsc = now;
	}
	/* 32 bits in the guest's page; a counter below 1 GHz needs more, and loses those at the end. */
	while (c.mult >> 32 && c.shift) {
		c.mult >>= 1;
		c.shift--;
	}
	WRITE_ONCE(page->sequence, page->sequence | 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	WRITE_ONCE(page->flags, 1);
	WRITE_ONCE(page->tsc, c.tsc);
	WRITE_ONCE(page->real_ns, c.ns - shared->start_ns);
	WRITE_ONCE(page->wall_ns, shared->start_ns + shared->guest_clock_wall);
	WRITE_ONCE(page->mult, (u32)c.mult);
	WRITE_ONCE(page->shift, c.shift);
	__atomic_store_n(&page->sequence, page->sequence + 1, __ATOMIC_RELEASE);
}

void clock_follow(void)
{
	struct vmi_clock *page;

	if (!READ_ONCE(shared->guest_clock) ||
	    (READ_ONCE(shared->guest_clock_sequence) == READ_ONCE(shared->s.clock.sequence) &&
	     READ_ONCE(shared->guest_clock_wall) == READ_ONCE(shared->s.wall_offset_ns)))
		return;
	/* Somebody else is at it: this vCPU looks again soon enough. */
	if (!lock_try(&shared->clock_lock))
		return;
	page = guest_ram(shared->guest_clock);
	if (shared->guest_clock && page)
		clock_write(page);
	lock_release(&shared->clock_lock);
}

int process_time_set_clock(struct vmi_clock *clock, u64 gpa)
{
	if (!clock && !gpa) {
		lock_take(&shared->clock_lock);
		shared->guest_clock = 0;
		lock_release(&shared->clock_lock);
		return 0;
	}
	if (((u64)clock & 63) || (((u64)clock ^ gpa) & (PAGE_SIZE - 1)) || !guest_ram(gpa))
		return -VMI_EINVAL;
	lock_take(&shared->clock_lock);
	shared->guest_clock = gpa;
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
