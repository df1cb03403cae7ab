// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * times SECONDS: a thread on each CPU reads CLOCK_MONOTONIC all the time. Prints how often it was
 * less than another CPU had read before, and for each CPU the time that /proc/stat has for it, user
 * to steal, in percent of the time that has passed.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MOST 64

static atomic_bool stop;
static atomic_llong latest;
static atomic_long backwards;

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *look(void *cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET((int)(long)cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		exit(1);
	while (!atomic_load(&stop)) {
		long long before = atomic_load(&latest), mine = now();

		if (mine < before)
			atomic_fetch_add(&backwards, 1);
		while (before < mine && !atomic_compare_exchange_weak(&latest, &before, mine))
			;
	}
	return NULL;
}

/* Ticks of a CPU in all states, and of those that were stolen. */
static long long ticks(int cpu, long long *stolen)
{
	long long sum = 0, v[8];
	char line[512];
	FILE *file = fopen("/proc/stat", "r");
	int number, i;

	if (!file)
		exit(1);
	while (fgets(line, sizeof(line), file)) {
		/* The first line is of all CPUs. */
		if (line[3] == ' ')
			continue;
		if (sscanf(line, "cpu%d %lld %lld %lld %lld %lld %lld %lld %lld", &number, &v[0],
			   &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) != 9 || number != cpu)
			continue;
		for (i = 0; i < 8; i++)
			sum += v[i];
		*stolen = v[7];
	}
	fclose(file);
	return sum;
}

int main(int argc, char **argv)
{
	long seconds = argc > 1 ? atol(argv[1]) : 0, cpus = sysconf(_SC_NPROCESSORS_ONLN), i;
	long long first[MOST], before[MOST], after, begun[MOST], passed;
	pthread_t thread[MOST];

	if (seconds < 1 || cpus > MOST)
		return 1;
	for (i = 0; i < cpus; i++)
		if (pthread_create(&thread[i], NULL, look, (void *)i))
			return 1;
	for (i = 0; i < cpus; i++) {
		begun[i] = now();
		first[i] = ticks((int)i, &before[i]);
	}
	sleep((unsigned int)seconds);
	for (i = 0; i < cpus; i++) {
		long long sum = ticks((int)i, &after) - first[i];

		passed = now() - begun[i];
		printf("cpu%ld %.2f stolen %.2f\n", i,
		       (double)sum * 1e9 / (double)passed * 100 / (double)sysconf(_SC_CLK_TCK),
		       (double)(after - before[i]) * 1e9 / (double)passed * 100 /
		       (double)sysconf(_SC_CLK_TCK));
	}
	atomic_store(&stop, 1);
	for (i = 0; i < cpus; i++)
		pthread_join(thread[i], NULL);
	printf("backwards %ld\n", atomic_load(&backwards));
	return 0;
}
