// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Halt polling.
 *
 * Two programs that answer each other on two vCPUs sleep and wake in turn. Each wake costs the
 * sender a host call and the sleeper the start of an idle processor, which together take longer
 * than what many programs do in between. A vCPU that looks for a moment before it sleeps saves
 * both.
 *
 * It only waits for other vCPUs: without one that runs, on another processor, nothing can come that
 * soon. How long it looks follows what came: it starts when another vCPU has ended a halt soon,
 * grows while such halts are longer than the looks, and shrinks with each longer one. What counts
 * is when the interrupt was sent: the start of an idle processor can take longer than the work of
 * the other side.
 *
 * A device's thread that looks for work on another processor (phv_device.looks) is waited for in
 * the same way, as long as it does not sleep: it bounds its looks itself.
 *
 * Time between two looks means that something else wants the processor, and has had to wait for it.
 * Then the vCPU sleeps at once for a number of halts, which doubles each time.
 */
#include "vcpu/poll.h"
#include "host/call.h"
#include "host/clock.h"
#include "state/cpu.h"
#include "state/state.h"

/* The first time to look and the longest, ns. A wake takes 15 us, and much more on a busy host. */
#define POLL_FIRST 10000
#define POLL_MOST 200000
/* Longer than an interrupt of the host between two looks, ns. */
#define POLL_GAP 20000
/* Halts without a look after such a gap, at first and at most. */
#define POLL_PAUSE 64
#define POLL_PAUSE_MOST 4096
/* The same where a device was waited for: it moves to this processor if that happens often. */
#define POLL_PAUSE_DEVICE 2
#define POLL_PAUSE_DEVICE_MOST 64
/* Looks until the other vCPUs are examined again. */
#define POLL_EXAMINE 16

/* One that was woken and waits for its processor runs soon. */
static bool runs(const struct vcpu *v)
{
	return READ_ONCE(v->s.state) == PHV_VCPU_RUNNING ||
	       READ_ONCE(v->run.state) == VMI_RUN_READY;
}

/* Does another vCPU run, and none of those that run on this one's processor? */
static bool others_run(const struct vcpu *v)
{
	u32 cpu = READ_ONCE(shared->s.vcpu_cpu[v->number]), i, count = shared->s.vcpu_count;
	bool one = false;

	if (cpu == 0xffffffff)
		return false;
	for (i = 0; i < count && i < PHV_MAX_VCPUS; i++) {
		if (i == v->number || !runs(vcpu_at(i)))
			continue;
		if (READ_ONCE(shared->s.vcpu_cpu[i]) == cpu)
			return false;
		one = true;
	}
	return one;
}

/* Does another vCPU run, or wait, on this one's processor? */
static bool shares(const struct vcpu *v, u32 cpu)
{
	u32 i, count = shared->s.vcpu_count;

	for (i = 0; i < count && i < PHV_MAX_VCPUS; i++)
		if (i != v->number && READ_ONCE(shared->s.vcpu_cpu[i]) == cpu && runs(vcpu_at(i)))
			return true;
	return false;
}

/* Does a device signal this vCPU? */
static bool signals(const struct phv_device *device, const struct vcpu *v)
{
	u32 route = READ_ONCE(device->route), place = route >> 8;

	if (place == PHV_ROUTE_NOTIFIER)
		place = READ_ONCE(device->notifier);
	return (route & 0xff) && place == v->number;
}

/* Does a device's thread look for work for this vCPU, on another processor? */
static bool devices_look(const struct vcpu *v)
{
	u32 cpu = READ_ONCE(shared->s.vcpu_cpu[v->number]), i, count = shared->s.device_count;

	if (cpu == 0xffffffff || shares(v, cpu))
		return false;
	for (i = 0; i < count && i < PHV_MAX_DEVICES; i++) {
		const struct phv_device *device = device_at(i);
		u32 looks = READ_ONCE(device->looks);

		if (looks && looks != cpu + 1 && !READ_ONCE(device->sleeping) && signals(device, v))
			return true;
	}
	return false;
}

/* Is there anything to wait for without a sleep? */
static bool others_may(const struct vcpu *v)
{
	return devices_look(v) || (v->poll_ns && others_run(v));
}

/*
 * A program of the host that answers the device may have been woken on this processor. False: the
 * processor was away for long.
 */
static bool give_way(struct vcpu *v, u64 before)
{
	u64 away;

	host0(sched_yield);
	v->poll_last = now_ns();
	away = v->poll_last - before;
	if (away > POLL_GAP)
		v->poll_lost += away;
	else
		v->poll_away += away;
	return away <= POLL_GAP;
}

bool poll_begin(struct vcpu *v)
{
	if (shared->s.flags & PHV_FLAG_NO_POLLS)
		return false;
	if (!others_may(v))
		return false;
	if (v->poll_pause) {
		v->poll_pause--;
		return false;
	}
	v->poll_start = now_ns();
	v->poll_last = v->poll_start;
	v->poll_lost = 0;
	v->poll_away = 0;
	v->poll_looks = 0;
	v->poll_device = !(v->poll_ns && others_run(v));
	WRITE_ONCE(v->s.polling, 1);
	return true;
}

bool poll_on(struct vcpu *v)
{
	u64 now;

	cpu_relax();
	now = now_ns();
	if (now - v->poll_last > POLL_GAP)
		v->poll_lost += now - v->poll_last;
	v->poll_last = now;
	if (v->poll_lost || now >= v->s.deadline_ns)
		return false;
	if (now - v->poll_start >= v->poll_ns &&
	    (now - v->poll_start >= POLL_MOST || !devices_look(v)))
		return false;
	if (++v->poll_looks % POLL_EXAMINE)
		return true;
	/* What comes meanwhile must not hide that it took long. */
	if (v->poll_device && !give_way(v, now))
		return false;
	return others_may(v);
}

static u32 at_most(u64 value, u32 most)
{
	return value < most ? (u32)value : most;
}

void poll_end(struct vcpu *v, bool won)
{
	struct thread *t = thread_of(v);
	u64 looked = v->poll_last - v->poll_start - v->poll_lost - v->poll_away;

	WRITE_ONCE(v->s.polling, 0);
	/* The thread's time that was no vCPU's: without it less would look stolen than was. */
	t->unsampled += looked * (shared->s.clock.tsc_hz / 1000000) / 1000;
	if (v->poll_lost && v->poll_device) {
		v->poll_device_backoff = at_most(v->poll_device_backoff ?
						 v->poll_device_backoff * 2ULL : POLL_PAUSE_DEVICE,
						 POLL_PAUSE_DEVICE_MOST);
		v->poll_pause = v->poll_device_backoff;
	} else if (v->poll_lost) {
		v->poll_backoff = at_most(v->poll_backoff ? v->poll_backoff * 2ULL : POLL_PAUSE,
					  POLL_PAUSE_MOST);
		v->poll_pause = v->poll_backoff;
	}
	if (won) {
		v->s.polls_won++;
		v->poll_backoff -= v->poll_backoff / 16;
		if (!v->poll_lost)
			v->poll_device_backoff /= 2;
	} else {
		v->s.polls_lost++;
	}
}

void poll_learn(struct vcpu *v, u64 begin, u64 kicked)
{
	if (kicked && ((s64)(kicked - begin) < 0 || cycles_ns(kicked - begin) < POLL_MOST))
		v->poll_ns = at_most(v->poll_ns ? v->poll_ns * 2ULL : POLL_FIRST, POLL_MOST);
	else if (v->poll_ns)
		v->poll_ns = v->poll_ns / 2 < POLL_FIRST ? 0 : v->poll_ns / 2;
}
