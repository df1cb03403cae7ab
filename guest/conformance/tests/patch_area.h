/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* A program with system-call sites, and an area in which the layer makes call stubs for them. */
#ifndef TESTS_PATCH_AREA_H
#define TESTS_PATCH_AREA_H

#include "space.h"
#include "user_mode.h"

/* The program's text: one page at USER_DATA. The tests of a single site have it here. */
#define AREA_SITE	(USER_DATA + 64)

/* The space with the text and the area. */
extern struct space area_space;
/* The area as the layer is given it. A test may give it another one. */
extern struct vmi_patch_area area_stubs;
/* Its pages, which follow each other. */
extern u64 area_gpa;

/* Whether the layer makes stubs at all. */
bool area_offered(void);
/* Whether VMI_SITE_ENTRY and patch.set_entry work. */
bool area_entries_offered(void);
/* Skips the test when the layer makes no stubs. */
void area_need_stubs(void);

/* Makes the space, with an area where user code can jump to, and loads it. */
void area_prepare(void);
void area_clean_up(void);
/* The linear addresses of the text's page, and of AREA_SITE in it. */
u8 *area_page(void);
u8 *area_text(void);

/* Writes mov $number,%eax; syscall; then another system call: 9 bytes. */
void area_write_program(u8 *text, u32 number);
/* The site at user address va, which has this text. */
struct vmi_syscall_site area_site_at(u64 va, const u8 *text, u32 length);
/* Writes the layer's replacement to the site's text. */
void area_apply(const struct vmi_syscall_site *site, u8 *to);
/*
 * Runs the program at va with random registers. Fails the test if anything differs from the system
 * call without a stub.
 */
void area_run(u64 va, u32 number);

#endif
