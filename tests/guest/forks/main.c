// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * forks STEP CHILD_STEP: a process that has written many pages forks again and again, and writes to
 * 8 of them after each fork: to the same ones if STEP is 0, else STEP pages further each time. The
 * child does so with 6 others and CHILD_STEP, and exits. Prints how many faults the process takes
 * for 100 forks, and how many its children take.
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
#define CHILD_WRITTEN 6
#define FORKS 200

static long faults(int of)
{
	struct rusage usage;

	getrusage(of, &usage);
	return usage.ru_minflt;
}

static void write_pages(char *memory, unsigned long first, unsigned long count)
{
	unsigned long i;

	for (i = 0; i < count; i++)
		memory[(first + i) % PAGES * PAGE]++;
}

int main(int argc, char **argv)
{
	unsigned long step = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, first = PAGES / 2, i;
	unsigned long child_step = argc > 2 ? strtoul(argv[2], NULL, 10) : 0, child_first = 0;
	char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long before = 0, before_children = 0;
	int round;

	if (argc < 3 || memory == MAP_FAILED)
		return 1;
	/* Single pages, as after a fork and a write. */
	madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE);
	for (i = 0; i < PAGES; i++)
		memory[i * PAGE] = 1;
	for (round = 0; round < 2 * FORKS; round++, first += step, child_first += child_step) {
		pid_t child = fork();

		if (child < 0)
			return 1;
		if (!child) {
			write_pages(memory, child_first, CHILD_WRITTEN);
			_exit(0);
		}
		if (waitpid(child, NULL, 0) != child)
			return 1;
		write_pages(memory, first, WRITTEN);
		if (round == FORKS - 1) {
			before = faults(RUSAGE_SELF);
			before_children = faults(RUSAGE_CHILDREN);
		}
	}
	printf("%ld %ld\n", (faults(RUSAGE_SELF) - before) * 100 / FORKS,
	       (faults(RUSAGE_CHILDREN) - before_children) * 100 / FORKS);
	return 0;
}
