// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * hostile=signals first=PID last=PID: SIGURG to every process of the host with a number in this
 * range.
 */
#include "hostile.h"
#include "test.h"

#define TGKILL 234
#define SIGURG 23
#define HOST_EPERM 1

/* The threads of a process have the next numbers. */
#define THREADS 4

void hostile_signals(void)
{
	u64 first = option_number("first"), last = option_number("last");
	u64 rounds = option_number("count") ?: 1;
	u64 pid, tid, reached = 0, refused = 0, missing = 0;

	for (; rounds; rounds--)
		for (pid = first; pid <= last; pid++)
			for (tid = pid; tid < pid + THREADS; tid++) {
				s64 result = (s64)host_call(TGKILL, pid, tid, SIGURG, 0, 0, 0);

				if (!result)
					reached++;
				else if (result == -HOST_EPERM)
					refused++;
				else
					missing++;
			}
	print("# signals: %llu reached, %llu refused, %llu had no target\n", reached, refused,
	      missing);
}
