// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * rows FILE PAGES PATTERN: writes to pages of a private mapping of a new file, and prints the page
 * faults that took and the mapping's pages of the process's own. With -f before them, the mapping
 * is anonymous memory that a parent has filled, and its child writes; the file is ignored.
 *
 * row: one after the other; seen: the same, and all were read before; half: each second one;
 * pairs: two of each 32; cut: the first half in a row, then the file loses all, and what is beyond
 * its end must be gone; open: a row, while the file is open for writing; shared: a row, while the
 * file has a shared mapping that can be written. In the last two, each page must show what the file
 * becomes just before the program writes to the page.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define WORDS (PAGE / 8)

static void check(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static uint64_t initial(long page, long word)
{
	return (uint64_t)page << 32 | (uint64_t)word;
}

/* A new file, open for reading and writing. */
static int new_file(const char *path, long pages)
{
	int file = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
	uint64_t words[WORDS];

	check(file >= 0, path);
	for (long page = 0; page < pages; page++) {
		for (long i = 0; i < WORDS; i++)
			words[i] = initial(page, i);
		check(write(file, words, PAGE) == PAGE, "write");
	}
	return file;
}

static long faults(void)
{
	struct rusage usage;

	check(!getrusage(RUSAGE_SELF, &usage), "getrusage");
	return usage.ru_minflt + usage.ru_majflt;
}

/* The mapping's pages that smaps counts in a line. */
static long own_pages(const void *start, const char *line_format)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	char line[512], begin[32];
	int found = 0;
	long kib = -1;

	check(maps != NULL, "smaps");
	snprintf(begin, sizeof(begin), "%lx-", (long)start);
	while (kib < 0 && fgets(line, sizeof(line), maps)) {
		found |= !strncmp(line, begin, strlen(begin));
		if (found)
			sscanf(line, line_format, &kib);
	}
	fclose(maps);
	return kib / (PAGE / 1024);
}

static int is_written(const char *pattern, long page, long pages)
{
	if (!strcmp(pattern, "none"))
		return 0;
	if (!strcmp(pattern, "half"))
		return page % 2 == 0;
	if (!strcmp(pattern, "pairs"))
		return page % 32 < 2;
	return strcmp(pattern, "cut") || page < pages / 2;
}

static sigjmp_buf after_fault;

static void bus_error(int number)
{
	(void)number;
	siglongjmp(after_fault, 1);
}

/* Each page of a file that has no bytes any more must raise SIGBUS. */
static void check_gone(volatile uint64_t *map, long pages)
{
	static volatile long page;

	signal(SIGBUS, bus_error);
	for (page = 0; page < pages; page++) {
		if (sigsetjmp(after_fault, 1))
			continue;
		(void)map[page * WORDS];
		printf("page %ld is still there\n", (long)page);
		exit(1);
	}
}

/* The word of a page that the program writes becomes another, by the mapping or by the file. */
static void change(int writer, volatile uint64_t *shared, long page, uint64_t word)
{
	long at = page * WORDS + page % WORDS;

	if (shared)
		shared[at] = word;
	else
		check(pwrite(writer, &word, 8, at * 8) == 8, "pwrite");
}

/* Each page must have its first words, except for those that were written. */
static void check_words(volatile uint64_t *map, long pages, const char *pattern)
{
	for (long page = 0; page < pages; page++)
		for (long i = 0; i < WORDS; i++) {
			int written = i == page % WORDS && is_written(pattern, page, pages);
			uint64_t want = initial(page, i) + (written ? 5 : 0);

			if (map[page * WORDS + i] == want)
				continue;
			printf("page %ld, word %ld: %lx\n", page, i, (long)map[page * WORDS + i]);
			exit(1);
		}
}

/* A child writes to what its parent has filled, and changes nothing of its parent's. */
static int write_forked(long pages, const char *pattern)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	volatile uint64_t *map = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
	int status;
	long took;

	check(map != MAP_FAILED, "mmap");
	for (long page = 0; page < pages; page++)
		for (long i = 0; i < WORDS; i++)
			map[page * WORDS + i] = initial(page, i);
	if (!fork()) {
		took = faults();
		for (long page = 0; page < pages; page++)
			if (is_written(pattern, page, pages))
				map[page * WORDS + page % WORDS] += 5;
		took = faults() - took;
		check_words(map, pages, pattern);
		printf("%ld %ld\n", took, own_pages((void *)map, "Private_Dirty: %ld"));
		fflush(stdout);
		_exit(0);
	}
	check(wait(&status) > 0, "wait");
	check_words(map, pages, "none");
	return status != 0;
}

int main(int count, char **words)
{
	long pages = count == 4 ? atol(words[2]) : 0, took, own;
	const char *pattern = pages > 0 ? words[3] : "";
	volatile uint64_t *map, *shared = NULL;
	uint64_t sum = 0;
	int file, writer;
	bool changes;

	if (count == 5 && !strcmp(words[1], "-f"))
		return write_forked(atol(words[3]), words[4]);
	if (pages <= 0)
		return 2;
	changes = !strcmp(pattern, "open") || !strcmp(pattern, "shared");
	writer = new_file(words[1], pages);
	if (!strcmp(pattern, "shared")) {
		shared = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0);
		check(shared != MAP_FAILED, "mmap shared");
	}
	if (strcmp(pattern, "open"))
		close(writer);
	file = open(words[1], O_RDONLY);
	check(file >= 0, words[1]);
	map = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	check(map != MAP_FAILED, "mmap");
	if (!strcmp(pattern, "seen"))
		for (long page = 0; page < pages; page++)
			sum += map[page * WORDS];
	took = faults();
	for (long page = 0; page < pages; page++) {
		volatile uint64_t *word = map + page * WORDS + page % WORDS;

		if (changes)
			change(writer, shared, page, *word + 1);
		if (is_written(pattern, page, pages))
			*word += changes ? 4 : 5;
	}
	took = faults() - took;
	own = own_pages((void *)map, "Anonymous: %ld");
	check_words(map, pages, pattern);
	if (!strcmp(pattern, "cut")) {
		check(!truncate(words[1], 0), "truncate");
		check_gone(map, pages);
	}
	printf("%ld %ld\n", took, own);
	return sum == 1;
}
