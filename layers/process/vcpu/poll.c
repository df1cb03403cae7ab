// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Halt polling.
 *
 * Two programs that answer each other on two vCPUs sleep and wake in turn. Each wake costs the
 * sender a host call and the sleeper the start of an idle processor, which together take longer
 * than what many programs do in between. A vCPU that looks for a moment before it sleeps saves
 * both.
 *
 * It only polls for other vCPUs: if none runs on another processor, no event can arrive that soon.
 * The time to poll adapts. It starts when another vCPU has ended a halt soon, grows while such
 * halts are longer than the polls, and shrinks with each halt that is too long for a poll. The time
 * at which the interrupt was sent counts: the start of an idle processor can take longer than the
 * work of the other side.
 *
 * The vCPU also polls for a device's thread that looks for work on another processor
 * (phv_device.looks), as long as that thread does not sleep: it bounds its looks itself.
 *
 * A gap between two looks means that another program wants the processor, and had to wait for it. A
 * vCPU that waits for a device yields, since the program that answers may be on its processor. So a
 * gap counts there only if an interrupt arrived in it and had to wait, or if it is longer than any
 * answer takes. In either case the vCPU sleeps at once for a number of halts, which doubles each
 * time: a time slice of another program costs as much as a hundred looks win.
 */
#include "vcpu/poll.h"
#include "host/call.h"
#include "host/clock.h"
#include "state/cpu.h"
#include "state/state.h"

/* The first time to look and the longest, ns. A wake takes 15 us, and much more on a busy host. */
#define POLL_FIRST 10000
#define POLL_MOST 200000
/*
 * Longer than an interrupt of the host between two looks, or from an interrupt for the vCPU to the
 * look that finds it, ns.
 */
#define POLL_GAP 20000
/* Halts without a look after such a gap, at first and at most. */
#define POLL_PAUSE 64
#define POLL_PAUSE_MOST 4096
/* Looks until the other vCPUs are examined again. */
#define POLL_EXAMINE 16

/* One that was woken and waits for its processor runs soon, also if it was woken as it polled. */
static bool runs(const struct vcpu *v)
{
	return READ_ONCE(v->s.state) == PHV_VCPU_RUNNING ||
	       READ_ONCE(v->run.state) == VMI_RUN_READY ||
	       (READ_ONCE(v->s.polling) && READ_ONCE(v->woken));
}

/* The other vCPUs that run. */
enum others {
	OTHERS_NONE,
	OTHERS_APART,		/* on other processors than this one's */
	OTHERS_HERE,		/* at least one on this one's processor, or waits for it */
};

static enum others others(const struct vcpu *v, u32 cpu)
{
	enum others found = OTHERS_NONE;
	u32 i, count = shared->s.vcpu_count;

	for (i = 0; i < count && i < PHV_MAX_VCPUS; i++) {
		if (i == v->number || !runs(vcpu_at(i)))
			continue;
		if (READ_ONCE(shared->s.vcpu_cpu[i]) == cpu)
			return OTHERS_HERE;
		found = OTHERS_APART;
	}
	return found;
}

/* Does a device signal this vCPU? */
static bool signals(const struct phv_device *device, const struct vcpu *v)
{
	u32 route = READ_ONCE(device->route), place = route >> 8;

	if (place == PHV_ROUTE_NOTIFIER)
		place = READ_ONCE(device->notifier);
	return (route & 0xff) && (place == v->number || FAULT(POLL_ANY_DEVICE));
}

/* Does a device's thread look for work for this vCPU, on another processor? */
static bool devices_look(const struct vcpu *v, u32 cpu)
{
	u32 i, count = shared->s.device_count;

	for (i = 0; i < count && i < PHV_MAX_DEVICES; i++) {
		const struct phv_device *device = device_at(i);
		u32 looks = READ_ONCE(device->looks);

		if (looks && looks != cpu + 1 && !READ_ONCE(device->sleeping) && signals(device, v))
			return true;
	}
	return false;
}

/* What a vCPU that has polled for some ns may wait for without a sleep. */
enum awaited {
	AWAITED_NOTHING,
	AWAITED_DEVICE,
	AWAITED_VCPU,
};

static enum awaited awaited(const struct vcpu *v, u64 looked)
{
	u32 cpu = READ_ONCE(shared->s.vcpu_cpu[v->number]);
	enum others found;

	if (cpu == 0xffffffff || looked >= POLL_MOST)
		return AWAITED_NOTHING;
	found = others(v, cpu);
	if (found == OTHERS_HERE && !FAULT(POLL_ON_SHARED))
		return AWAITED_NOTHING;
	if (found == OTHERS_APART && looked < v->poll_ns)
		return AWAITED_VCPU;
	return devices_look(v, cpu) ? AWAITED_DEVICE : AWAITED_NOTHING;
}

/*
 * Notes the time since the last look. False: it was so long that others keep the processor busy. A
 * program that answers a device may have it for as long as that is waited for.
 */
static bool passed(struct vcpu *v, u64 now)
{
	u64 gap = now - v->poll_last;

	v->poll_last = now;
	if (gap <= POLL_GAP)
		return true;
	v->poll_away += gap;
	if (v->poll_device && !FAULT(POLL_ANY_GAP))
		v->poll_lost = gap > POLL_MOST && !FAULT(POLL_SLICES_UNSEEN);
	else
		v->poll_lost = !FAULT(POLL_GAP_UNSEEN);
	return !v->poll_lost;
}

/* The time that another program had then was no look's. A gap is for passed(). */
static void give_way(struct vcpu *v, u64 before)
{
	u64 now;

	host0(sched_yield);
	now = now_ns();
	if (now - before > POLL_GAP)
		return;
	v->poll_away += now - before;
	v->poll_last = now;
}

/* For how long what ended the looks has waited for this processor, ns. */
static u64 late(const struct vcpu *v)
{
	u64 told = READ_ONCE(v->s.told), kicked = READ_ONCE(v->woken), now = rdtsc();

	if (!told || (kicked && (s64)(kicked - told) < 0))
		told = kicked;
	return told && (s64)(now - told) > 0 ? cycles_ns(now - told) : 0;
}

bool poll_begin(struct vcpu *v)
{
	enum awaited what;

	if (!heuristic(PHV_FLAG_NO_POLLS))
		return false;
	what = awaited(v, 0);
	if (what == AWAITED_NOTHING)
		return false;
	if (v->poll_pause) {
		v->poll_pause--;
		return false;
	}
	v->poll_start = now_ns();
	v->poll_last = v->poll_start;
	v->poll_lost = false;
	v->poll_away = 0;
	v->poll_looks = 0;
	v->poll_device = what == AWAITED_DEVICE;
	WRITE_ONCE(v->s.told, 0);
	WRITE_ONCE(v->s.polling, 1);
	return true;
}

bool poll_on(struct vcpu *v)
{
	u64 now, looked;
	bool examine;

	cpu_relax();
	now = now_ns();
	if (!passed(v, now) || now >= v->s.deadline_ns)
		return false;
	looked = now - v->poll_start;
	examine = !(++v->poll_looks % POLL_EXAMINE);
	if (!examine && looked < v->poll_ns)
		return true;
	if (awaited(v, looked) == AWAITED_NOTHING)
		return false;
	/* A program that answers the device may have been woken on this processor. */
	if (examine && v->poll_device && !FAULT(POLL_KEEPS_PROCESSOR))
		give_way(v, now);
	return true;
}

static u32 at_most(u64 value, u32 most)
{
	return value < most ? (u32)value : most;
}

/* Looks have cost more than they won. */
static void rest(struct vcpu *v)
{
	if (!v->poll_backoff)
		v->poll_backoff = POLL_PAUSE;
	else if (!FAULT(POLL_PAUSE_STAYS))
		v->poll_backoff = at_most(v->poll_backoff * 2ULL, POLL_PAUSE_MOST);
	v->poll_pause = v->poll_backoff;
}

void poll_end(struct vcpu *v, bool won)
{
	struct thread *t = thread_of(v);
	u64 looked;

	WRITE_ONCE(v->s.polling, 0);
	/* An event that arrived during the poll had to wait. A won poll must not hide that. */
	if (won && v->poll_device && passed(v, now_ns()))
		v->poll_lost = late(v) > POLL_GAP && !FAULT(POLL_LATE_UNSEEN);
	looked = v->poll_last - v->poll_start - v->poll_away;
	/* The thread's time that was no vCPU's: without it less would look stolen than was. */
	t->unsampled += looked * (shared->s.clock.tsc_hz / 1000000) / 1000;
	if (v->poll_lost)
		rest(v);
	else if (won)
		v->poll_backoff -= v->poll_backoff / 16;
	if (won)
		v->s.polls_won++;
	else
		v->s.polls_lost++;
}

void poll_learn(struct vcpu *v, u64 begin, u64 kicked)
{
	if (kicked && ((s64)(kicked - begin) < 0 || cycles_ns(kicked - begin) < POLL_MOST))
		v->poll_ns = at_most(v->poll_ns ? v->poll_ns * 2ULL : POLL_FIRST, POLL_MOST);
	else if (v->poll_ns)
		v->poll_ns = v->poll_ns / 2 < POLL_FIRST ? 0 : v->poll_ns / 2;
}
