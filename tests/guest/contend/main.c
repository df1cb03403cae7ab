// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * contend THREADS MS: threads that take the same spinlock of the kernel, that of the process's
 * table of files, as often as they can for MS milliseconds. Prints how often.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST 64

static atomic_bool stop;
static atomic_long all;

static void *work(void *unused)
{
	long times = 0;
	int file;

	(void)unused;
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		file = dup(0);
		if (file < 0 || close(file))
			exit(1);
		times++;
	}
	atomic_fetch_add(&all, times);
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned int threads = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 10) : 0, i;
	unsigned int ms = argc > 2 ? (unsigned int)strtoul(argv[2], NULL, 10) : 0;
	pthread_t thread[MOST];

	if (!threads || threads > MOST || !ms)
		return 1;
	for (i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, work, NULL))
			return 1;
	usleep(ms * 1000);
	atomic_store(&stop, 1);
	for (i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	printf("%ld\n", atomic_load(&all));
	return 0;
}
