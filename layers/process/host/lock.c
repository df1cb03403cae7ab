// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Mutexes in memory that processes share. */
#include "host/lock.h"
#include "host/futex.h"
#include "state/cpu.h"
#include "state/state.h"

/* A waiter tries as often as this before it sleeps. */
#define SPINS 200

bool lock_try(struct lock *lock)
{
	u32 old = 0;

	return __atomic_compare_exchange_n(&lock->word, &old, 1, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

/*
 * Without contention a lock costs one locked instruction each way. The host may preempt or stop a
 * holder at any point, so a waiter sleeps after a short spin.
 */
void lock_take(struct lock *lock)
{
	u32 spins, most = heuristic(PHV_FLAG_NO_SPINS) ? SPINS : 1;

	for (spins = 0; spins < most; spins++) {
		if (lock_try(lock))
			return;
		cpu_relax();
	}
	while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE))
		futex_wait(&lock->word, 2, U64_MAX);
}

void lock_release(struct lock *lock)
{
	if (__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) == 2)
		futex_wake(&lock->word, 1);
}
