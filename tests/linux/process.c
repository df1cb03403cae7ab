// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Processes: many that come and go, each with memory of its own. */
#include "test.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void fork_exit(void)
{
	int i;

	for (i = 0; i < 300; i++) {
		pid_t child = fork();

		if (!child)
			_exit(i & 0x7f);
		CHECK(WEXITSTATUS(child_status(child)) == (i & 0x7f));
	}
}

/* More at once than the machine has processes for their address spaces. */
static void many_at_once(void)
{
	enum { COUNT = 120 };
	size_t size = 64 * PAGE;
	char *m = memory(size);
	pid_t children[COUNT];
	int go[2], i, round;
	char c;

	CHECK(!pipe(go));
	for (i = 0; i < COUNT; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i])
			continue;
		pattern_write(m, size, (uint64_t)i);
		CHECK(read(go[0], &c, 1) == 1);
		for (round = 0; round < 3; round++) {
			pattern_check(m, size, (uint64_t)(i + round * 1000));
			pattern_write(m, size, (uint64_t)(i + (round + 1) * 1000));
			sched_yield();
		}
		_exit(0);
	}
	for (i = 0; i < COUNT; i++)
		CHECK(write(go[1], "", 1) == 1);
	for (i = 0; i < COUNT; i++)
		child_good(children[i]);
}

static void vfork_shares(void)
{
	static volatile int shared;
	static char *words[] = { own_path, "--exec", "0", NULL };
	int i;

	for (i = 0; i < 50; i++) {
		pid_t child;

		shared = 0;
		child = vfork();
		if (!child) {
			shared = i + 1;
			_exit(0);
		}
		/* It returns only when the child has executed a program or ended. */
		CHECK(shared == i + 1);
		child_good(child);
		child = vfork();
		if (!child) {
			execv(own_path, words);
			_exit(1);
		}
		CHECK(WEXITSTATUS(child_status(child)) == 42);
	}
}

static void exec_chain(void)
{
	pid_t child = fork();

	if (!child) {
		execl(own_path, own_path, "--exec", "30", NULL);
		_exit(1);
	}
	CHECK(WEXITSTATUS(child_status(child)) == 42);
}

static volatile int running;

static void *spin(void *argument)
{
	(void)argument;
	__atomic_fetch_add(&running, 1, __ATOMIC_SEQ_CST);
	for (;;)
		(void)*(volatile int *)&running;
	return NULL;
}

/* The other threads end, wherever they are. */
static void exec_from_thread(void)
{
	int i, round;

	for (round = 0; round < 5; round++) {
		pid_t child = fork();

		if (!child) {
			pthread_t thread;

			for (i = 0; i < 3; i++)
				CHECK(!pthread_create(&thread, NULL, spin, NULL));
			while (running < 3)
				sched_yield();
			execl(own_path, own_path, "--exec", "1", NULL);
			_exit(1);
		}
		CHECK(WEXITSTATUS(child_status(child)) == 42);
	}
}

/* Data through a pipe between two processes that both use vector registers and much memory. */
static void talk(void)
{
	enum { SIZE = 1 << 16, ROUNDS = 200 };
	static unsigned char out[SIZE], in[SIZE];
	int there[2], back[2], round, i;
	pid_t child;

	CHECK(!pipe(there) && !pipe(back));
	child = fork();
	for (round = 0; round < ROUNDS; round++) {
		int from = child ? back[0] : there[0], to = child ? there[1] : back[1], got = 0,
			put = 0;
		unsigned char sum = 0;

		if (!child || round) {
			while (got < SIZE / 16) {
				ssize_t n = read(from, in + got, (size_t)(SIZE / 16 - got));

				CHECK(n > 0);
				got += (int)n;
			}
			for (i = 0; i < SIZE / 16; i++)
				sum = (unsigned char)(sum + in[i]);
			CHECK(in[0] == (unsigned char)(child ? round - 1 : round) &&
			      sum == (unsigned char)(in[0] * (SIZE / 16)));
		}
		memset(out, round, SIZE);
		while (put < SIZE / 16) {
			ssize_t n = write(to, out + put, (size_t)(SIZE / 16 - put));

			CHECK(n > 0);
			put += (int)n;
		}
	}
	if (!child)
		_exit(0);
	child_good(child);
}

/* A program may ask that rdtsc raises SIGSEGV. It does then, or the program is refused. */
static void time_stamps(void)
{
	pid_t child = fork();
	int status;

	if (!child) {
		if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV))
			_exit(2);
		__builtin_ia32_rdtsc();
		_exit(1);
	}
	status = child_status(child);
	CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 2) ||
	      (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
}

/* Free memory of the machine without what lists of its CPUs have, KiB. */
static long free_memory(void)
{
	char text[4096], *line;

	read_file("/proc/meminfo", text, sizeof(text));
	line = strstr(text, "MemFree:");
	CHECK(line);
	return line ? strtol(line + 8, NULL, 10) : 0;
}

#define FREED_PAGES 128
#define FREED_ROUNDS 200
/* Until the lists of the CPUs have what they keep. */
#define FIRST_ROUNDS 60

static void write_in_order(char *m, int round)
{
	int page;

	for (page = 0; page < FREED_PAGES; page++)
		m[page * PAGE] = (char)(round + page);
}

/* A process and its child write in order to pages that they share, and so to those of a file. */
static void write_copies(const char *path, int round)
{
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), page;
	char *m = memory(FREED_PAGES * PAGE), *of_file;
	pid_t child;

	CHECK(file >= 0);
	for (page = 0; page < FREED_PAGES; page++)
		CHECK(write(file, m, PAGE) == PAGE);
	close(file);
	file = open(path, O_RDONLY);
	of_file = mmap(NULL, FREED_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	CHECK(file >= 0 && of_file != MAP_FAILED);
	close(file);
	write_in_order(m, round);
	for (page = 0; page < FREED_PAGES; page++)
		CHECK(of_file[page * PAGE] == 0);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		write_in_order(m, round + 1);
		write_in_order(of_file, round + 1);
		_exit(0);
	}
	write_in_order(m, round + 2);
	write_in_order(of_file, round + 2);
	child_good(child);
	CHECK(munmap(m, FREED_PAGES * PAGE) == 0 && munmap(of_file, FREED_PAGES * PAGE) == 0);
	CHECK(unlink(path) == 0);
}

/* The kernel frees the copies that it makes at a write, in the parent and in the child. */
static void copies_are_freed(void)
{
	const long page = PAGE / 1024;
	long before = 0, lost;
	int round;

	for (round = 0; round < FIRST_ROUNDS + FREED_ROUNDS; round++) {
		if (round == FIRST_ROUNDS)
			before = free_memory();
		write_copies("/tmp/copied", round);
	}
	lost = before - free_memory();
	/* Half of what is lost if one of the four kinds of copies is not freed. */
	CHECK(lost < FREED_ROUNDS * FREED_PAGES * page / 2);
}

const struct test process_tests[] = {
	{ "process.copies_are_freed", copies_are_freed, true },
	{ "process.fork_exit", fork_exit, false },
	{ "process.many_at_once", many_at_once, false },
	{ "process.vfork", vfork_shares, false },
	{ "process.exec_chain", exec_chain, false },
	{ "process.exec_from_thread", exec_from_thread, false },
	{ "process.talk", talk, false },
	{ "process.time_stamps", time_stamps, false },
	{ NULL, NULL, false },
};
