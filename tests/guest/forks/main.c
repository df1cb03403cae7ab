// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * forks STEP CHILD_STEP [STRIDE]: a process that has written many pages forks again and again, and
 * writes to 8 of them after each fork: to the same ones if STEP is 0, else STEP pages further each
 * time. The child does so with 6 others and CHILD_STEP, and exits. The pages are STRIDE pages
 * apart, or neighbours. Prints how many faults the process takes for 100 forks, how many its
 * children take, and how many of the pages a child had for itself at most when it began. Ends with
 * 1 if a process sees what another one has written.
 */
#include <fcntl.h>
#include <stdint.h>
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

static unsigned long stride = 1;

static void write_pages(unsigned char *memory, unsigned char *expected, unsigned long first,
			unsigned long count)
{
	unsigned long i, page;

	for (i = 0; i < count; i++) {
		page = (first + i * stride) % PAGES;
		memory[page * PAGE]++;
		expected[page]++;
	}
}

static int as_expected(const unsigned char *memory, const unsigned char *expected)
{
	unsigned long i;

	for (i = 0; i < PAGES; i++)
		if (memory[i * PAGE] != expected[i])
			return 0;
	return 1;
}

/* The number of pages that no other process maps, or -1. */
static int own_pages(const unsigned char *memory)
{
	static uint64_t entries[PAGES];
	off_t place = (uintptr_t)memory / PAGE * sizeof(*entries);
	int file = open("/proc/self/pagemap", O_RDONLY), count = 0;
	unsigned long i;

	if (file < 0 || pread(file, entries, sizeof(entries), place) != sizeof(entries))
		return -1;
	for (i = 0; i < PAGES; i++)
		count += entries[i] >> 56 & 1;
	return count;
}

/* What a child does in a round before those that are counted. Its status: its own pages, or 255. */
static int look(unsigned char *memory, unsigned char *expected, unsigned long first)
{
	int own = own_pages(memory);

	if (own < 0 || own > 254 || !as_expected(memory, expected))
		return 255;
	write_pages(memory, expected, first, CHILD_WRITTEN);
	return as_expected(memory, expected) ? own : 255;
}

int main(int argc, char **argv)
{
	unsigned long step = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, first = PAGES / 2, i;
	unsigned long child_step = argc > 2 ? strtoul(argv[2], NULL, 10) : 0, child_first = 0;
	unsigned char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static unsigned char expected[PAGES];
	long before = 0, before_children = 0;
	int round, status, own = 0;

	if (argc < 3 || memory == MAP_FAILED)
		return 1;
	if (argc > 3)
		stride = strtoul(argv[3], NULL, 10);
	/* Single pages, as after a fork and a write. */
	madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE);
	for (i = 0; i < PAGES; i++)
		memory[i * PAGE] = expected[i] = 1;
	for (round = 0; round < 2 * FORKS; round++, first += step, child_first += child_step) {
		pid_t child = fork();

		if (child < 0)
			return 1;
		if (!child) {
			if (round < FORKS)
				_exit(look(memory, expected, child_first));
			write_pages(memory, expected, child_first, CHILD_WRITTEN);
			_exit(0);
		}
		if (waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
		    WEXITSTATUS(status) == 255)
			return 1;
		if (WEXITSTATUS(status) > own)
			own = WEXITSTATUS(status);
		if (round < FORKS && !as_expected(memory, expected))
			return 1;
		write_pages(memory, expected, first, WRITTEN);
		if (round == FORKS - 1) {
			before = faults(RUSAGE_SELF);
			before_children = faults(RUSAGE_CHILDREN);
		}
	}
	printf("%ld %ld %d\n", (faults(RUSAGE_SELF) - before) * 100 / FORKS,
	       (faults(RUSAGE_CHILDREN) - before_children) * 100 / FORKS, own);
	return 0;
}
