// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Batches, and their median. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "micro.h"

unsigned int batches = 51;

uint64_t ticks(void)
{
	uint32_t low, high;

	__asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

static int counting(void)
{
	static int counter = -1;

	if (counter < 0)
		counter = getenv(COUNTER) != NULL;
	return counter;
}

uint64_t now(void)
{
	struct timespec t;

	if (counting())
		return ticks();

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

long must(long result, const char *what)
{
	if (result >= 0)
		return result;
	fprintf(stderr, "micro: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

static double median(double *values, unsigned int count)
{
	qsort(values, count, sizeof(*values), compare);
	return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static double *room(unsigned int count)
{
	double *values = calloc(count, sizeof(*values));

	if (!values)
		must(-1, "calloc");
	return values;
}

/*
 * A machine that has just started gets most of its memory from its host at first touch, and the
 * host has been running for long. So both sides do the same work for a while before they measure.
 * Counts of instructions need no such warm-up.
 */
#define WARM_NS 250000000

static void warm(void (*batch)(unsigned long), unsigned long operations)
{
	uint64_t start = now();

	while (!counting() && now() - start < WARM_NS)
		batch(operations);
}

double timed(void (*batch)(unsigned long))
{
	double *values = room(batches), result;
	unsigned long operations = 1;
	/*
	 * The kernel defers work to one operation of many: counts are the same only over many
	 * operations.
	 */
	uint64_t start, ns, least = counting() ? 20 * BATCH_NS : BATCH_NS;
	unsigned int i;

	for (;;) {
		start = now();
		batch(operations);
		ns = now() - start;
		if (ns >= least)
			break;
		operations = ns < least / 16 ? operations * 8 : operations * 2;
	}
	warm(batch, operations);
	for (i = 0; i < batches; i++) {
		start = now();
		batch(operations);
		values[i] = (double)(now() - start) / (double)operations;
	}
	result = median(values, batches);
	free(values);
	return result;
}

double timed_by(uint64_t (*batch)(void), unsigned long operations, unsigned int count)
{
	double *values = room(count), result;
	unsigned int i;

	/* The first ones fill the caches. */
	batch();
	batch();
	for (i = 0; i < count; i++)
		values[i] = (double)batch() / (double)operations;
	result = median(values, count);
	free(values);
	return result;
}
