/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Waiting for a word of memory. */
#ifndef PROCESS_FUTEX_H
#define PROCESS_FUTEX_H

#include "host/call.h"

static inline void futex_wake(u32 *word, u32 count)
{
	host3(futex, word, FUTEX_WAKE, count);
}

/* Waits while *word is value; deadline is CLOCK_MONOTONIC in ns, all ones for none. */
s64 futex_wait(u32 *word, u32 value, u64 deadline);

#endif
