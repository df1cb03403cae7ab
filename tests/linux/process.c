// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Processes: many that come and go, each with memory of its own. */
#include "test.h"
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

const struct test process_tests[] = {
	{ "process.fork_exit", fork_exit, false },
	{ "process.many_at_once", many_at_once, false },
	{ "process.vfork", vfork_shares, false },
	{ "process.exec_chain", exec_chain, false },
	{ "process.exec_from_thread", exec_from_thread, false },
	{ "process.talk", talk, false },
	{ "process.time_stamps", time_stamps, false },
	{ NULL, NULL, false },
};
