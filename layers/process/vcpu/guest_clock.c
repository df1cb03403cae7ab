// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The guest's clock page. */
#include "vcpu/guest_clock.h"
#include "common/faults.h"
#include "host/clock.h"
#include "host/lock.h"
#include "state/cpu.h"
#include "state/state.h"

/*
 * Writes the monitor's clock to the guest's page, in the guest's terms. Readers wait while the
 * sequence is odd. The page is written through the direct map, so it does not matter where else the
 * kernel maps it. Under the lock.
 */
void clock_write(struct vmi_clock *page)
{
	struct phv_clock c;

	shared->guest_clock_sequence = clock_read(&c);
	if (!FAULT(CLOCK_PAGE_KEEPS_WALL) || !shared->guest_clock_wall)
		shared->guest_clock_wall = READ_ONCE(shared->s.wall_offset_ns);
	/* The factors are older than core.init, when real time began. */
	if (c.ns < shared->start_ns) {
		u64 now = rdtsc();

		c.ns = clock_at(&c, now);
		c.tsc = now;
	}
	/*
	 * The guest's page has 32 bits. The factor of a counter below 1 GHz needs more, and loses
	 * the low ones.
	 */
	while (c.mult >> 32 && c.shift) {
		c.mult >>= 1;
		c.shift--;
	}
	WRITE_ONCE(page->sequence, page->sequence | 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	WRITE_ONCE(page->flags, 1);
	WRITE_ONCE(page->tsc, c.tsc);
	WRITE_ONCE(page->real_ns, c.ns - shared->start_ns);
	WRITE_ONCE(page->wall_ns, shared->start_ns + shared->guest_clock_wall);
	WRITE_ONCE(page->mult, (u32)c.mult);
	WRITE_ONCE(page->shift, c.shift);
	__atomic_store_n(&page->sequence, page->sequence + 1, __ATOMIC_RELEASE);
}

void clock_follow(void)
{
	struct vmi_clock *page;

	if (!READ_ONCE(shared->guest_clock) ||
	    (READ_ONCE(shared->guest_clock_sequence) == READ_ONCE(shared->s.clock.sequence) &&
	     (READ_ONCE(shared->guest_clock_wall) == READ_ONCE(shared->s.wall_offset_ns) ||
	      FAULT(CLOCK_PAGE_KEEPS_WALL))))
		return;
	/* Another vCPU writes the page. This one looks again soon enough. */
	if (!lock_try(&shared->clock_lock))
		return;
	page = guest_ram(shared->guest_clock);
	if (shared->guest_clock && page)
		clock_write(page);
	lock_release(&shared->clock_lock);
}
