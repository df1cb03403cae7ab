// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Futexes. */
#include "host/futex.h"
#include "host/call.h"
#include "state/state.h"

s64 futex_wait_host(u32 *word, u32 value, u64 deadline)
{
	struct host_timespec until;

	until.sec = (s64)(deadline / 1000000000);
	until.nsec = (s64)(deadline % 1000000000);
	return host6(futex, word, FUTEX_WAIT_BITSET, value, &until, 0, 0xffffffff);
}

s64 futex_wait(u32 *word, u32 value, u64 deadline)
{
	u64 ahead;

	if (deadline == U64_MAX)
		return host4(futex, word, FUTEX_WAIT, value, 0);
	/* The host's clock knows nothing of the suspends that the machine's clock has counted. */
	ahead = READ_ONCE(shared->s.ahead_ns);
	return futex_wait_host(word, value, deadline > ahead ? deadline - ahead : 0);
}
