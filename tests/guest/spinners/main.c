// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * spinners SECONDS: two processes compute for that long on the CPU that this one is on. Prints the
 * CPU time of each, what has passed, and what of that was stolen from the CPU, all in us.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The stolen time of a CPU, in us. */
static long long stolen(int cpu)
{
	FILE *file = fopen("/proc/stat", "r");
	long long ticks = -1;
	char line[512];
	int number;

	if (!file)
		exit(1);
	while (fgets(line, sizeof(line), file))
		/* The first line is of all CPUs. */
		if (line[3] != ' ' &&
		    sscanf(line, "cpu%d %*d %*d %*d %*d %*d %*d %*d %lld", &number, &ticks) == 2 &&
		    number == cpu)
			break;
	fclose(file);
	return ticks * 1000000 / sysconf(_SC_CLK_TCK);
}

/* A process that computes until this moment of CLOCK_MONOTONIC, and writes its CPU time, in us. */
static pid_t spin(long long until, int to)
{
	pid_t pid = fork();
	long long used;

	if (pid < 0)
		exit(1);
	if (pid)
		return pid;
	while (ns(CLOCK_MONOTONIC) < until)
		;
	used = ns(CLOCK_PROCESS_CPUTIME_ID) / 1000;
	_exit(write(to, &used, sizeof(used)) != sizeof(used));
}

int main(int argc, char **argv)
{
	long long begin, stolen_then, until, passed, used[2];
	int seconds = argc > 1 ? atoi(argv[1]) : 0, cpu = sched_getcpu(), pipes[2], status, i;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (seconds < 1 || sched_setaffinity(0, sizeof(one), &one) || pipe(pipes))
		return 1;
	begin = ns(CLOCK_MONOTONIC);
	stolen_then = stolen(cpu);
	until = begin + seconds * 1000000000LL;
	for (i = 0; i < 2; i++)
		spin(until, pipes[1]);
	for (i = 0; i < 2; i++)
		if (read(pipes[0], &used[i], sizeof(used[i])) != sizeof(used[i]) ||
		    wait(&status) < 0 || status)
			return 1;
	passed = (ns(CLOCK_MONOTONIC) - begin) / 1000;
	printf("%lld %lld %lld %lld\n", used[0], used[1], passed, stolen(cpu) - stolen_then);
	return 0;
}
