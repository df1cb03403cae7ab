// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The ticket lock. */
#include "ticket_lock.h"
#include "test.h"

#define SLOW	1		/* in the tail: some vCPU may sleep */
#define NEXT	2		/* from one ticket to the next */

/* What a vCPU sleeps for. */
static struct {
	union ticket_lock *lock;
	u16 want;
} waiting[MAX_VCPUS];
static u64 waiters[MAX_VCPUS / 64 + 1];
static bool only_spins;

struct ticket_counts ticket_counts;

void ticket_reset(union ticket_lock *lock, bool spins)
{
	lock->both = 0;
	only_spins = spins;
	memset(&ticket_counts, 0, sizeof(ticket_counts));
	memset(waiters, 0, sizeof(waiters));
	memset(waiting, 0, sizeof(waiting));
}

static void wait_for_ticket(union ticket_lock *lock, u16 want)
{
	u32 me = this_vcpu();
	u8 same = 0;

	/* The ticket is valid whenever the lock is there. This processor keeps stores in order. */
	WRITE_ONCE(waiting[me].lock, NULL);
	WRITE_ONCE(waiting[me].want, want);
	WRITE_ONCE(waiting[me].lock, lock);
	__atomic_fetch_or(&waiters[me / 64], 1ull << me % 64, __ATOMIC_SEQ_CST);
	__atomic_fetch_or(&lock->tail, SLOW, __ATOMIC_SEQ_CST);
	atomic_add(&ticket_counts.slow, 1);
	/*
	 * An unlock before the flag was there has moved the head. One after it kicks this vCPU, and
	 * the kick is not lost if it comes before the wait.
	 */
	if (atomic_load(&lock->head) == want)
		atomic_add(&ticket_counts.pickup, 1);
	else
		vmi.lock_wait(&same, 0);
	__atomic_fetch_and(&waiters[me / 64], ~(1ull << me % 64), __ATOMIC_SEQ_CST);
	WRITE_ONCE(waiting[me].lock, NULL);
}

void ticket_take(union ticket_lock *lock)
{
	u16 want = __atomic_fetch_add(&lock->tail, NEXT, __ATOMIC_SEQ_CST) & ~SLOW;
	u32 i;

	for (;;) {
		for (i = 0; i < TICKET_SPINS; i++) {
			if (atomic_load(&lock->head) == want)
				return;
			pause();
		}
		if (!only_spins)
			wait_for_ticket(lock, want);
		watch("a ticket");
	}
}

void ticket_release(union ticket_lock *lock)
{
	u16 next = __atomic_add_fetch(&lock->head, NEXT, __ATOMIC_SEQ_CST);
	union ticket_lock free = { .head = next, .tail = next | SLOW };
	u32 i;

	if (!(atomic_load(&lock->tail) & SLOW))
		return;
	/* No vCPU has or wants the lock: the flag is cleared, unless a vCPU comes. */
	if (__atomic_compare_exchange_n(&lock->both, &free.both,
					((u32)next << 16) | next, false, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST))
		return;
	for (i = 0; i < machine.vcpus_online; i++) {
		if (!(READ_ONCE(waiters[i / 64]) & 1ull << i % 64) ||
		    READ_ONCE(waiting[i].lock) != lock || READ_ONCE(waiting[i].want) != next)
			continue;
		CHECK_RESULT(vmi.lock_kick(i), 0);
		atomic_add(&ticket_counts.kicked, 1);
		break;
	}
}

bool ticket_free(const union ticket_lock *lock)
{
	return lock->head == (lock->tail & ~SLOW);
}
