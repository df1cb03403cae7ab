/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * What a vCPU shares with the host.
 *
 * The host forgets the addresses when the vCPU gets an INIT. So the first call of the layer on a
 * vCPU that needs them tells the host again, whoever has started the vCPU.
 */
#include "kvm.h"

void kvm_share(struct kvm_percpu *self)
{
	u64 flags = cpu_irq_save();

	self->wall_gpa = kvm_gpa(&self->wall);
	/* These registers exist: the host offers the features. */
	if (kvm.clock)
		cpu_wrmsr(MSR_KVM_SYSTEM_TIME, kvm_gpa(&self->clock) | KVM_MSR_ENABLE);
	if (kvm.steal) {
		cpu_wrmsr(MSR_KVM_STEAL_TIME, kvm_gpa(&self->steal) | KVM_MSR_ENABLE);
		/* The host adds what its thread has waited for since it was made. */
		if (!self->steal_known)
			self->steal_start = READ_ONCE(self->steal.ns);
		self->steal_known = 1;
	}
	if (kvm.eoi) {
		WRITE_ONCE(self->eoi, 0);
		cpu_wrmsr(MSR_KVM_EOI, kvm_gpa(&self->eoi) | KVM_MSR_ENABLE);
	}
	WRITE_ONCE(self->shared, 1);
	cpu_irq_restore(flags);
}

/* The host writes no longer to this vCPU's data: another kernel may get the memory. */
void kvm_unshare(void)
{
	if (kvm.eoi)
		cpu_wrmsr(MSR_KVM_EOI, 0);
	if (kvm.steal)
		cpu_wrmsr(MSR_KVM_STEAL_TIME, 0);
	if (kvm.clock)
		cpu_wrmsr(MSR_KVM_SYSTEM_TIME, 0);
}

/* The vCPU does not run: an INIT has been sent, or a STARTUP is about to be. */
void native_forget_more(struct native_percpu *data)
{
	struct kvm_percpu *other = (struct kvm_percpu *)data;

	WRITE_ONCE(other->shared, 0);
	WRITE_ONCE(other->waiting, 0);
	/* The host has stopped to keep this. */
	WRITE_ONCE(other->steal.preempted, 0);
}
