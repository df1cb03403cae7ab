// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * times SECONDS [PART]: a thread on each CPU reads CLOCK_MONOTONIC, all the time or PART percent of
 * each 20 ms. Prints how often it was less than another CPU had read before, and for each CPU the
 * time that /proc/stat has for it, user to steal, in percent of the time that has passed.
 *
 * A CPU's times are as of its last tick. So each thread reads those of its own CPU, just after one.
 * It waits for the others before that: what one reads of a CPU that was woken and has no processor
 * counts as idle, until it is taken from that CPU's next idle time.
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
#define PERIOD_NS 20000000LL
/* Looks with a longer time between them were interrupted. */
#define SHORT_NS 2000000LL
#define TRIES 20000

/* The times of a CPU in ticks, by their place in /proc/stat, and when they were read. */
struct look {
	long long when, ticks[8];
};

static atomic_bool stop;
static atomic_llong latest;
static atomic_long arrived;
static atomic_long backwards;
static long part = 100, cpus;
static struct look first[MOST], last[MOST];

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void read_ticks(int cpu, long long *v)
{
	char line[512];
	FILE *file = fopen("/proc/stat", "r");
	int number;

	if (!file)
		exit(1);
	while (fgets(line, sizeof(line), file)) {
		/* The first line is of all CPUs. */
		if (line[3] != ' ' &&
		    sscanf(line, "cpu%d %lld %lld %lld %lld %lld %lld %lld %lld", &number, &v[0],
			   &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) == 9 && number == cpu)
			break;
	}
	fclose(file);
}

static long long sum_of(const struct look *one)
{
	long long sum = 0;
	int i;

	for (i = 0; i < 8; i++)
		sum += one->ticks[i];
	return sum;
}

/* Reads again and again until the CPU has just had a tick, which no interruption hides. */
static void look(int cpu, struct look *found)
{
	struct look one = { 0 };
	int i;

	for (i = 0; i < TRIES; i++) {
		long long before = sum_of(&one), begun = one.when;

		read_ticks(cpu, one.ticks);
		one.when = now();
		if (i && sum_of(&one) != before && one.when - begun < SHORT_NS)
			break;
	}
	*found = one;
}

/* Returns when each thread has called this as often, and none sleeps. */
static void meet(long times)
{
	atomic_fetch_add(&arrived, 1);
	while (atomic_load(&arrived) < times * cpus)
		;
}

static void *watch(void *arg)
{
	int cpu = (int)(long)arg;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		exit(1);
	meet(1);
	look(cpu, &first[cpu]);
	while (!atomic_load(&stop)) {
		long long before = atomic_load(&latest), mine = now(), rest;

		if (mine < before)
			atomic_fetch_add(&backwards, 1);
		while (before < mine && !atomic_compare_exchange_weak(&latest, &before, mine))
			;
		rest = PERIOD_NS - mine % PERIOD_NS;
		if (rest <= PERIOD_NS / 100 * (100 - part))
			nanosleep(&(struct timespec){ .tv_nsec = rest }, NULL);
	}
	meet(2);
	look(cpu, &last[cpu]);
	return NULL;
}

int main(int argc, char **argv)
{
	long seconds = argc > 1 ? atol(argv[1]) : 0, i;
	pthread_t thread[MOST];

	cpus = sysconf(_SC_NPROCESSORS_ONLN);
	if (argc > 2)
		part = atol(argv[2]);
	if (seconds < 1 || cpus > MOST || part < 1 || part > 100)
		return 1;
	for (i = 0; i < cpus; i++)
		if (pthread_create(&thread[i], NULL, watch, (void *)i))
			return 1;
	puts("begun");
	fflush(stdout);
	sleep((unsigned int)seconds);
	atomic_store(&stop, 1);
	for (i = 0; i < cpus; i++)
		pthread_join(thread[i], NULL);
	for (i = 0; i < cpus; i++) {
		double percent = 1e11 / (double)(last[i].when - first[i].when) /
				 (double)sysconf(_SC_CLK_TCK);
		double share[8], sum = 0;
		int state;

		for (state = 0; state < 8; state++) {
			share[state] = percent *
				       (double)(last[i].ticks[state] - first[i].ticks[state]);
			sum += share[state];
		}
		printf("cpu%ld %.2f stolen %.2f user %.2f system %.2f idle %.2f\n", i, sum,
		       share[7], share[0] + share[1], share[2] + share[5] + share[6],
		       share[3] + share[4]);
	}
	printf("backwards %ld\n", atomic_load(&backwards));
	return 0;
}
