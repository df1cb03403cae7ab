// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Whether the machine's clock is still the host's when a vCPU wakes up.
 *
 * The monitor seldom corrects the clock while the machine is idle. If the host's clock has got
 * another rate since, the clock is wrong. So a vCPU that wakes up compares the two, at
 * most every CHECK_NS in the whole machine, which costs it a host call. If the clock is wrong, the
 * vCPU wakes the monitor and waits.
 *
 * The monitor can set back a clock that is ahead only if nothing can notice: all vCPUs have slept
 * for longer than the difference, and none reads the clock before the correction. A vCPU that wakes
 * up clears `asleep` under the lock. Where it needs no comparison, it clears `asleep`, and then
 * looks for the lock; the holder of the lock then looks for vCPUs that are awake. So either the
 * holder sees that the other vCPU is awake, or that one waits for the lock before it reads the
 * clock.
 *
 * Only the monitor writes the clock. clock_wanted has the vCPU's request. One compare and exchange
 * ends it: the monitor claims it, or the vCPU takes it back. After a claim the vCPU waits for the
 * end of the correction, which takes as long as any change of the clock. Readers of the clock wait
 * for that, too.
 */
#include "vcpu/wake_clock.h"
#include "common/faults.h"
#include "host/call.h"
#include "host/clock.h"
#include "host/doorbell.h"
#include "host/futex.h"
#include "host/lock.h"
#include "host/step.h"
#include "state/cpu.h"
#include "state/state.h"
#include "vcpu/guest_clock.h"

/* The time between two comparisons, ns. */
#define CHECK_NS 20000000
/* An error that is left to the monitor, ns: its own FAR_OFF. */
#define WRONG_NS 15000
/*
 * For how long a vCPU waits for the monitor's claim, ns: the monitor may have no processor. A host
 * that is a virtual machine itself can take milliseconds for each of the two wake-ups.
 */
#define CLAIM_NS 20000000

static u64 check_counts(void)
{
	return shared->s.clock.tsc_hz / (1000000000 / CHECK_NS);
}

/* A comparison may have ended after this vCPU read the counter. */
static bool recent(u64 checked, u64 now)
{
	return now - checked + check_counts() < 2 * check_counts();
}

static u64 host_ns(void)
{
	struct host_timespec t;

	host2(clock_gettime, CLOCK_MONOTONIC, &t);
	return (u64)t.sec * 1000000000 + (u64)t.nsec;
}

/* By how much the clock is wrong, apart from what may pass between the readings, ns. */
static u64 error(void)
{
	u64 before = now_ns(), host = host_ns() + READ_ONCE(shared->s.ahead_ns), after = now_ns();

	if (host < before)
		return before - host;
	return host > after ? host - after : 0;
}

static bool slept_long(u64 since, u64 now)
{
	return since && (s64)(now - since) >= (s64)check_counts();
}

/* Whether no vCPU has read the clock for long. Under the lock. */
static bool unread(u64 now)
{
	u32 i, count = shared->s.vcpu_count;

	for (i = 0; i < count && i < PHV_MAX_VCPUS; i++) {
		const struct vcpu *other = vcpu_at(i);

		if (READ_ONCE(other->s.state) != PHV_VCPU_OFF &&
		    !slept_long(READ_ONCE(other->asleep), now))
			return false;
	}
	return true;
}

/* Has the monitor put the clock right, and waits. Under the lock. */
static void ask(u32 wanted)
{
	u32 *word = &shared->s.clock_wanted, value;
	u64 until = host_ns() + CLAIM_NS;

	__atomic_store_n(word, wanted, __ATOMIC_SEQ_CST);
	ring(&shared->s.alarm_word);
	while ((value = __atomic_load_n(word, __ATOMIC_ACQUIRE)) != PHV_CLOCK_RIGHT) {
		step();
		if (value == wanted && host_ns() >= until) {
			if (__atomic_compare_exchange_n(word, &value, PHV_CLOCK_RIGHT, false,
							__ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
				return;
			continue;
		}
		/* A claim is soon at its end. */
		futex_wait_host(word, value, value == wanted ? until : U64_MAX);
	}
}

static void compare(u64 now)
{
	if (error() > WRONG_NS) {
		ask(unread(now) ? PHV_CLOCK_WRONG_UNREAD : PHV_CLOCK_WRONG);
		/* Before any other vCPU reads the guest's page. */
		clock_follow();
	}
	__atomic_store_n(&shared->wake_checked, rdtsc_rough(), __ATOMIC_RELEASE);
}

void wake_clock(struct vcpu *v)
{
	u64 now = rdtsc_rough();

	/* A vCPU that sees the end of a comparison also sees the clock that it led to. */
	if (recent(__atomic_load_n(&shared->wake_checked, __ATOMIC_ACQUIRE), now) ||
	    FAULT(WAKE_CLOCK_UNCHECKED)) {
		WRITE_ONCE(v->asleep, 0);
		/* The holder of the lock sees that, or this vCPU sees the lock. */
		fence();
		if (!READ_ONCE(shared->wake_lock.word))
			return;
	}
	lock_take(&shared->wake_lock);
	if (!recent(shared->wake_checked, now))
		compare(now);
	WRITE_ONCE(v->asleep, 0);
	lock_release(&shared->wake_lock);
}
