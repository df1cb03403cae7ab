/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Section lock: a waiting vCPU is halted, and a kick wakes it; and what each vCPU does.
 *
 * The pending bit is the layer's. A kick needs the host only if the vCPU waits. The waiting vCPU
 * says so before it looks at the bit, the kicking one sets the bit before it looks at that: one of
 * them sees the other. The host keeps a kick for a vCPU that is about to halt.
 *
 * To the host a vCPU that is halted does not run, just as one that is preempted. So the layer
 * itself keeps which vCPUs are halted, in the record that kernels read.
 */
#include "kvm.h"

/*
 * Halts, and returns with interrupts off. flags had them on: an interrupt ends the halt and is
 * served. A kick ends it in both cases.
 */
static void halt(struct kvm_percpu *self, u64 flags)
{
	WRITE_ONCE(self->run.state, VMI_RUN_HALTED);
	if (flags & VMI_FLAGS_IF)
		__asm__ volatile("sti; hlt; cli" : : : "memory");
	else
		__asm__ volatile("hlt" : : : "memory");
	WRITE_ONCE(self->run.state, VMI_RUN_RUNNING);
}

void kvm_lock_wait(const u8 *location, u8 value)
{
	struct kvm_percpu *self;
	u64 flags;

	if (!native.ready || !kvm.unhalt) {
		native_lock_wait(location, value);
		return;
	}
	flags = cpu_irq_save();
	self = kvm_self();
	__atomic_store_n(&self->waiting, 1, __ATOMIC_SEQ_CST);
	if (READ_ONCE(*location) == value &&
	    !__atomic_exchange_n(&self->native.lock_pending, FAULT(WAIT_LEAVES_KICK),
				 __ATOMIC_SEQ_CST)) {
		halt(self, flags);
		/* The kick that has ended the wait, if one has. */
		__atomic_store_n(&self->native.lock_pending, 0, __ATOMIC_SEQ_CST);
	}
	WRITE_ONCE(self->waiting, 0);
	cpu_irq_restore(flags);
}

int kvm_lock_kick(u32 vcpu)
{
	struct kvm_percpu *other = kvm_other(vcpu);
	int error = native_lock_kick(vcpu);

	if (error || !kvm.unhalt || FAULT(KICK_WAKES_NOT))
		return error;
	/* The native kick is an atomic store, which later accesses do not overtake. */
	if (READ_ONCE(other->waiting))
		kvm_hypercall(KVM_HC_KICK_CPU, 0, kvm_apic_id(vcpu), 0, 0);
	return 0;
}

static bool preempted(const struct kvm_percpu *other)
{
	if (kvm_follow && READ_ONCE(other->run.state) != VMI_RUN_RUNNING)
		return false;
	return READ_ONCE(other->steal.preempted) & KVM_VCPU_PREEMPTED;
}

int kvm_lock_preempted(u32 vcpu)
{
	struct kvm_percpu *other = kvm_other(vcpu);
	u32 answer;

	if (!other || !kvm.steal)
		return native_lock_preempted(vcpu);
	answer = preempted(other) && !FAULT(PREEMPTED_UNKNOWN);
	if (READ_ONCE(other->run.preempted) != answer)
		WRITE_ONCE(other->run.preempted, answer);
	return (int)answer;
}

int kvm_lock_yield(u32 vcpu)
{
	struct kvm_percpu *other = kvm_other(vcpu);

	if (!other || !kvm.yield)
		return native_lock_yield(vcpu);
	if ((!kvm.steal || preempted(other)) && !FAULT(YIELD_PAUSES))
		kvm_hypercall(KVM_HC_SCHED_YIELD, kvm_apic_id(vcpu), 0, 0, 0);
	else
		cpu_pause();
	return 0;
}

static u64 run_of(const struct kvm_percpu *other)
{
	return other ? (u64)&other->run : 0;
}

u64 kvm_lock_run_state(u32 vcpu)
{
	return kvm_follow ? run_of(kvm_other(vcpu)) : native_lock_run_state(vcpu);
}
