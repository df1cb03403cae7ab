// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * answers TIMES US: a process on CPU 0 sends a byte to one on CPU 1 through a pipe and waits for
 * the answer, TIMES times. Each byte takes its sender US microseconds of work. At the end it prints
 * `done`.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void be_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		_exit(1);
}

static long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void work(long us)
{
	long long end = now_ns() + us * 1000LL;

	while (now_ns() < end)
		;
}

static void answer(int from, int to, long us)
{
	char byte;

	be_on(1);
	while (read(from, &byte, 1) == 1) {
		work(us);
		if (write(to, &byte, 1) != 1)
			_exit(1);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	long times = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	long us = argc > 2 ? strtol(argv[2], NULL, 10) : -1;
	int there[2], back[2], status;
	char byte = 0;

	if (times <= 0 || us < 0 || pipe(there) || pipe(back))
		return 1;
	be_on(0);
	if (!fork()) {
		close(there[1]);
		answer(there[0], back[1], us);
	}
	close(there[0]);
	while (times--) {
		work(us);
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			return 1;
	}
	close(there[1]);
	if (wait(&status) < 0 || status)
		return 1;
	puts("done");
	return 0;
}
