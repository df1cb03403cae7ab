/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Pages that carry their identity, and ways to look at an address. */
#ifndef TESTS_PAGES_H
#define TESTS_PAGES_H

#include "user_mode.h"

/* A page whose every word says which page it is. */
u64 identity_page(void);
/* What a read of the address finds in such a page. */
static inline u64 identity(u64 gpa)
{
	return gpa ^ 0x1d00000000000000;
}

#define USER_RW	(PTE_P | PTE_W | PTE_U)
#define USER_RO	(PTE_P | PTE_U)

/* Page-fault error codes as expected, or NO_FAULT. */
#define NO_FAULT ~0ull

/* Who looks, and how. */
enum access {
	KERNEL_READ, KERNEL_WRITE, KERNEL_EXECUTE,
	USER_READ, USER_WRITE, USER_EXECUTE,
	ACCESS_COUNT,
};

/*
 * The access, in the loaded space; the error code of its page fault (cr2 and
 * frame are checked), or NO_FAULT. A read leaves what it found in *value; a
 * write stores it.
 */
u64 try_access(enum access access, u64 va, u64 *value);
/* A read by the kernel or by user code must find this page. */
void expect_page(u64 va, u64 gpa);
void expect_page_user(u64 va, u64 gpa);
void expect_fault(enum access access, u64 va, u64 error);

#endif
