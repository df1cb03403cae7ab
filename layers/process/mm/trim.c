// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* An idle process returns memory to the host. */
#include "mm/trim.h"
#include "host/call.h"
#include "host/fatal.h"
#include "host/lock.h"
#include "mm/shadow.h"
#include "state/state.h"

/*
 * Page tables and the shadow are two thirds of the host memory that a process takes. A fault
 * restores what is needed: it takes a few microseconds, or half a microsecond in the direct map,
 * where only the host's tables are new.
 */
void mm_trim(void)
{
	struct proc *p = self.proc;
	u32 i;

	lock_take(&p->lock);
	shadow_trim();
	for (i = 0; i < shared->s.region_count && i < PHV_MAX_REGIONS; i++) {
		const struct phv_region *r = &shared->s.regions[i];
		u64 start = shared->direct_map + r->gpa;

		/*
		 * One host call, so that another thread here finds either the old tables or the new
		 * mapping.
		 */
		if (host6(mmap, start, r->size, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_SHARED | MAP_FIXED,
			  PHV_FD_RAM + i, 0) != (s64)start)
			fatal("process: mmap failed at", start);
	}
	lock_release(&p->lock);
}
