// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Processes: switches, creation, shells, crowds. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "micro.h"

/* The messages of a group of hackbench, from each of 10 senders to each of 10 receivers. */
#define GROUP 10
#define MESSAGES 20
#define MESSAGE_SIZE 100

/* Processes in a ring. */
#define RING 16

static int there[2], back[2];

static void move(int end, int write_it)
{
	char byte = 0;

	if ((write_it ? write(end, &byte, 1) : read(end, &byte, 1)) != 1)
		_exit(0);
}

static void pipe_batch(unsigned long operations)
{
	while (operations--) {
		move(there[1], 1);
		move(back[0], 0);
	}
}

/* A round trip has two switches. */
double pipe_switch(void)
{
	pid_t child;
	double ns;

	must(pipe(there), "pipe");
	must(pipe(back), "pipe");
	child = (pid_t)must(fork(), "fork");
	if (!child) {
		close(there[1]);
		for (;;) {
			move(there[0], 0);
			move(back[1], 1);
		}
	}
	close(there[0]);
	close(back[1]);
	ns = timed(pipe_batch);
	close(there[1]);
	must(waitpid(child, NULL, 0), "waitpid");
	return ns / 2;
}

static int ring[RING][2];

static void ring_batch(unsigned long operations)
{
	while (operations--) {
		move(ring[0][1], 1);
		move(ring[RING - 1][0], 0);
	}
}

/* A byte in a ring: each process passes on what it reads. */
double ring_switch(void)
{
	pid_t children[RING - 1];
	int i, other;
	double ns;

	for (i = 0; i < RING; i++)
		must(pipe(ring[i]), "pipe");
	for (i = 0; i < RING - 1; i++) {
		children[i] = (pid_t)must(fork(), "fork");
		if (children[i])
			continue;
		/* A process ends when the one before it has ended. */
		for (other = 0; other < RING; other++) {
			if (other != i)
				close(ring[other][0]);
			if (other != i + 1)
				close(ring[other][1]);
		}
		for (;;) {
			move(ring[i][0], 0);
			move(ring[i + 1][1], 1);
		}
	}
	for (i = 0; i < RING; i++) {
		if (i)
			close(ring[i][1]);
		if (i < RING - 1)
			close(ring[i][0]);
	}
	ns = timed(ring_batch);
	close(ring[0][1]);
	for (i = 0; i < RING - 1; i++)
		must(waitpid(children[i], NULL, 0), "waitpid");
	return ns / RING;
}

static void wait_for(pid_t child)
{
	int status;

	must(waitpid(child, &status, 0), "waitpid");
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		must(-1, "the child");
}

static void fork_batch(unsigned long operations)
{
	pid_t child;

	while (operations--) {
		child = (pid_t)must(fork(), "fork");
		if (!child)
			_exit(0);
		wait_for(child);
	}
}

double fork_exit(void)
{
	return timed(fork_batch);
}

static void run(char *const argv[])
{
	static char *const environment[] = { NULL };
	pid_t child = (pid_t)must(fork(), "fork");

	if (!child) {
		execve(argv[0], argv, environment);
		_exit(127);
	}
	wait_for(child);
}

static void exec_batch(unsigned long operations)
{
	char *const argv[] = { "./micro", "true", NULL };

	while (operations--)
		run(argv);
}

double fork_exec(void)
{
	return timed(exec_batch);
}

static void shell_batch(unsigned long operations)
{
	/* Two commands, since the shell would exec a single one. */
	char *const argv[] = { "./sh", "-c", "./micro true; ./micro true", NULL };

	while (operations--)
		run(argv);
}

double shell(void)
{
	return timed(shell_batch);
}

static uint64_t compile_batch(void)
{
	char *const argv[] = { getenv("compiler"), "-O2", "-c", "main.c", "-o", "main.o", NULL };
	uint64_t ns = now();
	pid_t child = (pid_t)must(fork(), "fork");

	if (!child) {
		static char *const environment[] = { "PATH=/usr/local/bin:/usr/bin:/bin",
						     "TMPDIR=.", NULL };

		if (argv[0])
			execve(argv[0], argv, environment);
		_exit(127);
	}
	wait_for(child);
	return now() - ns;
}

/* Compiles this program's main file with the compiler in the variable of that name. */
double compile(void)
{
	return timed_by(compile_batch, 1, 5);
}

static void sender(int pairs[GROUP][2])
{
	char message[MESSAGE_SIZE] = { 0 };
	int i, to;

	for (i = 0; i < MESSAGES; i++)
		for (to = 0; to < GROUP; to++)
			if (write(pairs[to][1], message, sizeof(message)) != sizeof(message))
				_exit(1);
}

static void receiver(int end)
{
	size_t left = (size_t)GROUP * MESSAGES * MESSAGE_SIZE;
	char message[MESSAGE_SIZE];
	ssize_t n;

	while (left) {
		n = read(end, message, sizeof(message));
		if (n <= 0)
			_exit(1);
		left -= (size_t)n;
	}
}

/* All processes exist before the clock starts. */
static uint64_t hackbench_batch(void)
{
	int pairs[GROUP][2], start[2], ready[2], i, n = 0;
	pid_t children[2 * GROUP];
	uint64_t ns;
	char byte = 0;

	must(pipe(start), "pipe");
	must(pipe(ready), "pipe");
	for (i = 0; i < GROUP; i++)
		must(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]), "socketpair");
	for (i = 0; i < 2 * GROUP; i++) {
		children[i] = (pid_t)must(fork(), "fork");
		if (children[i])
			continue;
		close(start[1]);
		move(ready[1], 1);
		/* Ends when the parent closes the pipe. */
		if (read(start[0], &byte, 1))
			_exit(1);
		if (i < GROUP)
			receiver(pairs[i][0]);
		else
			sender(pairs);
		_exit(0);
	}
	while (n < 2 * GROUP)
		n += (int)must(read(ready[0], &byte, 1), "read");
	ns = now();
	close(start[1]);
	for (i = 0; i < 2 * GROUP; i++)
		wait_for(children[i]);
	ns = now() - ns;
	for (i = 0; i < GROUP; i++) {
		close(pairs[i][0]);
		close(pairs[i][1]);
	}
	close(start[0]);
	close(ready[0]);
	close(ready[1]);
	return ns;
}

double hackbench(void)
{
	return timed_by(hackbench_batch, (unsigned long)GROUP * GROUP * MESSAGES, batches / 3);
}
