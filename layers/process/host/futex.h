/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Futexes. */
#ifndef PROCESS_FUTEX_H
#define PROCESS_FUTEX_H

#include "host/call.h"

static inline void futex_wake(u32 *word, u32 count)
{
	host3(futex, word, FUTEX_WAKE, count);
}

/* Waits while *word is value. deadline: in ns, of the clock of now_ns(); U64_MAX for none. */
s64 futex_wait(u32 *word, u32 value, u64 deadline);
/* Waits in the same way. deadline: a time of the host's CLOCK_MONOTONIC. */
s64 futex_wait_host(u32 *word, u32 value, u64 deadline);

#endif
