// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Page faults, and mappings. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include "micro.h"

#define REGION_PAGES 256UL
#define MAPPING (64UL << 10)
#define FILE_PAGES 128UL
#define NEIGHBOURS 16UL

/*
 * Fresh private memory between two guards: it does not merge with other mappings, and has no room
 * for a huge page of 2 MiB.
 */
static char *region_map(void)
{
	size_t size = (REGION_PAGES + 2) * PAGE;
	char *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (base == MAP_FAILED)
		must(-1, "mmap");
	must(mprotect(base + PAGE, REGION_PAGES * PAGE, PROT_READ | PROT_WRITE), "mprotect");
	return base + PAGE;
}

static void region_unmap(char *base)
{
	must(munmap(base - PAGE, (REGION_PAGES + 2) * PAGE), "munmap");
}

static void touch(char *base, unsigned long pages)
{
	unsigned long i;

	for (i = 0; i < pages; i++)
		*(volatile char *)(base + i * PAGE) = 1;
}

static uint64_t anonymous_batch(void)
{
	char *base = region_map();
	uint64_t ns = now();

	touch(base, REGION_PAGES);
	ns = now() - ns;
	region_unmap(base);
	return ns;
}

double anonymous_fault(void)
{
	return timed_by(anonymous_batch, REGION_PAGES, batches);
}

/* A child writes to memory that it shares with its parent. */
static uint64_t cow_batch(void)
{
	char *base = region_map();
	uint64_t ns = 0, start;
	int ends[2];
	pid_t child;

	touch(base, REGION_PAGES);
	must(pipe(ends), "pipe");
	child = (pid_t)must(fork(), "fork");
	if (!child) {
		start = now();
		touch(base, REGION_PAGES);
		ns = now() - start;
		_exit(write(ends[1], &ns, sizeof(ns)) != sizeof(ns));
	}
	if (read(ends[0], &ns, sizeof(ns)) != sizeof(ns))
		must(-1, "read");
	must(waitpid(child, NULL, 0), "waitpid");
	close(ends[0]);
	close(ends[1]);
	region_unmap(base);
	return ns;
}

double cow_fault(void)
{
	return timed_by(cow_batch, REGION_PAGES, batches);
}

/* The instructions of the batches below are 3 bytes long: the handler skips them. */
static void skip(int signal, siginfo_t *info, void *context)
{
	ucontext_t *c = context;

	(void)signal;
	(void)info;
	c->uc_mcontext.gregs[REG_RIP] += 3;
}

static char *read_only;

static void protection_batch(unsigned long operations)
{
	while (operations--)
		asm volatile("movb $1, (%%rdi)" : : "D"(read_only) : "memory");
}

static void skip_on(int signal)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = skip;
	action.sa_flags = SA_SIGINFO;
	must(sigaction(signal, &action, NULL), "sigaction");
}

double protection_fault(void)
{
	skip_on(SIGSEGV);
	read_only = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (read_only == MAP_FAILED)
		must(-1, "mmap");
	return timed(protection_batch);
}

static void divide_batch(unsigned long operations)
{
	/* The handler preserves the registers. */
	while (operations--)
		asm volatile("divq %0" : : "r"(0UL), "a"(1UL), "d"(0UL) : "cc");
}

double divide_by_zero(void)
{
	skip_on(SIGFPE);
	return timed(divide_batch);
}

static int file;

/*
 * Pages of a file that are in memory. The kernel maps aligned neighbours together with the touched
 * page.
 */
static uint64_t file_batch(void)
{
	char *room = mmap(NULL, (FILE_PAGES + NEIGHBOURS) * PAGE, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	volatile char *base =
		(char *)(((uintptr_t)room + NEIGHBOURS * PAGE - 1) & -(NEIGHBOURS * PAGE));
	unsigned long i;
	uint64_t ns;

	if (room == MAP_FAILED ||
	    mmap((void *)base, FILE_PAGES * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file,
		 0) == MAP_FAILED)
		must(-1, "mmap");
	ns = now();
	for (i = 0; i < FILE_PAGES; i++)
		(void)base[i * PAGE];
	ns = now() - ns;
	must(munmap(room, (FILE_PAGES + NEIGHBOURS) * PAGE), "munmap");
	return ns;
}

double file_fault(void)
{
	/* This program: the file is large enough. */
	file = (int)must(open("./micro", O_RDONLY), "./micro");
	return timed_by(file_batch, FILE_PAGES, batches);
}

static void mmap_batch(unsigned long operations)
{
	char *base;

	while (operations--) {
		base = mmap(NULL, MAPPING, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
		if (base == MAP_FAILED)
			must(-1, "mmap");
		touch(base, MAPPING / PAGE);
		must(munmap(base, MAPPING), "munmap");
	}
}

double mmap_munmap(void)
{
	return timed(mmap_batch);
}
