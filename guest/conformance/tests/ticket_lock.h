/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * A ticket lock with a slow path, as kernels had it for hypervisors: a vCPU that waits too long
 * says for which ticket, sets a flag in the lock, and sleeps; an unlock that sees the flag kicks
 * the vCPU with the next ticket, and no other.
 */
#ifndef TESTS_TICKET_LOCK_H
#define TESTS_TICKET_LOCK_H

#include "../kernel/types.h"

/* How often a vCPU looks before it takes the slow path. */
#define TICKET_SPINS	64

union ticket_lock {
	u32 both;
	struct {
		u16 head, tail;		/* bit 0 of the tail: some vCPU may sleep */
	};
};

/* What the slow paths of all vCPUs did since the last reset. */
struct ticket_counts {
	u64 slow;		/* how often one was taken */
	u64 pickup;		/* the lock came before the vCPU slept */
	u64 kicked;		/* kicks by releases */
};

extern struct ticket_counts ticket_counts;

/* Makes the lock free, and forgets the counts. spins: there is no slow path, and no call. */
void ticket_reset(union ticket_lock *lock, bool spins);
void ticket_take(union ticket_lock *lock);
void ticket_release(union ticket_lock *lock);
/* Whether no vCPU has the lock or waits for it. */
bool ticket_free(const union ticket_lock *lock);

#endif
