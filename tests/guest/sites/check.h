/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Checks, and sites of this program. */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern int failures;
extern const char *current_test;

#define CHECK(condition)							\
	do {									\
		if (!(condition)) {						\
			printf("# %s: %s:%d: %s\n", current_test, __FILE__, __LINE__, #condition); \
			failures++;						\
		}								\
	} while (0)

/* A figure of the kernel's /sys/kernel/debug/vmi/sites. */
long counter(const char *name);
/* How many system calls of act() trapped. */
long traps_of(void (*act)(void));

/* Whether the first instruction of a site is a jump. */
int is_jump(const void *site);

/* A site with this number in this program's text, 16 bytes before the next one. */
#define SITE_BYTES 16
typedef long site_fn(long, long, long, long, long, long);
extern site_fn site_getppid, site_getpid, site_read, site_zero, site_go, site_generic, site_futex;
extern site_fn site_wake, site_moved, site_address, site_loaded;
extern site_fn site_pause, site_step, site_traced, site_forced, site_writable, site_core, site_off;
extern char site_page_start[], site_page_end[];
/* As glibc 2.41 makes calls that can be cancelled, without and with other threads. */
long site_single(long, long, long, long, long, long, long number);
long site_cancelled(long *state, long number, long, long, long, long, long, long);
/* The target of site_go: the rewritten instruction starts 9 bytes after it. */
extern char site_go_inner[];
/* This many sites of getppid, SITE_BYTES each. */
#define SITE_CROWD 254
extern char site_crowd[];

/* This many cpuid instructions, SITE_BYTES each. */
#define SITE_CPUIDS 32
extern char site_cpuids[];

/* A site near the beginning of a page, and one whose beginning only its registers show. */
extern site_fn site_first, site_unproven;

/* Calls a site often enough that the kernel rewrites it. */
void heat(site_fn *site, long a);

/* Calls replaced sites while signals come. Returns 0 if none found a thread in a stub. */
int signalled(void);

struct test {
	const char *name;
	void (*run)(void);
};

/* The act that a copy of this program was started for. */
int act_as(const char *what, const char *argument);

extern const struct test basic_tests[], memory_tests[], debug_tests[], stub_tests[];
extern const struct test shared_tests[], learning_tests[], last_tests[];

#endif
