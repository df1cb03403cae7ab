// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * sparse COUNT STEP [shared]: writes to one page of each STEP bytes, COUNT times, and prints how
 * many pages the kernel has allocated for each of them, rounded. STEP is a power of two.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static long resident(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long size, pages = -1;

	if (!file || fscanf(file, "%ld %ld", &size, &pages) != 2)
		pages = -1;
	if (file)
		fclose(file);
	return pages;
}

/* Shared memory of the whole machine: a process is charged only for what it has mapped. */
static long shared_memory(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[128];
	long kib, pages = -1;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Shmem: %ld", &kib) == 1)
			pages = kib / 4;
	if (file)
		fclose(file);
	return pages;
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, i;
	unsigned long step = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	bool shared = argc > 3;
	long (*allocated)(void) = shared ? shared_memory : resident;
	char *memory = mmap(NULL, (count + 1) * step, PROT_READ | PROT_WRITE,
			    (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
	long before = allocated();

	if (!count || !step || memory == MAP_FAILED || before < 0)
		return 1;
	memory = (char *)(((unsigned long)memory + step - 1) & ~(step - 1));
	for (i = 0; i < count; i++)
		memory[i * step] = 1;
	printf("%ld\n", (allocated() - before + (long)count / 2) / (long)count);
	return 0;
}
