/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Tests of what Linux promises to programs, as far as a hypervisor can break it: memory, processes, signals. The program is
 * the first process of a virtual machine, or runs on a host, whose verdict is the reference.
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

/* Each runs in a process of its own, which a failed check ends. */
struct test {
	const char *name;
	void (*run)(void);
	bool machine_only;	/* about addresses that a virtual machine's kernel has */
};

extern const struct test memory_tests[], sharing_tests[], hole_tests[], process_tests[], trace_tests[], signal_tests[],
	feature_tests[], network_tests[];

#define SKIPPED 77

/* Ends the test; the line says where and what. */
void failed(const char *file, int line, const char *what) __attribute__((noreturn));
void skip(const char *why) __attribute__((noreturn));

#define CHECK(condition)					\
	do {							\
		if (!(condition))				\
			failed(__FILE__, __LINE__, #condition);	\
	} while (0)

/* Accesses that may fault: the signal, or 0; last_code and last_address tell more. */
int try_read(const volatile void *address);
int try_write(volatile void *address, unsigned char value);
int try_call(const void *address);
extern int last_code;
extern void *last_address;

/* An anonymous private mapping, or the end of the test. */
void *memory(size_t size);
void *memory_at(void *hint, size_t size, int flags);

/* A word that tells page and owner. */
void pattern_write(void *start, size_t size, uint64_t owner);
void pattern_check(const void *start, size_t size, uint64_t owner);

/* A child's exit status as wait gives it. */
int child_status(pid_t child);
void child_good(pid_t child);

double seconds(void);
/* The first number behind a name in a file of /proc. */
long proc_number(const char *file, const char *name);
/* This program's file. */
extern char own_path[];

#endif
