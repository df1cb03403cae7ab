// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * forks STEP: a process that has written many pages forks again and again, and writes to 8 of them
 * after each fork: to the same ones if STEP is 0, else STEP pages further each time. The child
 * exits at once. Prints how many faults the process takes for 100 forks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define PAGES 256UL
#define WRITTEN 8
#define FORKS 200

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

int main(int argc, char **argv)
{
	unsigned long step = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, first = PAGES / 2, i;
	char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long before = 0;
	int round;

	if (argc < 2 || memory == MAP_FAILED)
		return 1;
	/* Single pages, as after a fork and a write. */
	madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE);
	for (i = 0; i < PAGES; i++)
		memory[i * PAGE] = 1;
	for (round = 0; round < 2 * FORKS; round++, first += step) {
		pid_t child = fork();

		if (child < 0)
			return 1;
		if (!child)
			_exit(0);
		if (waitpid(child, NULL, 0) != child)
			return 1;
		for (i = 0; i < WRITTEN; i++)
			memory[(first + i) % PAGES * PAGE]++;
		if (round == FORKS - 1)
			before = faults();
	}
	printf("%ld\n", (faults() - before) * 100 / FORKS);
	return 0;
}
