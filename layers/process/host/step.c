// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Delays for the stress test. */
#include "host/step.h"
#include "host/call.h"
#include "host/clock.h"
#include "host/futex.h"
#include "state/cpu.h"

#ifdef PROCESS_STEPS
void step(void)
{
	static u64 state = 88172645463325252ULL;
	u64 random, i;
	u32 never = 0;

	/* Threads may race here: any value will do. */
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	random = state ^ rdtsc();
	switch (random & 63) {
	case 0:
		futex_wait(&never, 0, now_ns() + (random >> 8 & 0x3ffff));
		break;
	case 1 ... 3:
		host0(sched_yield);
		break;
	case 4 ... 11:
		for (i = random >> 8 & 0xfff; i; i--)
			cpu_relax();
		break;
	}
}
#endif
