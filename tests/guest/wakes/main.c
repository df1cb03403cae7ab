// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * wakes COUNT LONG: a process wakes another one COUNT times, each time after a pause, and waits for
 * its answer. In each LONGth turn both compute for WORK_US of CPU time before that; LONG 0: never.
 *
 * Prints in how many turns both were on one CPU, and how many turns took so long that the two
 * computed one after the other.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_US 500
#define WORK_US 3000

static long now_us(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static void compute(void)
{
	long end = now_us(CLOCK_PROCESS_CPUTIME_ID) + WORK_US;

	while (now_us(CLOCK_PROCESS_CPUTIME_ID) < end)
		;
}

static int answer(int from, int to)
{
	bool computes;
	int cpu;

	while (read(from, &computes, sizeof(computes)) == sizeof(computes)) {
		if (computes)
			compute();
		cpu = sched_getcpu();
		if (write(to, &cpu, sizeof(cpu)) != sizeof(cpu))
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	int count = argc > 2 ? atoi(argv[1]) : 0, every = argc > 2 ? atoi(argv[2]) : -1, i, cpu;
	const struct timespec pause = { .tv_nsec = PAUSE_US * 1000L };
	int there[2], back[2], together = 0, in_turn = 0;

	if (count <= 0 || every < 0 || pipe(there) || pipe(back))
		return 1;
	switch (fork()) {
	case -1:
		return 1;
	case 0:
		close(there[1]);
		return answer(there[0], back[1]);
	}
	for (i = 1; i <= count; i++) {
		bool computes = every && i % every == 0;
		long start;

		nanosleep(&pause, NULL);
		start = now_us(CLOCK_MONOTONIC);
		if (write(there[1], &computes, sizeof(computes)) != sizeof(computes))
			return 1;
		if (computes)
			compute();
		if (read(back[0], &cpu, sizeof(cpu)) != sizeof(cpu))
			return 1;
		together += cpu == sched_getcpu();
		in_turn += now_us(CLOCK_MONOTONIC) - start > WORK_US * 5 / 3;
	}
	printf("%d %d\n", together, in_turn);
	return 0;
}
