/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* A spinlock. Not to be held where an interrupt handler wants it too. */
#ifndef KERNEL_LOCK_H
#define KERNEL_LOCK_H

#include "site.h"
#include "types.h"

struct spinlock {
	u32 taken;
};

static inline void spin_lock(struct spinlock *lock)
{
	while (__atomic_exchange_n(&lock->taken, 1, __ATOMIC_ACQUIRE))
		pause();
}

static inline void spin_unlock(struct spinlock *lock)
{
	__atomic_store_n(&lock->taken, 0, __ATOMIC_RELEASE);
}

#endif
