// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * flushes CPU COUNT: on this CPU, writes a block of /dev/vda COUNT times, and waits each time until
 * it is on the disk. Prints the median of the times that the last third took, in us.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static int compare(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int cpu = argc > 1 ? atoi(argv[1]) : -1, count = argc > 2 ? atoi(argv[2]) : 0, i, last;
	static char block[4096];
	cpu_set_t set;
	long *took;
	int disk;

	CPU_ZERO(&set);
	if (cpu < 0 || count < 3)
		return 1;
	CPU_SET(cpu, &set);
	disk = open("/dev/vda", O_RDWR);
	took = calloc(count, sizeof(*took));
	if (sched_setaffinity(0, sizeof(set), &set) || disk < 0 || !took)
		return 1;
	for (i = 0; i < count; i++) {
		long start = now_us();

		block[0]++;
		if (pwrite(disk, block, sizeof(block), 0) != sizeof(block) || fdatasync(disk))
			return 1;
		took[i] = now_us() - start;
	}
	last = count / 3;
	qsort(took + count - last, last, sizeof(*took), compare);
	printf("%ld\n", took[count - 1 - last / 2]);
	return 0;
}
