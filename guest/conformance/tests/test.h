/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Tests are declared data. A test is a function that returns when all is well;
 * a check that fails leaves it at once, wherever it is and on whichever vCPU.
 */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include "../kernel/clock.h"
#include "../kernel/console.h"
#include "../kernel/machine.h"
#include "../kernel/layer.h"
#include "../kernel/mm.h"
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
#define TEST_LAST	1	/* runs behind all others: looks at what they did */
#define TEST_ALL	2	/* only when no filter leaves tests out */

struct test {
	const char *name;	/* section.call.what */
	void (*run)(u64 argument);
	u64 argument;
	u32 vcpus;		/* needs at least so many */
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

/* The same function with different arguments, under different names. */
#define TEST_OF(id, name, function, argument, vcpus, flags, ...)	\
	static const u16 covers_##id[] = { __VA_ARGS__ };		\
	TEST_RECORD(id, name, function, argument, vcpus, flags,		\
		    covers_##id, ARRAY_SIZE(covers_##id))

/* entry.S: where a failed check goes. */
struct test_jump {
	u64 rip, rsp, rbx, rbp, r12, r13, r14, r15;
};

int jump_set(struct test_jump *jump) __attribute__((returns_twice));
noreturn void jump_to(struct test_jump *jump);

noreturn void test_fail(const char *file, int line, const char *fmt, ...)
	printf_like(3, 4);
noreturn void test_skip(const char *fmt, ...) printf_like(1, 2);
/* Leaves the test: another vCPU has failed. */
noreturn void test_abandon(void);
bool test_failed(void);

#define FAIL(...)	test_fail(__FILE_NAME__, __LINE__, __VA_ARGS__)
#define CHECK(condition)						\
	do {								\
		if (!(condition))					\
			FAIL("%s", #condition);				\
	} while (0)

/* Compare as u64 and show both. */
#define CHECK_OP(a, op, b)						\
	do {								\
		u64 a_ = (u64)(a), b_ = (u64)(b);			\
		if (!(a_ op b_))					\
			FAIL("%s is 0x%llx, want " #op " 0x%llx", #a, a_, b_); \
	} while (0)
#define CHECK_EQ(a, b)	CHECK_OP(a, ==, b)
#define CHECK_NE(a, b)	CHECK_OP(a, !=, b)
/* For results of calls: 0, positive, or a negated error. */
#define CHECK_RESULT(a, b)						\
	do {								\
		s64 a_ = (a), b_ = (b);					\
		if (a_ != b_)						\
			FAIL("%s is %lld, want %lld", #a, a_, b_);	\
	} while (0)

/* The suite: runs what the command line selects; true when all passed. */
bool run_tests(void);
/* The state that every test finds, on this vCPU. */
void test_reset_vcpu(void);
/* Calls that some test covers, and (statistics) that were really made. */
extern bool suite_is_filtered;
const struct test *const *all_tests(u32 *count);

/* Before statistics are reset by a test: remember what was counted. */
void note_call_counts(void);

void run_bench(void);

#endif
