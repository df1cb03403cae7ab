// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * sparse N: writes to one page of each 64 KiB, N times, and prints how many pages the kernel has
 * allocated for each of them, rounded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define STEP 65536UL

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

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, i;
	char *memory = mmap(NULL, (count + 1) * STEP, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long before = resident();

	if (!count || memory == MAP_FAILED || before < 0)
		return 1;
	memory = (char *)(((unsigned long)memory + STEP - 1) & ~(STEP - 1));
	for (i = 0; i < count; i++)
		memory[i * STEP] = 1;
	printf("%ld\n", (resident() - before + (long)count / 2) / (long)count);
	return 0;
}
