// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The memory of one process: the effect of each change of a mapping on later accesses. */
#include "test.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static void fresh_is_zero(void)
{
	size_t size = 8 * MIB, i;
	uint64_t *m;
	int round;

	for (round = 0; round < 4; round++) {
		m = memory(size);
		for (i = 0; i < size / 8; i += 61)
			CHECK(m[i] == 0);
		memset(m, 0xa5, size);
		for (i = 0; i < size / 8; i += 61)
			CHECK(m[i] == 0xa5a5a5a5a5a5a5a5);
		CHECK(munmap(m, size) == 0);
		CHECK(try_read(m) == SIGSEGV && last_code == SEGV_MAPERR &&
		      last_address == (void *)m);
	}
}

static void protect(void)
{
	size_t pages = 40, i;
	char *m = memory(pages * PAGE);
	int round;

	pattern_write(m, pages * PAGE, 1);
	for (round = 0; round < 50; round++) {
		/* Runs of different length, each time at another address. */
		size_t first = (size_t)round * 7 % pages, count = 1 + (size_t)round % 9;

		if (first + count > pages)
			count = pages - first;
		CHECK(mprotect(m + first * PAGE, count * PAGE, PROT_READ) == 0);
		for (i = 0; i < pages; i++) {
			bool fixed = i >= first && i < first + count;

			CHECK(try_write(m + i * PAGE + 100,
					(unsigned char)round) == (fixed ? SIGSEGV : 0));
			if (fixed)
				CHECK(last_code == SEGV_ACCERR &&
				      last_address == m + i * PAGE + 100);
		}
		CHECK(mprotect(m + first * PAGE, count * PAGE, PROT_NONE) == 0);
		CHECK(try_read(m + first * PAGE) == SIGSEGV && last_code == SEGV_ACCERR);
		CHECK(mprotect(m + first * PAGE, count * PAGE, PROT_READ | PROT_WRITE) == 0);
		for (i = first; i < first + count; i++)
			CHECK(try_write(m + i * PAGE + 101, 1) == 0);
	}
	pattern_check(m, pages * PAGE, 1);
}

static void unmap_part(void)
{
	size_t pages = 64, i;
	char *m = memory(pages * PAGE);

	pattern_write(m, pages * PAGE, 2);
	for (i = 1; i < pages; i += 3)
		CHECK(munmap(m + i * PAGE, PAGE) == 0);
	for (i = 0; i < pages; i++) {
		CHECK(try_read(m + i * PAGE) == (i % 3 == 1 ? SIGSEGV : 0));
		if (i % 3 != 1)
			CHECK(*(volatile uint64_t *)(m + i * PAGE) ==
			      (2 * 0x9e3779b97f4a7c15 ^ i * PAGE));
	}
	CHECK(munmap(m, pages * PAGE) == 0);
	/* Over an existing mapping, and removed. */
	CHECK(memory_at(m, pages * PAGE, MAP_FIXED) == m);
	for (i = 0; i < pages; i++)
		CHECK(m[i * PAGE] == 0);
}

/* A range that goes on to the end of a processor's user space, as criu unmaps it. */
static void unmap_to_the_end(void)
{
	const unsigned long end = (1UL << 47) - PAGE;
	unsigned long last = 0, from, to;
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && to <= end)
			last = to;
	fclose(maps);
	if (last >= end - PAGE)
		skip("the stack is at the end");
	CHECK(munmap((void *)last, end - last) == 0);
	CHECK(munmap((void *)last, end) == -1 && errno == EINVAL);
}

static void remap(void)
{
	size_t size = 32 * PAGE;
	char *m = memory(size), *there, *moved;

	pattern_write(m, size, 3);
	/* A free address. */
	there = memory(3 * size);
	moved = mremap(m, size, 3 * size, MREMAP_MAYMOVE | MREMAP_FIXED, there);
	CHECK(moved == there);
	pattern_check(moved, size, 3);
	CHECK(try_read(m) == SIGSEGV);
	CHECK(moved[size] == 0 && moved[3 * size - 1] == 0);
	pattern_write(moved, 3 * size, 4);
	CHECK(mremap(moved, 3 * size, size, 0) == moved);
	CHECK(try_read(moved + size) == SIGSEGV);
	pattern_check(moved, size, 4);
	/* Page tables of 2 MiB move as a whole. */
	m = memory(8 * MIB);
	pattern_write(m, 8 * MIB, 5);
	there = memory(16 * MIB);
	moved = mremap(m, 8 * MIB, 8 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, there);
	CHECK(moved == there);
	pattern_check(moved, 8 * MIB, 5);
	CHECK(try_read(m + 5 * MIB) == SIGSEGV);
	/* The old range stays, empty. */
	m = mremap(moved, 8 * MIB, 8 * MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	CHECK(m != MAP_FAILED);
	pattern_check(m, 8 * MIB, 5);
	CHECK(try_read(moved) == 0 && *(volatile uint64_t *)(moved + MIB) == 0);
}

static void give_back(void)
{
	size_t size = 4 * MIB, i;
	char *m = memory(size);
	int round;

	for (round = 0; round < 3; round++) {
		pattern_write(m, size, 6);
		CHECK(madvise(m + PAGE, size - 2 * PAGE, MADV_DONTNEED) == 0);
		for (i = PAGE; i < size - PAGE; i += PAGE)
			CHECK(*(volatile uint64_t *)(m + i) == 0);
		CHECK(*(volatile uint64_t *)m == 6 * 0x9e3779b97f4a7c15);
		pattern_write(m, size, 7);
		CHECK(madvise(m, size, MADV_FREE) == 0);
		/* Data that is written after that stays. */
		pattern_write(m, size, 8);
		pattern_check(m, size, 8);
	}
}

static void collapse(void)
{
	size_t size = 8 * MIB;
	char *m = memory(size), *aligned = (char *)(((uintptr_t)m + 2 * MIB - 1) & ~(2 * MIB - 1));
	int round;

	size = 4 * MIB;
	if (madvise(aligned, size, MADV_NOHUGEPAGE) && errno == EINVAL)
		skip("no large pages");
	pattern_write(aligned, size, 9);
	CHECK(madvise(aligned, size, MADV_HUGEPAGE) == 0);
	if (madvise(aligned, size, MADV_COLLAPSE) && errno == EINVAL)
		skip("no MADV_COLLAPSE");
	pattern_check(aligned, size, 9);
	for (round = 0; round < 3; round++) {
		/* Split again, and merged again. */
		CHECK(mprotect(aligned + PAGE * 10, PAGE, PROT_READ) == 0);
		CHECK(try_write(aligned + PAGE * 10, 1) == SIGSEGV);
		CHECK(try_write(aligned + PAGE * 11 + 8, 1) == 0);
		CHECK(mprotect(aligned + PAGE * 10, PAGE, PROT_READ | PROT_WRITE) == 0);
		CHECK(madvise(aligned + 2 * MIB + PAGE, PAGE, MADV_DONTNEED) == 0);
		CHECK(*(volatile uint64_t *)(aligned + 2 * MIB + PAGE) == 0);
		pattern_write(aligned, size, 10);
		madvise(aligned, size, MADV_COLLAPSE);
		pattern_check(aligned, size, 10);
	}
}

static void page_out(void)
{
	size_t size = 24 * MIB;
	char *m = memory(size);
	int round;

	if (proc_number("/proc/meminfo", "SwapTotal:") <= 0)
		skip("no swap");
	for (round = 0; round < 3; round++) {
		pattern_write(m, size, 20 + (uint64_t)round);
		CHECK(madvise(m, size, MADV_PAGEOUT) == 0);
		CHECK(proc_number("/proc/self/status", "VmSwap:") > 8 * 1024);
		pattern_check(m, size, 20 + (uint64_t)round);
	}
}

/* The kernel clears accessed bits without a flush. A page in use must soon get its bit again. */
static void ageing(void)
{
	size_t size = 4 * MIB, i;
	char *m = memory(size);
	long kib = 0;
	double end;
	int fd;

	pattern_write(m, size, 11);
	fd = open("/proc/self/clear_refs", O_WRONLY);
	if (fd < 0)
		skip("no /proc/self/clear_refs");
	CHECK(write(fd, "1", 1) == 1);
	for (end = seconds() + 20; seconds() < end && kib < (long)(size >> 10);) {
		for (i = 0; i < size; i += PAGE)
			(void)*(volatile char *)(m + i);
		/* Unmapped and mapped again, as programs do. */
		usleep(10000);
		kib = proc_number("/proc/self/smaps_rollup", "Referenced:");
	}
	CHECK(kib >= (long)(size >> 10));
}

static void sparse(void)
{
	size_t size = 64UL << 30, i;
	char *m = memory_at(NULL, size, MAP_NORESERVE);

	for (i = 0; i < size; i += 1UL << 28)
		*(volatile uint64_t *)(m + i) = i + 1;
	for (i = 0; i < size; i += 1UL << 28)
		CHECK(*(volatile uint64_t *)(m + i) == i + 1);
	CHECK(munmap(m, size) == 0);
}

static void low_addresses(void)
{
	size_t i, count = 400;
	char *m[400];

	for (i = 0; i < count; i++) {
		m[i] = memory_at(NULL, 512 << 10, MAP_32BIT);
		CHECK((uintptr_t)m[i] + (512 << 10) <= 1UL << 31);
		*m[i] = (char)i;
	}
	for (i = 0; i < count; i++)
		CHECK(*m[i] == (char)i);
}

/* mov $value, %eax; ret */
static void make_code(unsigned char *at, unsigned char value)
{
	static const unsigned char code[] = { 0xb8, 0, 0, 0, 0, 0xc3 };

	memcpy(at, code, sizeof(code));
	at[1] = value;
}

static void execute(void)
{
	unsigned char *m = memory(PAGE), *write_side;
	int (*function)(void) = (int (*)(void))m, round, fd;

	make_code(m, 11);
	CHECK(try_call(m) == SIGSEGV && last_code == SEGV_ACCERR);
	CHECK(mprotect(m, PAGE, PROT_READ | PROT_EXEC) == 0);
	CHECK(function() == 11);
	CHECK(try_write(m, 0) == SIGSEGV);
	CHECK(mprotect(m, PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK(try_call(m) == SIGSEGV);
	/* As compilers do it: one mapping to write, one to execute. */
	fd = memfd_create("code", 0);
	CHECK(ftruncate(fd, PAGE) == 0);
	write_side = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	function = (int (*)(void))mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	CHECK(write_side != MAP_FAILED && function != MAP_FAILED);
	for (round = 0; round < 100; round++) {
		make_code(write_side, (unsigned char)round);
		CHECK(function() == round);
	}
}

struct user_faults {
	int fd;
	volatile int served;
};

static void *serve_faults(void *argument)
{
	struct user_faults *u = argument;
	static char page[PAGE] __attribute__((aligned(4096)));
	struct uffd_msg message;

	while (read(u->fd, &message, sizeof(message)) == sizeof(message)) {
		uintptr_t at = message.arg.pagefault.address & ~(PAGE - 1);
		struct uffdio_copy copy = { .dst = at, .src = (uintptr_t)page, .len = PAGE };

		if (message.event != UFFD_EVENT_PAGEFAULT)
			continue;
		*(uint64_t *)page = at;
		/* Before it lets the other thread continue. */
		u->served++;
		if (ioctl(u->fd, UFFDIO_COPY, &copy))
			return NULL;
	}
	return NULL;
}

static void faults_of(size_t pages)
{
	size_t i;
	char *m = memory(pages * PAGE);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { (uintptr_t)m, pages * PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct user_faults u = { 0 };
	pthread_t thread;

	u.fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
	if (u.fd < 0)
		skip("no userfaultfd");
	CHECK(!ioctl(u.fd, UFFDIO_API, &api));
	CHECK(!ioctl(u.fd, UFFDIO_REGISTER, &range));
	CHECK(!pthread_create(&thread, NULL, serve_faults, &u));
	for (i = 0; i < pages; i++)
		CHECK(*(volatile uint64_t *)(m + i * PAGE) == (uintptr_t)m + i * PAGE);
	CHECK(u.served == (int)pages);
	CHECK(madvise(m, pages * PAGE, MADV_DONTNEED) == 0);
	for (i = pages; i > 0; i--)
		CHECK(*(volatile uint64_t *)(m + (i - 1) * PAGE) == (uintptr_t)m + (i - 1) * PAGE);
	CHECK(u.served == 2 * (int)pages);
}

/* Of a mapping that is small enough to be populated, too. */
static void user_faults(void)
{
	faults_of(64);
	faults_of(4);
}

struct stores {
	char *volatile m;
	volatile int turn, done, end;
};

#define STORE_PAGES 4
#define STORE_TURNS 4000
/* On a busy host, each turn may wait for a CPU twice. */
#define STORE_SECONDS 5

static void *store_to_pages(void *argument)
{
	struct stores *s = argument;
	int i;

	while (!s->end) {
		if (s->turn == s->done) {
			sched_yield();
			continue;
		}
		for (i = 0; i < STORE_PAGES; i++)
			s->m[i * PAGE] = 1;
		s->done = s->turn;
	}
	return NULL;
}

/* Pages that are missing again have had no store of another thread. */
static void user_faults_and_stores(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct stores s = { .m = NULL };
	time_t begun = time(NULL);
	pthread_t thread;
	int fd, i, turn;

	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
	if (fd < 0)
		skip("no userfaultfd");
	CHECK(!ioctl(fd, UFFDIO_API, &api));
	CHECK(!pthread_create(&thread, NULL, store_to_pages, &s));
	for (turn = 1; turn <= STORE_TURNS && time(NULL) < begun + STORE_SECONDS; turn++) {
		char *m = memory(STORE_PAGES * PAGE);
		struct uffdio_register range = {
			.range = { (uintptr_t)m, STORE_PAGES * PAGE },
			.mode = UFFDIO_REGISTER_MODE_MISSING,
		};
		struct uffdio_range whole = range.range;

		s.m = m;
		s.turn = turn;
		for (i = 0; i < turn % 256 * 8; i++)
			__builtin_ia32_pause();
		CHECK(!ioctl(fd, UFFDIO_REGISTER, &range));
		/*
		 * A store that faults goes on now. Linux 6.12 to 6.18, at least, can miss one that
		 * faults between the wake-up and the change of the mapping.
		 */
		CHECK(!ioctl(fd, UFFDIO_UNREGISTER, &whole));
		while (s.done != turn) {
			CHECK(!ioctl(fd, UFFDIO_WAKE, &whole));
			sched_yield();
		}
		for (i = 0; i < STORE_PAGES; i++)
			CHECK(m[i * PAGE] == 1);
		CHECK(!munmap(m, STORE_PAGES * PAGE));
	}
	s.end = 1;
	CHECK(!pthread_join(thread, NULL) && !close(fd));
}

/* A private mapping shows what is written to the file, until the page itself is written to. */
static void private_file(void)
{
	char name[] = "/tmp/private.XXXXXX", *m;
	int fd = mkstemp(name);

	CHECK(fd >= 0 && !unlink(name) && pwrite(fd, "aa", 2, 0) == 2 && !ftruncate(fd, 4 * PAGE));
	m = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(m != MAP_FAILED);
	CHECK(pwrite(fd, "b", 1, 0) == 1 && pwrite(fd, "c", 1, PAGE) == 1);
	CHECK(m[0] == 'b' && m[1] == 'a' && m[PAGE] == 'c');
	m[0] = 'd';
	CHECK(pwrite(fd, "ee", 2, 0) == 2);
	CHECK(m[0] == 'd' && m[1] == 'a');
	CHECK(!close(fd));
}

const struct test memory_tests[] = {
	{ "memory.fresh_is_zero", fresh_is_zero, false },
	{ "memory.mprotect", protect, false },
	{ "memory.munmap_part", unmap_part, false },
	{ "memory.munmap_to_the_end", unmap_to_the_end, false },
	{ "memory.mremap", remap, false },
	{ "memory.madvise", give_back, false },
	{ "memory.collapse", collapse, false },
	{ "memory.page_out", page_out, false },
	{ "memory.ageing", ageing, false },
	{ "memory.sparse", sparse, false },
	{ "memory.map_32bit", low_addresses, false },
	{ "memory.execute", execute, false },
	{ "memory.userfaultfd", user_faults, false },
	{ "memory.userfaultfd_and_stores", user_faults_and_stores, false },
	{ "memory.private_file", private_file, false },
	{ NULL, NULL, false },
};
