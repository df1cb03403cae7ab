// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Time, from the time-stamp counter and the monitor's factors. */
#include "host/clock.h"
#include "state/cpu.h"
#include "state/state.h"

u64 cycles_ns(u64 cycles)
{
	const struct phv_clock *c = &shared->s.clock;

	return (u64)((u128)cycles * READ_ONCE(c->mult) >> (READ_ONCE(c->shift) & 63));
}

u32 clock_read(struct phv_clock *copy)
{
	const struct phv_clock *c = &shared->s.clock;
	u32 sequence;

	do {
		sequence = __atomic_load_n(&c->sequence, __ATOMIC_ACQUIRE);
		copy->tsc = READ_ONCE(c->tsc);
		copy->ns = READ_ONCE(c->ns);
		copy->mult = READ_ONCE(c->mult);
		copy->shift = READ_ONCE(c->shift) & 63;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while ((sequence & 1) || READ_ONCE(c->sequence) != sequence);
	return sequence;
}

/*
 * The counter of another CPU may be a little less than that of the CPU that wrote the page. Time
 * stands still until it has caught up.
 */
u64 clock_at(const struct phv_clock *c, u64 tsc)
{
	u64 passed = (s64)(tsc - c->tsc) > 0 ? tsc - c->tsc : 0;

	return c->ns + (u64)((u128)passed * c->mult >> c->shift);
}

u64 now_ns(void)
{
	const struct phv_clock *page = &shared->s.clock;
	struct phv_clock c;
	u32 sequence;
	u64 ns;

	/*
	 * The counter is read inside the loop: a reader of one page must not have read the counter
	 * after the next page was written.
	 */
	do {
		sequence = clock_read(&c);
		ns = clock_at(&c, rdtsc());
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (READ_ONCE(page->sequence) != sequence);
	return ns;
}

u64 tsc_at(u64 ns)
{
	u64 tsc = rdtsc_rough(), now = now_ns(), ago = now > ns ? now - ns : 0;

	/* At most minutes, so nothing overflows. */
	if (ago > 1ULL << 36)
		ago = 1ULL << 36;
	return tsc - ago * (shared->s.clock.tsc_hz / 1000000) / 1000;
}
