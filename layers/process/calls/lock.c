// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Section lock: a wait is a futex wait; a kick is a sticky bit and at most one futex wake. */
#include "calls/calls.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "host/call.h"
#include "state/state.h"
#include "vcpu/irq.h"
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

/* Whether the kernel has given the vCPU layer data. */
static bool known(u32 vcpu)
{
	const struct vmi_percpu *percpu =
		vcpu < shared->s.vcpu_count ? vcpu_at(vcpu)->percpu : NULL;

	return percpu && percpu->data;
}

int process_lock_kick(u32 vcpu)
{
	struct vcpu *v;

	if (!known(vcpu))
		return -VMI_ENOENT;
	v = vcpu_at(vcpu);
	__atomic_store_n(&v->s.kick, 1, __ATOMIC_SEQ_CST);
	if (READ_ONCE(v->s.state) == PHV_VCPU_HALTED)
		vcpu_kick(v);
	return 0;
}

int process_lock_pending(u32 vcpu)
{
	if (!known(vcpu))
		return -VMI_ENOENT;
	return READ_ONCE(vcpu_at(vcpu)->s.kick) != 0;
}

/*
 * The layer cannot see which threads the host runs, except that this one runs, and so no other that
 * is bound to the same host CPU. That is how vCPUs come to wait for each other when there are more
 * vCPUs than CPUs.
 */
int process_lock_preempted(u32 vcpu)
{
	const struct vcpu *me = this_vcpu();
	u32 cpu;

	if (!known(vcpu))
		return -VMI_ENOENT;
	if (FAULT(PREEMPTED_NEVER))
		return 0;
	cpu = READ_ONCE(shared->s.vcpu_cpu[vcpu]);
	return vcpu != me->number && cpu != 0xffffffff &&
	       cpu == READ_ONCE(shared->s.vcpu_cpu[me->number]) &&
	       READ_ONCE(vcpu_at(vcpu)->s.state) == PHV_VCPU_RUNNING;
}

int process_lock_yield(u32 vcpu)
{
	if (!known(vcpu))
		return -VMI_ENOENT;
	host0(sched_yield);
	return 0;
}
