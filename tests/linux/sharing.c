// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Memory that several mappings, processes or threads share. */
#include "test.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <linux/futex.h>
#include <unistd.h>

static void *shared_memory(size_t size)
{
	void *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(m != MAP_FAILED);
	return m;
}

static void shared_with_child(void)
{
	size_t size = 2 * MIB;
	char *m = shared_memory(size);
	int round;

	for (round = 0; round < 10; round++) {
		pid_t child;

		pattern_write(m, size, (uint64_t)round);
		child = fork();
		if (!child) {
			pattern_check(m, size, (uint64_t)round);
			pattern_write(m, size, 100 + (uint64_t)round);
			_exit(0);
		}
		child_good(child);
		pattern_check(m, size, 100 + (uint64_t)round);
	}
}

static void two_views(void)
{
	size_t size = 64 * PAGE, i;
	int fd = memfd_create("views", 0);
	char *a, *b;

	CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	a = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	b = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(a != MAP_FAILED && b != MAP_FAILED);
	for (i = 0; i < size; i += 97) {
		a[i] = (char)i;
		CHECK(*(volatile char *)(b + i) == (char)i);
	}
	CHECK(try_write(b, 1) == SIGSEGV);
	/* A private view follows the file until it is written. */
	b = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(b != MAP_FAILED);
	for (i = 0; i < size; i += PAGE) {
		a[i] = 1;
		CHECK(*(volatile char *)(b + i) == 1);
		b[i] = 2;
		CHECK(*(volatile char *)(a + i) == 1);
		a[i] = 3;
		CHECK(*(volatile char *)(b + i) == 2);
	}
	/* The pages that the file loses are lost in its mappings, too. */
	CHECK(ftruncate(fd, PAGE) == 0);
	CHECK(try_read(a) == 0);
	CHECK(try_read(a + PAGE) == SIGBUS);
	CHECK(try_read(b + PAGE) == SIGBUS);
	CHECK(ftruncate(fd, (off_t)size) == 0);
	CHECK(try_read(a + PAGE) == 0 && a[PAGE] == 0);
}

/* Each process of a tree changes its own copy and sees no other process's copy. */
static void tree(char *m, size_t size, int depth, uint64_t id)
{
	size_t part = size / 4;
	pid_t children[3];
	int i;

	pattern_write(m + part * (id % 4), part, id);
	for (i = 0; depth && i < 3; i++) {
		children[i] = fork();
		if (!children[i]) {
			pattern_check(m + part * (id % 4), part, id);
			tree(m, size, depth - 1, id * 3 + (uint64_t)i + 1);
			_exit(0);
		}
	}
	/* While the children use theirs. */
	if (depth)
		pattern_write(m + part * ((id + 1) % 4), part, id + 1000);
	for (i = 0; depth && i < 3; i++)
		child_good(children[i]);
	pattern_check(m + part * (id % 4), part, id);
	if (depth)
		pattern_check(m + part * ((id + 1) % 4), part, id + 1000);
}

static void copy_on_write(void)
{
	static char data[MIB];
	char *m = memory(8 * MIB);
	int round;

	for (round = 0; round < 3; round++) {
		tree(m, 4 * MIB, 2, 1);
		tree(data, sizeof(data), 2, 1);
		/*
		 * Pages that belong to this process alone after the children's end must be its own.
		 */
		pattern_write(m, 8 * MIB, 5);
		pattern_check(m, 8 * MIB, 5);
	}
	/* Rights changed between fork and write. */
	for (round = 0; round < 20; round++) {
		pid_t child;

		pattern_write(m, MIB, (uint64_t)round);
		child = fork();
		CHECK(mprotect(m, MIB, PROT_READ) == 0);
		CHECK(mprotect(m, MIB, PROT_READ | PROT_WRITE) == 0);
		if (!child) {
			usleep(1000);
			pattern_check(m, MIB, (uint64_t)round);
			_exit(0);
		}
		pattern_write(m, MIB, 1000);
		child_good(child);
	}
}

/*
 * One thread replaces the pages at addresses that others use. After its announcement no thread may
 * see an old page.
 */
#define READERS 3
#define FLIP_PAGES 8

static struct {
	char *window;
	volatile uint64_t announced;	/* no lower value may be read any more */
	volatile int stop;
	volatile uint64_t reads;
} flip;

static void *flip_reader(void *argument)
{
	size_t i = (size_t)(uintptr_t)argument;

	while (!flip.stop) {
		uint64_t least = flip.announced, value;

		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		value = *(volatile uint64_t *)(flip.window + i++ % FLIP_PAGES * PAGE);
		if (value < least)
			return "a reader saw a page that had gone";
		flip.reads++;
	}
	return NULL;
}

static void flipping_pages(void)
{
	size_t size = FLIP_PAGES * PAGE, i;
	pthread_t readers[READERS];
	double end = seconds() + 2;
	uint64_t value = 0;

	flip.window = memory(size);
	for (i = 0; i < READERS; i++)
		CHECK(!pthread_create(&readers[i], NULL, flip_reader, (void *)i));
	while (seconds() < end) {
		char *next = memory(size);

		value++;
		for (i = 0; i < size; i += PAGE)
			*(volatile uint64_t *)(next + i) = value;
		if (value % 3 == 0) {
			CHECK(mprotect(flip.window, size, PROT_READ) == 0);
			CHECK(mprotect(flip.window, size, PROT_READ | PROT_WRITE) == 0);
		}
		CHECK(mremap(next, size, size, MREMAP_MAYMOVE | MREMAP_FIXED,
			     flip.window) == flip.window);
		flip.announced = value;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (value % 16 == 0)
			sched_yield();
	}
	flip.stop = 1;
	for (i = 0; i < READERS; i++) {
		void *complaint;

		CHECK(!pthread_join(readers[i], &complaint));
		if (complaint)
			failed(__FILE__, __LINE__, complaint);
	}
	CHECK(flip.reads > 0 && value > 10);
}

/* A process writes and reads another one's memory. Its vCPU does not have that space loaded. */
static void read_from_outside(void)
{
	size_t size = 2 * MIB;
	char *m = memory(size), *copy = memory(size);
	struct iovec here = { copy, size }, there = { m, size };
	int go[2], done[2], round;
	pid_t child;
	char c;

	if (process_vm_writev(getpid(), &here, 1, &there, 1, 0) < 0 && errno == ENOSYS)
		skip("no process_vm_writev");
	CHECK(!pipe(go) && !pipe(done));
	pattern_write(m, size, 1);
	child = fork();
	if (!child) {
		for (round = 0; round < 20; round++) {
			CHECK(read(go[0], &c, 1) == 1);
			pattern_check(m, size, 50 + (uint64_t)round);
			pattern_write(m, size, 70 + (uint64_t)round);
			CHECK(write(done[1], &c, 1) == 1);
		}
		/* Until the last check. */
		CHECK(read(go[0], &c, 1) == 1);
		_exit(0);
	}
	for (round = 0; round < 20; round++) {
		pattern_write(copy, size, 50 + (uint64_t)round);
		/* Writes to pages that the child may still share. */
		CHECK(process_vm_writev(child, &here, 1, &there, 1, 0) == (ssize_t)size);
		CHECK(write(go[1], "", 1) == 1);
		CHECK(read(done[0], &c, 1) == 1);
		CHECK(process_vm_readv(child, &here, 1, &there, 1, 0) == (ssize_t)size);
		pattern_check(copy, size, 70 + (uint64_t)round);
	}
	CHECK(write(go[1], "", 1) == 1);
	child_good(child);
	pattern_check(m, size, 1);
}

static long futex(volatile uint32_t *word, int operation, uint32_t value)
{
	return syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static void turn(volatile uint32_t *word, uint32_t mine, uint32_t rounds)
{
	uint32_t now;

	while ((now = __atomic_load_n(word, __ATOMIC_SEQ_CST)) < rounds) {
		if (now % 2 == mine) {
			__atomic_store_n(word, now + 1, __ATOMIC_SEQ_CST);
			futex(word, FUTEX_WAKE, 1);
		} else {
			futex(word, FUTEX_WAIT, now);
		}
	}
}

static void shared_futex(void)
{
	volatile uint32_t *word = shared_memory(PAGE);
	pid_t child = fork();

	if (!child) {
		turn(word, 1, 5000);
		_exit(0);
	}
	turn(word, 0, 5000);
	child_good(child);
}

#define THREADS 6

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long counter;

static void *count_up(void *argument)
{
	long local[64] = { 0 };
	int i;

	(void)argument;
	for (i = 0; i < 20000; i++) {
		pthread_mutex_lock(&mutex);
		counter++;
		pthread_mutex_unlock(&mutex);
		local[i % 64]++;
		if (i % 512 == 0) {
			char *m = memory(16 * PAGE);

			pattern_write(m, 16 * PAGE, (uint64_t)i);
			pattern_check(m, 16 * PAGE, (uint64_t)i);
			CHECK(munmap(m, 16 * PAGE) == 0);
		}
	}
	return (void *)local[0];
}

static void threads(void)
{
	pthread_t all[THREADS];
	int round, i;

	for (round = 0; round < 3; round++) {
		counter = 0;
		for (i = 0; i < THREADS; i++)
			CHECK(!pthread_create(&all[i], NULL, count_up, NULL));
		for (i = 0; i < THREADS; i++)
			CHECK(!pthread_join(all[i], NULL));
		CHECK(counter == 20000L * THREADS);
	}
}

const struct test sharing_tests[] = {
	{ "sharing.fork_shared", shared_with_child, false },
	{ "sharing.two_views", two_views, false },
	{ "sharing.copy_on_write", copy_on_write, false },
	{ "sharing.flipping_pages", flipping_pages, false },
	{ "sharing.from_outside", read_from_outside, false },
	{ "sharing.futex", shared_futex, false },
	{ "sharing.threads", threads, false },
	{ NULL, NULL, false },
};
