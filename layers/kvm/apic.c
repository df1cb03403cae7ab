/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Section apic: the end of an interrupt and interprocessor interrupts with fewer exits. The rest is
 * the native layer's.
 */
#include "kvm.h"

#define ICR_VECTOR 0xffULL
#define ICR_MODE (7ULL << 8)
#define ICR_FIXED (0ULL << 8)
#define ICR_NMI (4ULL << 8)
#define ICR_SHORTHAND (3ULL << 18)
#define ICR_BROADCAST 0xffffffffu

/*
 * The host sets the bit with an interrupt that needs nothing but its end, and sees that it is
 * clear. One instruction tests and clears it, so no exit comes in between.
 */
static bool eoi_by_memory(struct kvm_percpu *self)
{
	bool was;

	__asm__ volatile("btrl $0, %0" : "+m"(self->eoi), "=@ccc"(was) : : "memory");
	return was;
}

void kvm_apic_eoi(void)
{
	struct kvm_percpu *self;

	if (native.ready && kvm.eoi) {
		self = kvm_self();
		kvm_awake(self);
		if (eoi_by_memory(self) || FAULT(EOI_BY_MEMORY_ALONE))
			return;
	}
	native_apic_eoi();
}

int kvm_apic_send_ipi(u64 icr)
{
	u32 destination = icr >> 32;
	u64 mode = icr & ICR_MODE;
	s64 sent;

	if (!native_icr_good(icr))
		return -VMI_EINVAL;
	/*
	 * A hypercall takes one exit, the registers of the APIC's page take three. In x2APIC mode
	 * there is one register.
	 */
	if (!native.ready || !kvm.send_ipi || (mode != ICR_FIXED && mode != ICR_NMI) ||
	    icr & ICR_SHORTHAND || destination == ICR_BROADCAST || native_apic_uses_msr())
		return native_apic_send_ipi(icr);
	if (FAULT(SEND_IPI_NEIGHBOUR))
		destination ^= 1;
	/* The hypercall has this vCPU's stores done, as each exit has. */
	sent = kvm_hypercall(KVM_HC_SEND_IPI, 1, 0, destination, icr & (ICR_VECTOR | ICR_MODE));
	return sent < 0 ? native_apic_send_ipi(icr) : 0;
}
