/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Tests of what Linux guarantees to programs and a hypervisor could break: memory, processes,
 * signals. The program runs as the first process of a virtual machine, or on a host as the
 * reference.
 */
#ifndef LINUX_TEST_H
#define LINUX_TEST_H

#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define PAGE 4096UL
#define MIB (1UL << 20)

/* Each test runs in a process of its own. A failed check ends that process. */
struct test {
	const char *name;
	void (*run)(void);
	bool machine_only;	/* needs a virtual machine's kernel, not a host's */
};

extern const struct test memory_tests[], sharing_tests[], hole_tests[], process_tests[],
trace_tests[], signal_tests[],
	feature_tests[], bpf_tests[], network_tests[];

#define SKIPPED 77

/* Ends the test and prints a line that says which check failed. */
void failed(const char *file, int line, const char *what) __attribute__((noreturn));
void skip(const char *why) __attribute__((noreturn));

#define CHECK(condition)					\
	do {							\
		if (!(condition))				\
			failed(__FILE__, __LINE__, #condition);	\
	} while (0)

/*
 * Accesses that may fault. They return the signal or 0; last_code and last_address hold the
 * signal's si_code and si_addr.
 */
int try_read(const volatile void *address);
int try_write(volatile void *address, unsigned char value);
int try_call(const void *address);
extern int last_code;
extern void *last_address;

/* A new anonymous private mapping. Ends the test if there is no memory. */
void *memory(size_t size);
void *memory_at(void *hint, size_t size, int flags);

/* Write and check one word in each page, which depends on the page and the owner. */
void pattern_write(void *start, size_t size, uint64_t owner);
void pattern_check(const void *start, size_t size, uint64_t owner);

/* Waits for a child and returns its wait status. */
int child_status(pid_t child);
void child_good(pid_t child);

double seconds(void);
/* The first number after a name in a file of /proc, -1 if there is none. */
long proc_number(const char *file, const char *name);
/* Writes a text to a file, which is created if it does not exist. Ends the test on an error. */
void write_file(const char *path, const char *text);
/* Reads a file, up to size - 1 bytes, and terminates the text. Ends the test on an error. */
void read_file(const char *path, char *text, size_t size);
/* This program's file. */
extern char own_path[];

#endif
