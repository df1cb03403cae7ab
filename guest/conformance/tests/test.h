/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * A test is declared data with a function that returns when the test passes.
 * The first check that fails ends the test, on any vCPU and at any depth.
 */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include "../kernel/calls.h"
#include "../kernel/check.h"
#include "../kernel/clock.h"
#include "../kernel/console.h"
#include "../kernel/cpu.h"
#include "../kernel/machine.h"
#include "../kernel/mm.h"
#include "../kernel/paging.h"
#include "../kernel/panic.h"
#include "../kernel/percpu.h"
#include "../kernel/site.h"
#include "../kernel/smp.h"
#include "../kernel/trap.h"
#include "../kernel/types.h"

/* Short names of the call numbers: CPU_IRQ_DISABLE and so on. */
enum call_number {
#define X(SECTION, section, CALL, name, number, CLASS, since) \
	SECTION##_##CALL = number,
	VMI_FOR_EACH_CALL(X)
#undef X
};

/* Flags of a test. */
#define TEST_LAST	1	/* runs after all others and looks at what they did */
#define TEST_ALL	2	/* only when no filter leaves tests out */

struct test {
	const char *name;	/* section.call.what */
	void (*run)(u64 argument);
	u64 argument;
	u32 vcpus;		/* the least that it needs */
	u32 flags;
	const u16 *covers;	/* calls that it tests */
	u32 cover_count;
};

#define TEST_RECORD(id, ...)						\
	static const struct test record_##id = { __VA_ARGS__ };		\
	static const struct test *const entry_##id			\
	__attribute__((used, section(".tests"))) = &record_##id

/* TEST(id, "section.call.what", vcpus, flags, calls...) { ... } */
#define TEST(id, name, vcpus, flags, ...)				\
	static void test_##id(u64 argument);				\
	static const u16 covers_##id[] = { __VA_ARGS__ };		\
	TEST_RECORD(id, name, test_##id, 0, vcpus, flags, covers_##id,	\
		    ARRAY_SIZE(covers_##id));				\
	static void test_##id(u64 argument __attribute__((unused)))

/* A test that calls `function` with `argument`. Several tests can share a function. */
#define TEST_OF(id, name, function, argument, vcpus, flags, ...)	\
	static const u16 covers_##id[] = { __VA_ARGS__ };		\
	TEST_RECORD(id, name, function, argument, vcpus, flags,		\
		    covers_##id, ARRAY_SIZE(covers_##id))

/* Runs the tests that the command line selects; true when all pass. */
bool run_tests(void);
/* Puts this vCPU into the state in which every test starts. */
void test_reset_vcpu(void);
/* Whether a filter leaves tests out. */
extern bool suite_is_filtered;
const struct test *const *all_tests(u32 *count);

/* Saves the counts of calls, for a test that is about to reset the statistics. */
void note_call_counts(void);

void run_bench(void);
/* bench=ticket; false if it went wrong. */
bool run_ticket_bench(void);

#endif
