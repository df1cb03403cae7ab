// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Trims idle processes before a long sleep. */
#include "vcpu/idle.h"
#include "host/clock.h"
#include "host/lock.h"
#include "state/cpu.h"
#include "state/state.h"
#include "vcpu/handover.h"

/*
 * Processes that no vCPU was in for this long are trimmed while this vCPU sleeps, a few at a time:
 * an interrupt has to wait for the loop, and for the CPU.
 */
#define TRIM_AFTER_SECONDS 4
#define TRIM_AT_ONCE 16

u64 idle_trim(struct vcpu *v)
{
	u64 now = rdtsc_rough(), long_ago = TRIM_AFTER_SECONDS * shared->s.clock.tsc_hz,
		next = U64_MAX;
	u32 i, count = READ_ONCE(shared->s.proc_count), more = TRIM_AT_ONCE;
	bool go;

	if (!heuristic(PHV_FLAG_NO_TRIM))
		return U64_MAX;
	for (i = 0; i < count && i < PHV_MAX_PROCS; i++) {
		struct proc *p = proc_at(i);
		u64 ago = now - READ_ONCE(p->left);

		/* A process that was never left has nothing. */
		if (READ_ONCE(p->trimmed) || READ_ONCE(p->loaded) || !READ_ONCE(p->left))
			continue;
		if ((s64)ago < (s64)long_ago || !more) {
			u64 wait = (s64)ago < (s64)long_ago ? long_ago - ago : 0;

			next = wait < next ? wait : next;
			continue;
		}
		lock_take(&shared->spaces);
		go = !p->trimmed && !p->loaded;
		if (go)
			p->trimmed = 1;
		lock_release(&shared->spaces);
		/* This vCPU's thread there is parked, and only this vCPU can wake it. */
		if (go) {
			wake_thread(v, i, WAKE_TRIM);
			more--;
		}
	}
	/*
	 * Another process may have been left a moment ago, by a counter that is ahead of this one.
	 */
	return next == U64_MAX ? U64_MAX : now_ns() + cycles_ns(next < long_ago ? next : long_ago);
}
