/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Section apic: the local APIC, through its page, or through registers 0x800 and up if
 * IA32_APIC_BASE says that it is in x2APIC mode.
 */
#include "native.h"

#define APIC_EOI 0xb0
#define APIC_SPURIOUS 0xf0
#define APIC_LVT_TIMER 0x320
#define APIC_ICR_LOW 0x300
#define APIC_ICR_HIGH 0x310
#define APIC_LAST 0x3f0

#define ICR_VECTOR 0xffULL
#define ICR_MODE (7ULL << 8)
#define ICR_FIXED (0ULL << 8)
#define ICR_NMI (4ULL << 8)
#define ICR_INIT (5ULL << 8)
#define ICR_STARTUP (6ULL << 8)
#define ICR_LOGICAL (1ULL << 11)
#define ICR_BUSY (1ULL << 12)
#define ICR_ASSERT (1ULL << 14)
#define ICR_LEVEL (1ULL << 15)
#define ICR_SHORTHAND (3ULL << 18)
#define ICR_SELF (1ULL << 18)
#define ICR_BROADCAST 0xffffffffu
#define XAPIC_BROADCAST 0xffu
#define FIRST_FIXED_VECTOR 16

bool native_apic_uses_msr(void)
{
	struct native_percpu *self = native_self();
	u64 base;

	if (self->apic_mode == NATIVE_APIC_UNKNOWN) {
		cpu_rdmsr(MSR_APIC_BASE, &base);
		self->apic_mode = base & APIC_BASE_X2APIC ? NATIVE_APIC_MSR : NATIVE_APIC_MMIO;
	}
	return self->apic_mode == NATIVE_APIC_MSR;
}

/* The kernel maps the page uncached. Each register is one aligned 32-bit access. */
static volatile u32 *reg(u32 offset)
{
	return to_pointer(native.apic + offset);
}

u32 native_apic_load(u32 offset)
{
	u64 value;

	if (!native_apic_uses_msr())
		return *reg(offset);
	/* a register that does not exist reads as 0 */
	cpu_rdmsr(MSR_X2APIC + (offset >> 4), &value);
	return (u32)value;
}

void native_apic_store(u32 offset, u32 value)
{
	if (native_apic_uses_msr())
		cpu_wrmsr(MSR_X2APIC + (offset >> 4), value);
	else
		*reg(offset) = value;
}

static bool offset_good(u32 offset)
{
	return offset <= APIC_LAST && offset % 16 == 0;
}

s64 native_apic_read(u32 offset)
{
	if (FAULT(APIC_READ_ROUNDS))
		offset &= ~15u;
	if (!offset_good(offset))
		return -VMI_EINVAL;
	if (!native.apic)
		return -VMI_ENOSYS;
	return native_apic_load(offset);
}

int native_apic_write(u32 offset, u32 value)
{
	if (!offset_good(offset))
		return -VMI_EINVAL;
	if ((offset == APIC_ICR_LOW || offset == APIC_ICR_HIGH) && !FAULT(APIC_WRITES_ICR))
		return -VMI_EINVAL;
	if (!native.apic)
		return -VMI_ENOSYS;
	native_apic_store(offset, value);
	/* A disabled APIC masks the timer. */
	if (offset == APIC_SPURIOUS || offset == APIC_LVT_TIMER)
		native_self()->timer_lvt = 0;
	return 0;
}

void native_apic_eoi(void)
{
	if (native.apic && !FAULT(EOI_NOTHING))
		native_apic_store(APIC_EOI, 0);
}

bool native_icr_good(u64 icr)
{
	switch (icr & ICR_MODE) {
	case ICR_FIXED:
		if ((icr & ICR_VECTOR) < FIRST_FIXED_VECTOR)
			return false;
		break;
	case ICR_NMI:
	case ICR_INIT:
	case ICR_STARTUP:
		break;
	default:
		return false;
	}
	return !(icr & ICR_LOGICAL);
}

static void send_by_page(u32 low, u32 destination)
{
	u64 flags = cpu_irq_save();

	/*
	 * The two halves belong together, so no handler of this vCPU may send in between. Stores to
	 * memory are ordered before a store to uncached memory.
	 */
	while (*reg(APIC_ICR_LOW) & ICR_BUSY)
		cpu_pause();
	*reg(APIC_ICR_HIGH) = destination << 24;
	*reg(APIC_ICR_LOW) = low;
	cpu_irq_restore(flags);
}

/* An INIT or a STARTUP to one processor or to all others. */
static void notice(u64 icr, bool init)
{
	u32 destination = icr >> 32;
	bool all = icr & ICR_SHORTHAND || destination == ICR_BROADCAST;

	if ((icr & ICR_SHORTHAND) == ICR_SELF)
		return; /* a processor ignores it */
	for (u32 i = 0; i < native.vcpu_count; i++) {
		struct native_percpu *data = native_other(i);

		if (data && data != native_self() &&
		    (all || destination == native.percpu_table[i]->apic_id))
			native_smp_notice(data, init);
	}
}

int native_apic_send_ipi(u64 icr)
{
	u32 low, destination = icr >> 32;

	if (!native_icr_good(icr))
		return -VMI_EINVAL;
	if (!native.apic)
		return -VMI_ENOSYS;
	/* The second half of an INIT on old buses, which current processors ignore. */
	if ((icr & (ICR_MODE | ICR_LEVEL | ICR_ASSERT)) == (ICR_INIT | ICR_LEVEL))
		return 0;
	low = (icr & (ICR_VECTOR | ICR_MODE | ICR_SHORTHAND)) | ICR_ASSERT;
	if ((icr & ICR_MODE) == ICR_STARTUP)
		notice(icr, false);
	if (FAULT(IPI_VECTOR_BIT) && (icr & ICR_MODE) == ICR_FIXED)
		low &= ~1u;

	if (native_apic_uses_msr()) {
		/* A wrmsr to the APIC does not wait for stores to become visible. */
		__asm__ volatile("mfence; lfence" : : : "memory");
		cpu_wrmsr(MSR_X2APIC + (APIC_ICR_LOW >> 4), (u64)destination << 32 | low);
		if ((icr & ICR_MODE) == ICR_INIT)
			notice(icr, true);
		return 0;
	}
	if (destination == ICR_BROADCAST)
		destination = XAPIC_BROADCAST;
	else if (destination >= XAPIC_BROADCAST && !(low & ICR_SHORTHAND))
		return -VMI_ENOENT; /* eight bits cannot hold the id */
	send_by_page(low, destination);
	if ((icr & ICR_MODE) == ICR_INIT)
		notice(icr, true);
	return 0;
}
