// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * For sanitizers: a program with threads, a fork and mappings that has no fault, or the fault that
 * its argument names.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 2000
#define SIZE 4096

static int counter;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *with_lock)
{
	for (int i = 0; i < ROUNDS; i++) {
		char *block = malloc((size_t)(i % SIZE + 1));

		block[i % SIZE] = (char)i;
		if (with_lock)
			pthread_mutex_lock(&lock);
		counter += block[i % SIZE] == (char)i;
		if (with_lock)
			pthread_mutex_unlock(&lock);
		free(block);
	}
	return NULL;
}

static int threads(void *with_lock)
{
	pthread_t all[THREADS];

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&all[i], NULL, work, with_lock))
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(all[i], NULL);
	return 0;
}

static int clean(void)
{
	int status;
	pid_t child;
	char *pages = mmap(NULL, 64 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			   0);

	if (pages == MAP_FAILED)
		return 1;
	memset(pages, 1, 64 * SIZE);
	child = fork();
	if (!child)
		_exit(pages[SIZE] + 1);
	if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 2)
		return 1;
	munmap(pages, 64 * SIZE);
	if (threads(&lock) || counter != THREADS * ROUNDS)
		return 1;
	puts("clean");
	return 0;
}

int main(int argc, char **argv)
{
	const char *fault = argc > 1 ? argv[1] : "";
	volatile int index = SIZE;

	if (!strcmp(fault, "overflow")) {
		volatile char *block = malloc(SIZE);

		block[index] = 1;
		free((void *)block);
	} else if (!strcmp(fault, "leak")) {
		char *volatile block = malloc(SIZE);

		block[0] = 1;
		block = NULL;
	} else if (!strcmp(fault, "shift")) {
		printf("%d\n", 1 << (index - SIZE + 40));
	} else if (!strcmp(fault, "race")) {
		return threads(NULL);
	} else {
		return clean();
	}
	return 0;
}
