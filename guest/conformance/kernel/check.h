/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Checks. A check that fails records why, then its vCPU jumps out of the test to
 * percpu.test_jump. The first failure of a test counts.
 */
#ifndef KERNEL_CHECK_H
#define KERNEL_CHECK_H

#include "types.h"

/* jump.S: where a vCPU continues after a failed check. */
struct test_jump {
	u64 rip, rsp, rbx, rbp, r12, r13, r14, r15;
};

int jump_set(struct test_jump *jump) __attribute__((returns_twice));
noreturn void jump_to(struct test_jump *jump);

noreturn void test_fail(const char *file, int line, const char *fmt, ...)
	printf_like(3, 4);
noreturn void test_skip(const char *fmt, ...) printf_like(1, 2);
/* Leaves the test because a check failed on another vCPU. */
noreturn void test_abandon(void);
/* Whether the test is over: it failed or was skipped, on any vCPU. */
bool test_failed(void);

struct test_verdict {
	bool failed, skipped;
	char message[320];	/* why it failed or was skipped */
};

const struct test_verdict *test_verdict(void);
/* For the next test. */
void test_verdict_clear(void);

#define FAIL(...)	test_fail(__FILE_NAME__, __LINE__, __VA_ARGS__)
#define CHECK(condition)						\
	do {								\
		if (!(condition))					\
			FAIL("%s", #condition);				\
	} while (0)

/* Compare as u64 and print both values. */
#define CHECK_OP(a, op, b)						\
	do {								\
		u64 a_ = (u64)(a), b_ = (u64)(b);			\
		if (!(a_ op b_))					\
			FAIL("%s is 0x%llx, want " #op " 0x%llx", #a, a_, b_); \
	} while (0)
#define CHECK_EQ(a, b)	CHECK_OP(a, ==, b)
#define CHECK_NE(a, b)	CHECK_OP(a, !=, b)
/* For results of calls: 0, a positive value, or a negated error. */
#define CHECK_RESULT(a, b)						\
	do {								\
		s64 a_ = (a), b_ = (b);					\
		if (a_ != b_)						\
			FAIL("%s is %lld, want %lld", #a, a_, b_);	\
	} while (0)

#endif
