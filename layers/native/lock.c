/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Section lock. On bare metal a vCPU always runs, so a waiter spins. The pending bit must be exact.
 */
#include "native.h"

/*
 * A wait ends by itself after 1/64 second. It must end when an interrupt was served, which it
 * cannot see; the caller checks its lock and waits again at no cost.
 */
#define WAIT_SHIFT 6

void native_lock_wait(const u8 *location, u8 value)
{
	struct native_percpu *self;
	u64 start;

	if (!native.ready) {
		cpu_pause();
		return;
	}
	self = native_self();
	start = cpu_tsc();
	if (FAULT(WAIT_DIFFERS_CLEARS))
		self->lock_pending = 0;
	while (READ_ONCE(*location) == value) {
		/*
		 * The kicker's stores come before its kick. The exchange orders this vCPU's
		 * accesses after it.
		 */
		if (READ_ONCE(self->lock_pending) && !FAULT(WAIT_IGNORES_PENDING) &&
		    __atomic_exchange_n(&self->lock_pending, 0, __ATOMIC_SEQ_CST))
			return;
		if (cpu_tsc() - start > native.tsc_hz >> WAIT_SHIFT)
			return;
		cpu_pause();
	}
}

int native_lock_kick(u32 vcpu)
{
	struct native_percpu *other = native_other(vcpu);

	if (!other)
		return -VMI_ENOENT;
	if (!FAULT(KICK_NOT_STICKY))
		__atomic_store_n(&other->lock_pending, 1, __ATOMIC_SEQ_CST);
	return 0;
}

int native_lock_pending(u32 vcpu)
{
	struct native_percpu *other = native_other(vcpu);

	if (!other)
		return -VMI_ENOENT;
	if (FAULT(PENDING_CLEAR))
		return 0;
	return (int)__atomic_load_n(&other->lock_pending, __ATOMIC_SEQ_CST);
}

int native_lock_preempted(u32 vcpu)
{
	if (FAULT(PREEMPTED_WITHOUT_DATA))
		return vcpu < native.vcpu_count ? 0 : -VMI_ENOENT;
	return native_other(vcpu) ? FAULT(PREEMPTED_ALWAYS) : -VMI_ENOENT;
}

int native_lock_yield(u32 vcpu)
{
	if (!native_other(vcpu) && !FAULT(YIELD_ANY_VCPU))
		return -VMI_ENOENT;
	cpu_pause();
	return 0;
}

/* Its users see by VMI_LOCK_RUN_STATES that it follows nothing. */
u64 native_lock_run_state(u32 vcpu)
{
	static const struct vmi_run_state runs __attribute__((aligned(64))) = {
		.state = VMI_RUN_RUNNING,
	};

	return native_other(vcpu) || FAULT(RUN_STATE_WITHOUT_DATA) ? (u64)&runs : 0;
}
