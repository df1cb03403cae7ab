// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * grace MS: on CPU 0, waits for one grace period of RCU after the other for MS milliseconds, while
 * CPU 1 computes. Prints how many there were, and how often functions were called on CPU 1.
 */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int bind_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* The calls of functions on CPU 1 so far: the second number of the line CAL. */
static long calls(void)
{
	FILE *file = fopen("/proc/interrupts", "r");
	char line[4096];
	long first, second = -1;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, " CAL: %ld %ld", &first, &second) == 2)
			break;
	if (file)
		fclose(file);
	return second;
}

int main(int argc, char **argv)
{
	long ms = argc > 1 ? strtol(argv[1], NULL, 10) : 0, periods = 0, before;
	long long end;
	pid_t child;

	if (ms <= 0 || bind_to(0))
		return 1;
	child = fork();
	if (child < 0)
		return 1;
	if (!child) {
		if (bind_to(1) || prctl(PR_SET_PDEATHSIG, SIGKILL))
			_exit(1);
		for (;;)
			__asm__ volatile("" ::: "memory");
	}
	usleep(100000);
	before = calls();
	end = now_ms() + ms;
	do {
		if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0))
			return 1;
		periods++;
	} while (now_ms() < end);
	printf("%ld %ld\n", periods, calls() - before);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return before < 0;
}
