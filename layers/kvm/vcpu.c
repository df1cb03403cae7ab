/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * What a vCPU shares with the host.
 *
 * The host forgets the addresses when the vCPU gets an INIT. So the first call of the layer on a
 * vCPU that needs them passes them to the host again, however the vCPU was started.
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
	WRITE_ONCE(self->run.state, VMI_RUN_RUNNING);
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

/* Any GS base, so the vCPU is found by its APIC id. A request for it is an exit. */
void kvm_cpu_stop(void)
{
	u32 a, b, c, d, id;

	cpu_irq_save();
	if (native.ready && kvm_follow) {
		cpu_cpuid(1, 0, &a, &b, &c, &d);
		id = b >> 24;
		for (u32 vcpu = 0; vcpu < native.vcpu_count; vcpu++) {
			struct kvm_percpu *self = kvm_other(vcpu);

			if (self && kvm_apic_id(vcpu) == id && !FAULT(STOP_IS_UNSEEN))
				WRITE_ONCE(self->run.state, VMI_RUN_OFF);
		}
	}
	native_cpu_stop();
}

/* The vCPU does not run: an INIT has been sent, or a STARTUP is about to be. */
void native_forget_more(struct native_percpu *data)
{
	struct kvm_percpu *other = (struct kvm_percpu *)data;

	WRITE_ONCE(other->shared, 0);
	WRITE_ONCE(other->waiting, 0);
	if (!FAULT(INIT_IS_UNSEEN))
		WRITE_ONCE(other->run.state, VMI_RUN_OFF);
	WRITE_ONCE(other->run.preempted, 0);
	/* The host has stopped to keep this. */
	WRITE_ONCE(other->steal.preempted, 0);
}
