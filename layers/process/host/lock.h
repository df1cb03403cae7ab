/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Mutexes in memory that processes share. */
#ifndef PROCESS_LOCK_H
#define PROCESS_LOCK_H

#include "state/state.h"

void lock_take(struct lock *lock);
void lock_release(struct lock *lock);
/* Takes the lock if it is free. */
bool lock_try(struct lock *lock);

#endif
