// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The rows: what a guest does between two marks. */
#include <dirent.h>
#include <linux/close_range.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "exits.h"

#define SECOND 1000000000UL

unsigned long operations;

void pin(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	must(sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

/* An operation is a second. */
void row_idle(void)
{
	struct timespec time = { .tv_sec = (time_t)operations };

	begin();
	nanosleep(&time, NULL);
	end();
}

/* A program that uses one CPU for a second: what remains are the kernel's timer ticks. */
void row_ticks(void)
{
	uint64_t start;

	pin(0);
	start = now();
	begin();
	while (now() - start < operations * SECOND)
		;
	end();
}

/* Takes and releases the spinlock of the table of files twice. */
static void locks(unsigned long count)
{
	while (count--) {
		int file = dup(0);

		must(file, "dup");
		close(file);
	}
}

void row_lock(void)
{
	pin(0);
	locks(operations);
	begin();
	locks(operations);
	end();
}

static atomic_uint ready, go, stop;

/* Both threads of the row are where they belong, and begin. */
static void meet(void)
{
	atomic_fetch_add(&ready, 1);
	while (!atomic_load(&go))
		sched_yield();
}

/* A spinlock that is held for as long as it takes to write a bit for each file. */
#define FILES (1 << 20)

static void long_locks(unsigned long count)
{
	while (count--)
		must(syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC), "close_range");
}

static void *other_locks(void *unused)
{
	(void)unused;
	pin(1);
	meet();
	long_locks(operations);
	return NULL;
}

static pthread_t start(void *(*work)(void *))
{
	pthread_t thread;

	ready = 0;
	go = 0;
	stop = 0;
	pin(0);
	if (pthread_create(&thread, NULL, work, NULL))
		must(-1, "pthread_create");
	while (!atomic_load(&ready))
		sched_yield();
	return thread;
}

/* Two threads on two CPUs take the same spinlock. */
void row_contend(void)
{
	struct rlimit files = { .rlim_cur = FILES, .rlim_max = FILES };
	pthread_t other;

	must(setrlimit(RLIMIT_NOFILE, &files), "setrlimit");
	must(dup2(0, FILES - 1), "dup2");
	long_locks(1);
	other = start(other_locks);
	begin();
	atomic_store(&go, 1);
	long_locks(operations);
	pthread_join(other, NULL);
	end();
}

static atomic_ulong spun;

static void *spins(void *unused)
{
	(void)unused;
	pin(1);
	atomic_fetch_add(&ready, 1);
	while (!atomic_load_explicit(&stop, memory_order_relaxed))
		atomic_fetch_add_explicit(&spun, 1, memory_order_relaxed);
	return NULL;
}

/* The rows measure an interrupt of a CPU that spins, not of one that does something else. */
static void wait_until_it_spins(void)
{
	unsigned long before = atomic_load_explicit(&spun, memory_order_relaxed);

	while (atomic_load_explicit(&spun, memory_order_relaxed) == before)
		;
}

static void finish(pthread_t other)
{
	atomic_store(&stop, 1);
	pthread_join(other, NULL);
}

/* An interrupt to the other CPU, which runs a thread of this program. */
void row_ipi(void)
{
	pthread_t other;
	unsigned long i;

	must(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0),
	     "membarrier");
	other = start(spins);
	begin();
	for (i = 0; i < operations; i++) {
		wait_until_it_spins();
		must(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0), "membarrier");
	}
	end();
	finish(other);
}

/* A page becomes read-only, which the other CPU must learn. */
void row_flush(void)
{
	char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t other;
	unsigned long i;

	must(page == MAP_FAILED ? -1 : 0, "mmap");
	*page = 1;
	other = start(spins);
	begin();
	for (i = 0; i < operations; i++) {
		must(mprotect(page, PAGE, PROT_READ), "mprotect");
		must(mprotect(page, PAGE, PROT_READ | PROT_WRITE), "mprotect");
		*(volatile char *)page = 1;
	}
	end();
	finish(other);
	munmap(page, PAGE);
}

void row_pipe(void)
{
	pin(0);
	pipe_switch();
}

static void pass(int from, int to)
{
	char byte;

	while (read(from, &byte, 1) == 1)
		must(write(to, &byte, 1), "write");
}

/* A byte to a process on the other CPU, and back. */
void row_pipe_across(void)
{
	int there[2], back[2];
	unsigned long i;
	char byte = 0;
	pid_t child;

	must(pipe(there), "pipe");
	must(pipe(back), "pipe");
	pin(0);
	child = (pid_t)must(fork(), "fork");
	if (!child) {
		close(there[1]);
		pin(1);
		pass(there[0], back[1]);
		_exit(0);
	}
	close(there[0]);
	close(back[1]);
	/* The first one waits until the child is there. */
	for (i = 0; i <= operations; i++) {
		must(write(there[1], &byte, 1), "write");
		must(read(back[0], &byte, 1), "read");
		if (!i)
			begin();
	}
	end();
	close(there[1]);
	close(back[0]);
	must(waitpid(child, NULL, 0), "waitpid");
}

/*
 * RCU frees what a program leaves at its end. Its threads run on any CPU. On the other one they
 * cost several exits for each program, so their place would decide the figure.
 */
static void pin_rcu(unsigned int cpu)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	char path[300], name[16];
	cpu_set_t set;

	must(folder ? 0 : -1, "/proc");
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	while ((entry = readdir(folder))) {
		pid_t thread = (pid_t)strtoul(entry->d_name, NULL, 10);
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		file = thread > 0 ? fopen(path, "r") : NULL;
		if (!file)
			continue;
		/* Those of one CPU stay where they are. */
		if (fgets(name, sizeof(name), file) && !strncmp(name, "rcu", 3))
			(void)sched_setaffinity(thread, sizeof(set), &set);
		fclose(file);
	}
	closedir(folder);
}

void row_fork(void)
{
	pin(0);
	pin_rcu(0);
	fork_exit();
}

void row_hackbench(void)
{
	hackbench();
}
