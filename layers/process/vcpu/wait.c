// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Waits of a vCPU. */
#include "vcpu/wait.h"
#include "common/faults.h"
#include "host/call.h"
#include "host/clock.h"
#include "host/futex.h"
#include "host/step.h"
#include "state/cpu.h"
#include "state/event.h"
#include "state/state.h"
#include "vcpu/alarm.h"
#include "vcpu/guest_clock.h"
#include "vcpu/idle.h"
#include "vcpu/irq.h"
#include "vcpu/poll.h"
#include "vcpu/slice.h"
#include "vcpu/wake_clock.h"

/* A sleep that is long enough for trimming processes first, ns. */
#define SLEEP_LONG 500000000

static void announce(struct vcpu *v)
{
	v->run.state = VMI_RUN_HALTED;
	v->s.state = PHV_VCPU_HALTED;
	fence();
	step();
}

/* Drops a moment in `woken` that was set for work which is done, such as a flush. */
static void forget(struct vcpu *v, u64 woken)
{
	if (woken && !FAULT(FLUSH_IS_STOLEN))
		__atomic_compare_exchange_n(&v->woken, &woken, 0, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
}

/*
 * Whatever wakes the vCPU: after the deadline it wants to run since then, or since the halt if that
 * was later.
 */
static bool due(struct vcpu *v, u64 begin)
{
	u64 deadline = v->s.deadline_ns, late;

	if (deadline == U64_MAX || now_ns() < deadline)
		return false;
	late = tsc_at(deadline);
	vcpu_woken(v, late > begin ? late : begin);
	return true;
}

/* A halt. */
struct halt {
	u64 begin;	/* TSC */
	bool kick;	/* a kick ends it, too */
	bool enabled;	/* interrupts end it */
	bool alarm;	/* it has lasted until the deadline */
};

/*
 * The alarm that irq_refresh() finds reads the times, and later stolen time can grow only with real
 * time (times()). So what the vCPU has waited must be known before, also where it has not slept: a
 * host likes to take a processor away at the end of a host call, and slice_end() makes one.
 */
static bool something(struct vcpu *v, struct halt *h)
{
	irq_serve_flush(v);
	if (READ_ONCE(v->s.pending)) {
		h->alarm |= due(v, h->begin);
		irq_refresh(v);
	}
	if (h->kick && __atomic_exchange_n(&v->s.kick, 0, __ATOMIC_SEQ_CST))
		return true;
	if (FAST(v, F_FORCE) & FORCE_EVENT)
		return true;
	return h->enabled && irq_next(v) >= 0;
}

/* Looks for an interrupt for a moment, if that is worth while. */
static void look(struct vcpu *v, struct halt *h)
{
	bool won = false;

	if (!poll_begin(v))
		return;
	announce(v);
	/* Other vCPUs read it: this one has a processor, so a wake starts none. */
	WRITE_ONCE(v->run.state, VMI_RUN_RUNNING);
	do
		won = something(v, h);
	while (!won && poll_on(v));
	poll_end(v, won);
}

/* Sleeps until the word changes or the deadline passes. Reads no clock. */
static s64 sleep(struct vcpu *v, u32 word, u64 deadline)
{
	s64 ended;

	WRITE_ONCE(v->asleep, rdtsc_rough());
	ended = futex_wait(&v->s.wait_word, word, deadline);
	step();
	wake_clock(v);
	return ended;
}

void irq_wait(struct vcpu *v, bool kick, bool enabled)
{
	struct halt h = { .kick = kick, .enabled = enabled };
	u64 deadline, woken, trim_at = U64_MAX;
	bool polls = enabled && !kick, slept = false;
	struct vmi_times unused;
	u32 word;

	v->s.halts++;
	event(v, PHV_EVENT_HALT, v->s.deadline_ns, enabled);
	slice_end(v);
	h.begin = v->woken;
	v->woken = 0;
	deadline = v->s.deadline_ns;
	if (enabled && !READ_ONCE(v->s.pending) &&
	    (deadline == U64_MAX || deadline > now_ns() + SLEEP_LONG))
		trim_at = idle_trim(v);
	if (polls)
		look(v, &h);
	for (;;) {
		word = READ_ONCE(v->s.wait_word);
		/* A sender sets it after what is pending: something() sees that, if it is new. */
		woken = READ_ONCE(v->woken);
		/* S1 and S2 of host/doorbell.h; something() is S3. */
		announce(v);
		if (something(v, &h))
			break;
		forget(v, woken);
		step();
		slept = true;
		deadline = v->s.deadline_ns;
		if (trim_at < deadline) {
			if (sleep(v, word, trim_at) == -HOST_ETIMEDOUT)
				trim_at = idle_trim(v);
			continue;
		}
		if (sleep(v, word, deadline) == -HOST_ETIMEDOUT)
			__atomic_fetch_or(&v->s.pending, PHV_PENDING_ALARM, __ATOMIC_SEQ_CST);
	}
	if (polls && slept)
		poll_learn(v, h.begin, h.alarm ? 0 : v->woken);
	v->s.state = PHV_VCPU_RUNNING;
	if (!FAULT(RUN_STATE_STAYS_HALTED))
		v->run.state = VMI_RUN_RUNNING;
	fence();
	event(v, PHV_EVENT_WAKE, READ_ONCE(v->s.pending), 0);
	/* With an interrupt, the guest may first read what was stolen. */
	if (slice_begin(v))
		times(v, &unused);
	clock_follow();
	irq_refresh(v);
}
