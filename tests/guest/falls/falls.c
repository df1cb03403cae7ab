// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Has the time-stamp counter begin again, as far as the kernel knows, and reads the clocks on each
 * of that many CPUs meanwhile, in phases: nothing happens; the counter falls while the kernel does
 * not care; the kernel cares again; the counter falls, twice. For each phase and CPU it prints for
 * how long CLOCK_MONOTONIC stood by the counter, for how long it may have stood, by how much it was
 * below what was read before, how much of the time the scheduler has seen the program run, and then
 * how long a sleep took. It times itself by the counter, since the clocks may stand.
 *
 *	falls CPUS
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define CPUS		8
#define SLEEP_NS	50000000
/* Between two readings, the CPU may have had no processor. */
#define OBSERVED_NS	1000000

enum phase { NOTHING, CARELESS, CARES, FALLS, FALLS_AGAIN, PHASES, END };

struct record {
	unsigned long long standing, may_stand, back, passed, ran;
};

static struct record records[CPUS][PHASES];
static volatile int phase;
static double counts_per_ns;

static unsigned long long counter(void)
{
	_mm_lfence();
	return __rdtsc();
}

static unsigned long long ns_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static void on(long cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		perror("sched_setaffinity");
		exit(1);
	}
}

/* Reads the clock in one phase, for that long if it is not 0. */
static void watch(struct record *record, int mine, unsigned long long ns)
{
	static __thread unsigned long long last;
	unsigned long long begin = counter(), before = begin, moved = begin, standing = 0, at, now;
	unsigned long long ran = ns_of(CLOCK_THREAD_CPUTIME_ID);

	do {
		at = counter();
		now = ns_of(CLOCK_MONOTONIC);
		if (now > last) {
			last = now;
			moved = at;
			standing = 0;
		} else {
			if (at - before < OBSERVED_NS * counts_per_ns)
				standing += at - before;
			if (standing > record->standing)
				record->standing = standing;
			if (at - moved > record->may_stand)
				record->may_stand = at - moved;
			if (last - now > record->back)
				record->back = last - now;
		}
		before = at;
	} while (ns ? at - begin < ns * counts_per_ns : phase == mine);
	record->passed = at - begin;
	record->ran = ns_of(CLOCK_THREAD_CPUTIME_ID) - ran;
}

static void *watcher(void *argument)
{
	long cpu = (long)argument;
	int mine;

	on(cpu);
	while ((mine = phase) != END)
		watch(&records[cpu][mine], mine, 0);
	return NULL;
}

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);

	if (file < 0 || write(file, text, strlen(text)) < 0) {
		perror(path);
		exit(1);
	}
	close(file);
}

static void care(const char *whether)
{
	put("/sys/module/vmi/parameters/clock", whether);
}

static void fall(void)
{
	put("/sys/kernel/debug/vmi/clock", "fell 3600");
}

int main(int count, char **words)
{
	static const unsigned long long lengths[PHASES] = {
		300000000, 500000000, 1000000000, 1000000000, 1000000000,
	};
	long cpus = count == 2 ? strtol(words[1], NULL, 10) : 0, cpu;
	const struct timespec sleep = { .tv_nsec = SLEEP_NS };
	unsigned long long begin, since;
	pthread_t threads[CPUS];

	if (cpus < 1 || cpus > CPUS)
		return 2;
	on(0);
	begin = counter();
	since = ns_of(CLOCK_MONOTONIC);
	while (ns_of(CLOCK_MONOTONIC) - since < 100000000)
		;
	counts_per_ns = (double)(counter() - begin) / (ns_of(CLOCK_MONOTONIC) - since);
	for (cpu = 1; cpu < cpus; cpu++)
		if (pthread_create(&threads[cpu], NULL, watcher, (void *)cpu))
			return 1;
	for (; phase < PHASES; phase++) {
		if (phase == CARELESS)
			care("0");
		if (phase == CARES)
			care("1");
		else if (phase != NOTHING)
			fall();
		watch(&records[0][phase], phase, lengths[phase]);
	}
	phase = END;
	for (cpu = 1; cpu < cpus; cpu++)
		pthread_join(threads[cpu], NULL);
	for (int i = 0; i < PHASES; i++)
		for (cpu = 0; cpu < cpus; cpu++) {
			const struct record *r = &records[cpu][i];

			printf("phase %d cpu %ld standing_us %.0f may_stand_us %.0f back_us %llu "
			       "ran_permille %.0f\n", i, cpu, r->standing / counts_per_ns / 1000,
			       r->may_stand / counts_per_ns / 1000, r->back / 1000,
			       1000 * r->ran * counts_per_ns / r->passed);
		}
	fall();
	begin = counter();
	nanosleep(&sleep, NULL);
	printf("sleep_ms %.0f\n", (counter() - begin) / counts_per_ns / 1000000);
	return 0;
}
