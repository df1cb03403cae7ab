/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The host's clock, and the time that it has given to others. Without them as on bare metal.
 *
 * Where the host's counters are not in step, the clocks of two vCPUs differ a little. Real time is
 * then never less than what any vCPU has returned before.
 */
#include "counter.h"
#include "kvm.h"

#define SHIFT 32

/* Read by all vCPUs; changed atomically, to a larger value. */
static u64 told;

/* A consistent copy. The host changes this vCPU's own record only while this vCPU waits. */
static void clock_copy(const struct kvm_clock_info *clock, struct kvm_clock_info *copy)
{
	u32 version;

	do {
		version = READ_ONCE(clock->version);
		barrier();
		copy->version = version;
		copy->tsc = READ_ONCE(clock->tsc);
		copy->ns = READ_ONCE(clock->ns);
		copy->mul = READ_ONCE(clock->mul);
		copy->shift = READ_ONCE(clock->shift);
		copy->flags = READ_ONCE(clock->flags);
		barrier();
	} while (version & 1 || version != READ_ONCE(clock->version));
}

u64 kvm_clock_hz(const struct kvm_clock_info *clock)
{
	struct kvm_clock_info copy;
	u64 hz;

	if (!READ_ONCE(clock->version))
		return 0;
	clock_copy(clock, &copy);
	if (!copy.mul || copy.shift >= SHIFT || copy.shift <= -SHIFT)
		return 0;
	hz = (NSEC_PER_SEC << SHIFT) / copy.mul;
	return copy.shift < 0 ? hz << -copy.shift : hz >> copy.shift;
}

void kvm_clock_now(const struct kvm_clock_info *clock, struct kvm_clock_info *now)
{
	u64 tsc, ticks;

	do {
		clock_copy(clock, now);
		tsc = cpu_tsc();
		/* Counter and factors belong to the same processor of the host. */
	} while (now->version != READ_ONCE(clock->version));
	ticks = tsc - now->tsc;
	if ((s64)ticks < 0)
		ticks = 0;
	if (!FAULT(CLOCK_SHIFT_LOST))
		ticks = now->shift < 0 ? ticks >> -now->shift : ticks << now->shift;
	now->tsc = tsc;
	now->ns += (u64)((u128)ticks * now->mul >> SHIFT);
}

u64 kvm_clock_ns(const struct kvm_clock_info *clock)
{
	struct kvm_clock_info now;

	kvm_clock_now(clock, &now);
	return now.ns;
}

static u64 clock_time(const struct kvm_percpu *self)
{
	u64 now = kvm_clock_ns(&self->clock), real, last;

	real = now > kvm.start_ns ? now - kvm.start_ns : 0;
	if (READ_ONCE(self->clock.flags) & KVM_CLOCK_STABLE)
		return real;
	last = __atomic_load_n(&told, __ATOMIC_SEQ_CST);
	while (real > last)
		if (__atomic_compare_exchange_n(&told, &last, real, false, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST))
			return real;
	return last;
}

void native_times(struct vmi_times *times)
{
	u64 flags = cpu_irq_save();
	struct kvm_percpu *self = kvm_self();
	u32 version;

	do {
		version = READ_ONCE(self->steal.version);
		barrier();
		times->stolen = 0;
		if (kvm.steal && !FAULT(STOLEN_NEVER))
			times->stolen = READ_ONCE(self->steal.ns) - self->steal_start;
		times->real = kvm.clock ? clock_time(self) : counter_time();
		barrier();
		/* Nothing was stolen in between. */
	} while (version & 1 || version != READ_ONCE(self->steal.version));
	/*
	 * The host measures what it steals on another clock, which may be faster by some parts per
	 * million. Available time then stands still for a moment.
	 */
	times->available = times->real > times->stolen ? times->real - times->stolen : 0;
	if (times->available < self->available)
		times->available = self->available < times->real ? self->available : times->real;
	self->available = times->available;
	times->stolen = times->real - times->available;
	if (!FAULT(RUN_STATE_WITHOUT_STOLEN))
		WRITE_ONCE(self->run.stolen, times->stolen);
	kvm_awake(self);
	if (kvm_page_behind(self))
		kvm_page_follow(self);
	cpu_irq_restore(flags);
}

u64 native_tsc_at(u64 ns)
{
	struct kvm_clock_info copy;
	u64 at = ns + kvm.start_ns, left, ticks;

	if (!kvm.clock)
		return counter_at(ns);
	if (at < ns)
		return U64_MAX;
	clock_copy(&kvm_self()->clock, &copy);
	left = at > copy.ns ? at - copy.ns : 0;
	if (FAULT(ALARM_OF_HOST_TIME))
		left += kvm.start_ns;
	if (copy.shift < 0) {
		ticks = counter_ticks(left, copy.mul, SHIFT, U64_MAX >> -copy.shift >> 1);
		ticks <<= -copy.shift;
	} else {
		ticks = (counter_ticks(left, copy.mul, SHIFT, U64_MAX - 1) >> copy.shift) + 1;
	}
	return ticks < U64_MAX - copy.tsc ? copy.tsc + ticks : U64_MAX;
}
