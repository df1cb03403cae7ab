// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * expiries timerfd|sleep COUNT PERIOD_US: waits for that many expiries of a timer with this period,
 * by reads of a timerfd or by clock_nanosleep() to the end of each period. Prints how long that
 * took, in us, how many waits it took, and how many of these ended less than a period late.
 *
 * A timer with the resolution of a tick ends as soon: it expires late, and then many times at once.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static struct timespec timespec_of(int64_t ns)
{
	return (struct timespec){ ns / 1000000000, ns % 1000000000 };
}

static int timer(int64_t begin, int64_t period)
{
	struct itimerspec when = { timespec_of(period), timespec_of(begin + period) };
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);

	if (fd < 0 || timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL))
		exit(1);
	return fd;
}

int main(int argc, char **argv)
{
	int64_t count, period, begin, done = 0;
	long waits = 0, timely = 0;
	int fd = -1;

	if (argc != 4)
		return 1;
	count = atoll(argv[2]);
	period = atoll(argv[3]) * 1000;
	begin = now();
	if (!strcmp(argv[1], "timerfd"))
		fd = timer(begin, period);
	while (done < count) {
		uint64_t expired = 0;

		if (fd >= 0) {
			if (read(fd, &expired, sizeof(expired)) != sizeof(expired))
				return 1;
		} else {
			struct timespec end = timespec_of(begin + (done + 1) * period);

			if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL))
				return 1;
			expired = (uint64_t)((now() - begin) / period - done);
		}
		waits++;
		timely += expired == 1;
		done += (int64_t)expired;
	}
	printf("%" PRId64 " %ld %ld\n", (now() - begin) / 1000, waits, timely);
	return 0;
}
