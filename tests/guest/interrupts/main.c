// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * interrupts THREADS MS: threads that never stop, and one more that interrupts all of them at once
 * and waits for them, as often as it can for MS milliseconds. Prints how often.
 */
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST 64

static atomic_bool stop;

static void *spin(void *unused)
{
	(void)unused;
	while (!atomic_load_explicit(&stop, memory_order_relaxed))
		;
	return NULL;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
	unsigned int threads = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 10) : 0, i;
	long ms = argc > 2 ? strtol(argv[2], NULL, 10) : 0, times = 0, end;
	pthread_t thread[MOST];

	if (!threads || threads > MOST || ms <= 0)
		return 1;
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0))
		return 1;
	for (i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, spin, NULL))
			return 1;
	for (end = now_ms() + ms; now_ms() < end; times++)
		if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
			return 1;
	atomic_store(&stop, 1);
	for (i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	printf("%ld\n", times);
	return 0;
}
