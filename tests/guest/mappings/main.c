// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * mappings COUNT [FILE]: makes mappings that it does not touch, and prints how many pages the
 * kernel has prepared, in this process and in a child that does the same again. Without FILE they
 * are of 64 KiB of private memory; with FILE they are of a file, as the dynamic linker maps a
 * library: a mapping that is read, and a page of data after it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define PRIVATE (16 * PAGE)

/* Resident pages of a kind: RssAnon, RssFile. */
static long resident(const char *kind)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[128];
	long kib, pages = -1;

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, kind, strlen(kind)) &&
		    sscanf(line + strlen(kind), ": %ld", &kib) == 1)
			pages = kib / 4;
	if (file)
		fclose(file);
	return pages;
}

static void map_memory(void)
{
	if (mmap(NULL, PRIVATE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
	    MAP_FAILED)
		exit(1);
}

static void map_library(int file, unsigned long size)
{
	char *all = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);

	if (all == MAP_FAILED ||
	    mmap(all + size - PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file,
		 (off_t)(size - PAGE)) == MAP_FAILED)
		exit(1);
}

/* The file's pages are in the page cache afterwards. */
static unsigned long read_all(int file)
{
	static char bytes[1 << 16];
	struct stat stat;

	while (read(file, bytes, sizeof(bytes)) > 0)
		;
	return fstat(file, &stat) ? 0 : (unsigned long)stat.st_size;
}

static long prepared(unsigned long count, int file, unsigned long size)
{
	const char *kind = file < 0 ? "RssAnon" : "RssFile";
	long before = resident(kind);
	unsigned long i;

	for (i = 0; i < count; i++)
		if (file < 0)
			map_memory();
		else
			map_library(file, size);
	return resident(kind) - before;
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, size = 0;
	int file = -1, status = 0;

	if (argc > 2) {
		file = open(argv[2], O_RDONLY);
		size = file < 0 ? 0 : read_all(file);
		if (size < 2 * PAGE || size % PAGE)
			return 1;
	}
	printf("%ld ", prepared(count, file, size));
	fflush(stdout);
	if (!fork()) {
		printf("%ld\n", prepared(count, file, size));
		fflush(stdout);
		_exit(0);
	}
	return wait(&status) < 0 || status;
}
