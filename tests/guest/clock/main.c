// SPDX-License-Identifier: Apache-2.0 OR MIT
/* For each line that it reads it prints CLOCK_MONOTONIC and CLOCK_REALTIME, in nanoseconds. */
#include <stdio.h>
#include <time.h>

static long long nanoseconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(void)
{
	char line[16];

	while (fgets(line, sizeof(line), stdin)) {
		printf("%lld %lld\n", nanoseconds(CLOCK_MONOTONIC), nanoseconds(CLOCK_REALTIME));
		fflush(stdout);
	}
	return 0;
}
