/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Pages that carry their identity, and accesses to an address that may fault. */
#ifndef TESTS_PAGES_H
#define TESTS_PAGES_H

#include "user_mode.h"

/* A new page. Each of its words identifies the page. */
u64 identity_page(void);
/* A new 2 MiB page. The first word of each 4 KiB identifies that part. */
u64 identity_large_page(void);
/* The value of the words of such a page. */
static inline u64 identity(u64 gpa)
{
	return gpa ^ 0x1d00000000000000;
}

#define USER_RW	(PTE_P | PTE_W | PTE_U)
#define USER_RO	(PTE_P | PTE_U)

/* In place of the error code of a page fault. */
#define NO_FAULT ~0ull

/* Mode and kind of an access. */
enum access {
	KERNEL_READ, KERNEL_WRITE, KERNEL_EXECUTE,
	USER_READ, USER_WRITE, USER_EXECUTE,
	ACCESS_COUNT,
};

/*
 * Makes the access in the loaded space. Returns the error code of its page fault,
 * with cr2 and the frame checked, or NO_FAULT. A read stores the value that it
 * found in *value; a write writes *value.
 */
u64 try_access(enum access access, u64 va, u64 *value);
/* A read by the kernel or by user code must find this page. */
void expect_page(u64 va, u64 gpa);
void expect_page_user(u64 va, u64 gpa);
/* Both reads, of a sample of the 4 KiB parts of a large page. */
void expect_large_page(u64 va, u64 gpa);
void expect_fault(enum access access, u64 va, u64 error);

#endif
