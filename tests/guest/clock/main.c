// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * For each line that it reads it prints the time-stamp counter, CLOCK_MONOTONIC and CLOCK_REALTIME
 * of one moment, and how long the reading took by the counter. Times are in nanoseconds. The
 * counter is the host's, so the host can compute the moment from it.
 */
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

#define TRIES 5

static long long nanoseconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static unsigned long long counter(void)
{
	_mm_lfence();
	return __rdtsc();
}

int main(void)
{
	char line[16];

	while (fgets(line, sizeof(line), stdin)) {
		unsigned long long best = -1ULL, at = 0;
		long long monotonic = 0, real = 0;
		int i;

		/* The processor may be taken away during a try. */
		for (i = 0; i < TRIES; i++) {
			unsigned long long before = counter();
			long long first = nanoseconds(CLOCK_MONOTONIC);
			long long second = nanoseconds(CLOCK_REALTIME);
			unsigned long long width = counter() - before;

			if (width >= best)
				continue;
			best = width;
			at = before + width / 2;
			monotonic = first;
			real = second;
		}
		printf("%llu %lld %lld %llu\n", at, monotonic, real, best);
		fflush(stdout);
	}
	return 0;
}
