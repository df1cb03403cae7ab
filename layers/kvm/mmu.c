/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Section mmu: a vCPU that is preempted flushes before it runs again. The rest is native. */
#include "kvm.h"

int kvm_mmu_flush_preempted(u32 vcpu)
{
	struct kvm_percpu *other;
	u8 state = KVM_VCPU_PREEMPTED;

	if (!native.ready || !kvm.flush)
		return -VMI_ENOSYS;
	other = kvm_other(vcpu);
	if (!other)
		return -VMI_ENOENT;
	if (FAULT(FLUSH_PREEMPTED_FORGOTTEN))
		return READ_ONCE(other->steal.preempted) & KVM_VCPU_PREEMPTED;
	/*
	 * The host exchanges the byte for 0 before the vCPU runs, and flushes if the flag is in it.
	 * So either the flag comes first, or the exchange fails because the vCPU runs.
	 */
	if (__atomic_compare_exchange_n(&other->steal.preempted, &state,
					KVM_VCPU_PREEMPTED | KVM_VCPU_FLUSH, false,
					__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return 1;
	/* Another vCPU may have set the flag already. */
	return state == (KVM_VCPU_PREEMPTED | KVM_VCPU_FLUSH);
}
