// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Section lock: a wait is a futex wait; a kick is a sticky bit and at most one futex wake. */
#include "calls/calls.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "host/call.h"
#include "host/clock.h"
#include "host/futex.h"
#include "state/state.h"
#include "vcpu/irq.h"
#include "vcpu/look.h"
#include "vcpu/wait.h"

void process_lock_wait(const u8 *location, u8 value)
{
	struct vcpu *v = this_vcpu();

	if (READ_ONCE(*location) != value)
		return;
	if (__atomic_exchange_n(&v->s.kick, 0, __ATOMIC_SEQ_CST))
		return;
	irq_wait(v, true, FAST(v, F_IRQ));
}

int process_lock_kick(u32 vcpu)
{
	struct vcpu *v;

	if (!vcpu_known(vcpu))
		return -VMI_ENOENT;
	v = vcpu_at(FAULT(KICK_WAKES_NEIGHBOUR) ? (vcpu + 1) % shared->s.vcpu_count : vcpu);
	if (FAULT(KICK_ONLY_SLEEPERS) && READ_ONCE(v->s.state) != PHV_VCPU_HALTED)
		return 0;
	__atomic_store_n(&v->s.kick, 1, __ATOMIC_SEQ_CST);
	if (READ_ONCE(v->s.state) == PHV_VCPU_HALTED)
		vcpu_kick(v);
	return 0;
}

int process_lock_pending(u32 vcpu)
{
	if (!vcpu_known(vcpu))
		return -VMI_ENOENT;
	return READ_ONCE(vcpu_at(vcpu)->s.kick) != 0;
}

int process_lock_preempted(u32 vcpu)
{
	if (!vcpu_known(vcpu))
		return -VMI_ENOENT;
	if (FAULT(PREEMPTED_NEVER))
		return 0;
	return look_preempted(this_vcpu(), vcpu_at(vcpu));
}

/* One rest, ns. Where it was for nothing, there is another one. */
#define REST (VMI_PREEMPTED_LATE_NS / 2)

/*
 * An interrupt ends the wait: its signal comes before, and is marked, or during it. One that cannot
 * be delivered before the caller has its lock is no reason to keep the processor.
 */
static bool rest(struct vcpu *me)
{
	u32 word = READ_ONCE(me->look_answer);

	if (irq_deliverable(me))
		return false;
	futex_wait(&me->look_answer, word, now_ns() + REST);
	return true;
}

/*
 * A caller that sleeps leaves its processor to the vCPU, if that waits for it. The host's
 * sched_yield() does not: the scheduler goes on with a thread that has not had its share, which may
 * be the caller. A vCPU that waits for another processor gets nothing from this one's rest, but
 * others do.
 */
int process_lock_yield(u32 vcpu)
{
	struct vcpu *me = this_vcpu(), *v;
	u64 before, after;
	bool known;

	if (!vcpu_known(vcpu))
		return -VMI_ENOENT;
	v = vcpu_at(vcpu);
	if (FAULT(YIELD_NOTHING) || !look_preempted(me, v))
		return 0;
	if (FAULT(YIELD_TO_ANYONE)) {
		host0(sched_yield);
		return 0;
	}
	known = look_same_cpu(me, v) && look_cpu_ns(v, &before);
	if (!rest(me) || !known)
		return 0;
	/* Another thread may have had the processor. */
	if (look_cpu_ns(v, &after) && after == before)
		rest(me);
	return 0;
}

u64 process_lock_run_state(u32 vcpu)
{
	return vcpu_known(vcpu) ? (u64)&vcpu_at(vcpu)->run : 0;
}
