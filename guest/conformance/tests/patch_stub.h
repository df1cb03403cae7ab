/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* A program with a call stub that the kernel places itself: see patch_code.c. */
#ifndef TESTS_PATCH_STUB_H
#define TESTS_PATCH_STUB_H

#include "space.h"
#include "user_mode.h"

/*
 * A text of one page, mapped as two copies at two addresses, with everything at the same offsets in
 * both.
 */
#define COPY(n)		(USER_DATA + (n) * (GIB + 17 * PAGE_SIZE))
#define AT_SITE		0x40
#define AT_SLOT		0x100
#define AT_BODY		0x200

/* Enters by a jump to the stub, like a site that was replaced. */
#define PREFIX		5

/* The space with both copies. */
extern struct space stub_space;

/* The features of patch.code, 0 when the layer lacks the call. */
u64 stub_features(void);
/* Skips the test when the layer lacks the feature. */
void stub_need(u64 feature);

/* Makes a space with both copies and loads it. */
void stub_prepare(void);
void stub_clean_up(void);
/* The linear address of a copy's text. */
u8 *stub_text(u32 copy);
/*
 * Writes mov $number,%eax; 0x0f and the instruction byte; int $0x31 at AT_SITE of copy 0. Returns
 * the site that describes it.
 */
struct vmi_syscall_site stub_site(u32 number, u8 instruction);
/* Makes the layer write the stub or body at this offset of copy 0. Returns patch.code's result. */
s64 stub_write(const struct vmi_syscall_site *site, u32 at);
/* Copies the text of copy 0 to copy 1. */
void stub_copy_text(void);

/* A context that enters user mode at rip with random registers. */
void stub_enter(struct user_context *context, u64 rip, u64 seed);
/* Fails the test if a register changed other than those of a system call. */
void stub_check_others(const struct user_context *context);

#endif
