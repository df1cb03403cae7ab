// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Whether another vCPU has a processor.
 *
 * The host does not report which threads run. But the CPU clock of a thread that runs advances, and
 * the host reads the clock of each thread of the caller's own process up to date, in about half a
 * microsecond. So two readings a microsecond apart show whether a thread runs, whatever else runs
 * on its processor. (The clocks of other processes are as old as the host's last tick, and /proc is
 * older and slower.)
 *
 * Each vCPU has a thread in each process. Where the other vCPU is in another process, the caller's
 * parked thread there takes the readings, while the caller sleeps: two thread switches, as for a
 * hand-over. This pays off only for a caller that keeps asking. It may ask about a few others in
 * turn, as a vCPU does that waits for several CPUs.
 */
#include "vcpu/look.h"
#include "common/faults.h"
#include "host/call.h"
#include "host/clock.h"
#include "host/futex.h"
#include "host/step.h"
#include "state/cpu.h"
#include "state/state.h"
#include "vcpu/handover.h"
#include "vcpu/irq.h"

/* How long an answer is good, ns. A vCPU that gets its processor back must not wait for it. */
#define GOOD_RUNS (VMI_PREEMPTED_LATE_NS / 2)
#define GOOD_LOST (VMI_PREEMPTED_LATE_NS / 10)
/* A hand-over or a wake-up takes less if the thread gets a processor, ns. */
#define WAKE_LONG VMI_PREEMPTED_LATE_NS
/*
 * A caller that asks for longer than this is worth two thread switches, ns. A pause ends that: a
 * vCPU that waits for a lock asks every few microseconds, and the next wait is another one. Waits
 * that are short but frequent would each cost the switches otherwise. A short wait may be a single
 * question, so single ones at longer intervals are no reason for a look, either. The pause is from
 * the begin of a question, which the caller does not count.
 */
#define PATIENCE (FAULT(PREEMPTED_PATIENT) ? 1000000 : VMI_PREEMPTED_LATE_NS / 5)
#define PAUSE (VMI_PREEMPTED_ASK_NS + 5000)
/*
 * How many vCPUs a caller asks about in turn. If it asks about more, the first few count until it
 * no longer asks about one of them: if the others took their places, it would never have asked for
 * long enough.
 */
#define IN_TURN (FAULT(PREEMPTED_ONE_SLOT) ? 1 : ASKED_MOST)
/* Between the two readings, ns. */
#define BETWEEN 1000
/* The longest wait for the other thread, which needs this vCPU's processor, ns. */
#define ANSWER 1000000

enum look_answer {
	LOOK_RUNS,
	LOOK_LOST,
	LOOK_UNKNOWN,
};

/* The time since a moment by the counter, ns; 0 if another CPU's counter is ahead. */
static u64 age(u64 now, u64 tsc)
{
	return (s64)(now - tsc) > 0 ? cycles_ns(now - tsc) : 0;
}

/* The host's name of the CPU clock of a thread of the calling process: its id and kind 6. */
static bool thread_ns(u32 tid, u64 *ns)
{
	struct host_timespec t;

	if (host2(clock_gettime, (u32)(~tid << 3 | 6), &t))
		return false;
	*ns = (u64)t.sec * 1000000000 + (u64)t.nsec;
	return true;
}

bool look_cpu_ns(const struct vcpu *v, u64 *ns)
{
	u64 owner = READ_ONCE(v->s.owner);

	return owner >> 32 == self.pid && thread_ns((u32)owner, ns);
}

/* Takes the readings, if the vCPU is in this process. */
static enum look_answer sample(const struct vcpu *v)
{
	u64 owner = READ_ONCE(v->s.owner), slice = READ_ONCE(v->slice_start), first, second, start;

	if (owner >> 32 != self.pid || !thread_ns((u32)owner, &first))
		return LOOK_UNKNOWN;
	start = rdtsc_rough();
	while (age(rdtsc_rough(), start) < BETWEEN)
		cpu_relax();
	if (!thread_ns((u32)owner, &second))
		return LOOK_UNKNOWN;
	/* A vCPU that has moved, halted or taken the time between the readings runs. */
	return first == second && READ_ONCE(v->s.owner) == owner && READ_ONCE(v->running) &&
	       READ_ONCE(v->slice_start) == slice ? LOOK_LOST : LOOK_RUNS;
}

void look_answer(struct vcpu *v)
{
	u32 question = __atomic_load_n(&v->look_question, __ATOMIC_ACQUIRE);
	u32 vcpu = READ_ONCE(v->look_vcpu), old = READ_ONCE(v->look_answer);
	enum look_answer answer = LOOK_UNKNOWN;

	/* The caller has given up waiting for this thread, and asks in another process. */
	if (READ_ONCE(v->look_proc) != self.index)
		return;
	if (vcpu < shared->s.vcpu_count)
		answer = sample(vcpu_at(vcpu));
	step();
	/* The caller may have given up, and have an answer to a later question. */
	do {
		if ((s32)(old - (question << 2 | 3)) >= 0)
			return;
	} while (!__atomic_compare_exchange_n(&v->look_answer, &old, question << 2 | (u32)answer,
					      false, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	futex_wake(&v->look_answer, 1);
}

/* Has this vCPU's thread in the other one's process take the readings. */
static enum look_answer ask(struct vcpu *me, const struct vcpu *v)
{
	u32 index = READ_ONCE(v->s.proc), question, answer;
	u64 until;

	if (index >= READ_ONCE(shared->s.proc_count) || index >= PHV_MAX_PROCS)
		return LOOK_UNKNOWN;
	/* It has moved to this process since. */
	if (index == self.index)
		return sample(v);
	/* A deliverable interrupt does not wait for an answer, so no thread need be woken. */
	if (irq_deliverable(me))
		return LOOK_UNKNOWN;
	question = me->look_question + 1;
	me->look_vcpu = v->number;
	me->look_proc = index;
	__atomic_store_n(&me->look_question, question, __ATOMIC_RELEASE);
	/*
	 * A thread that has had no processor since the last question takes this one instead. The
	 * thread needs the caller's processor. It gets that processor while the caller sleeps.
	 */
	if (!wake_if_free(me, index, WAKE_LOOK))
		return LOOK_UNKNOWN;
	until = now_ns() + ANSWER;
	for (;;) {
		answer = __atomic_load_n(&me->look_answer, __ATOMIC_ACQUIRE);
		if (answer >> 2 == (question & 0x3fffffff))
			return (enum look_answer)(answer & 3);
		/* Other vCPUs may wait for a flush. */
		irq_serve_flush(me);
		if (now_ns() >= until || irq_deliverable(me))
			return LOOK_UNKNOWN;
		futex_wait(&me->look_answer, answer, until);
	}
}

bool look_same_cpu(const struct vcpu *me, const struct vcpu *v)
{
	u32 cpu = READ_ONCE(shared->s.vcpu_cpu[v->number]);

	return cpu != 0xffffffff && cpu == READ_ONCE(shared->s.vcpu_cpu[me->number]);
}

/* Notes a question about a vCPU. NULL: the caller asks about too many others. */
static struct asked *asked_about(struct vcpu *me, u32 vcpu, u64 now)
{
	struct asked *a, *end = me->asked + IN_TURN;

	for (a = me->asked; a < end; a++)
		if (a->vcpu == vcpu)
			break;
	if (a == end) {
		for (a = me->asked; a < end; a++)
			if (age(now, a->last) > PAUSE)
				break;
		if (a == end)
			return NULL;
		a->vcpu = vcpu;
		a->since = now;
	} else if (age(now, a->last) > PAUSE && !FAULT(PREEMPTED_IMPATIENT)) {
		a->since = now;
	}
	a->last = now;
	return a;
}

/*
 * How long an answer from another process is good at least to a caller that asks about N vCPUs in
 * turn, ns: N times GOOD_LOST. So all of them together cost at most one look in each GOOD_LOST, as
 * much as a single vCPU without a processor. With VMI_PREEMPTED_ASK_NS until the next question and
 * the looks for the others, an answer still is not older than VMI_PREEMPTED_LATE_NS.
 */
static u64 good_in_turn(const struct vcpu *me, u64 now)
{
	u32 i, count = 0;

	if (FAULT(PREEMPTED_TURNS_DEAR))
		return GOOD_LOST;
	for (i = 0; i < IN_TURN; i++)
		count += age(now, me->asked[i].last) <= PAUSE;
	return count * GOOD_LOST;
}
_Static_assert(ASKED_MOST * GOOD_LOST + VMI_PREEMPTED_ASK_NS < VMI_PREEMPTED_LATE_NS, "GOOD_LOST");

bool look_preempted(struct vcpu *me, struct vcpu *v)
{
	u64 now = rdtsc_rough(), woken = READ_ONCE(v->woken), looked, since, took;
	u32 state = READ_ONCE(v->s.state), i;
	struct asked *asked;
	enum look_answer answer;

	if (v == me || state == PHV_VCPU_OFF)
		return false;
	if (state == PHV_VCPU_HALTED || !READ_ONCE(v->running))
		return woken && age(now, woken) > WAKE_LONG;
	/* This vCPU has the processor that the other one is bound to. */
	if (look_same_cpu(me, v))
		return true;
	if (FAULT(PREEMPTED_BY_US_ONLY))
		return false;
	asked = asked_about(me, v->number, now);
	looked = READ_ONCE(v->looked);
	since = age(now, looked);
	if (since < (v->run.preempted ? GOOD_LOST : GOOD_RUNS))
		return v->run.preempted;
	if (READ_ONCE(v->s.proc) == self.index)
		answer = sample(v);
	else if (!asked || age(now, asked->since) < PATIENCE)
		return v->run.preempted && since < VMI_PREEMPTED_LATE_NS;
	else if (since < good_in_turn(me, now))
		return v->run.preempted;
	else
		answer = FAULT(PREEMPTED_HERE_ONLY) ? LOOK_UNKNOWN : ask(me, v);
	took = rdtsc_rough() - now;
	/* The question is no pause, about the others neither. */
	for (i = 0; i < IN_TURN; i++)
		me->asked[i].last += took;
	/* Another caller may have learned something. */
	if (answer == LOOK_UNKNOWN && READ_ONCE(v->looked) != looked)
		return READ_ONCE(v->run.preempted);
	WRITE_ONCE(v->run.preempted, answer == LOOK_LOST);
	WRITE_ONCE(v->looked, now + took);
	return answer == LOOK_LOST;
}
