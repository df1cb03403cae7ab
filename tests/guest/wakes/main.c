// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * wakes COUNT LONG: a process wakes another one COUNT times, each time after a pause, and waits for
 * its answer. Before each LONGth wait it computes for WORK_US; LONG 0: it never does.
 *
 * Prints how often both were on one CPU, and how often the other process ran later than LATE_US
 * after it was woken.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_US 500
#define WORK_US 3000
#define LATE_US 1000

static long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

struct answer {
	int cpu;
	int late;
};

static int answer(int from, int to)
{
	struct answer answer;
	long sent;

	while (read(from, &sent, sizeof(sent)) == sizeof(sent)) {
		answer.late = now_us() - sent > LATE_US;
		answer.cpu = sched_getcpu();
		if (write(to, &answer, sizeof(answer)) != sizeof(answer))
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	int count = argc > 2 ? atoi(argv[1]) : 0, every = argc > 2 ? atoi(argv[2]) : -1, i;
	const struct timespec pause = { .tv_nsec = PAUSE_US * 1000L };
	int there[2], back[2], together = 0, late = 0;
	struct answer one;

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
		long sent;

		nanosleep(&pause, NULL);
		sent = now_us();
		if (write(there[1], &sent, sizeof(sent)) != sizeof(sent))
			return 1;
		while (every && i % every == 0 && now_us() < sent + WORK_US)
			;
		if (read(back[0], &one, sizeof(one)) != sizeof(one))
			return 1;
		together += one.cpu == sched_getcpu();
		late += one.late;
	}
	printf("%d %d\n", together, late);
	return 0;
}
