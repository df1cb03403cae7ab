/* SPDX-License-Identifier: GPL-2.0-only */
/* Sites that are replaced in a process's own copy of its text. */
#ifndef ARCH_X86_VMI_USERTEXT_PRIVATE_H
#define ARCH_X86_VMI_USERTEXT_PRIVATE_H

#include <linux/mm_types.h>
#include "stats.h"

struct pt_regs;

/*
 * Replaces the site whose syscall instruction has trapped with these registers. @vma holds it, and
 * text_is_private() holds for @vma. The caller holds the mmap lock for writing.
 */
enum outcome private_claim(struct vm_area_struct *vma, const struct pt_regs *regs);

/* Puts back all replaced sites in a range. The caller holds the mmap lock for writing. */
void private_put_back(struct mm_struct *mm, unsigned long start, unsigned long end);

/*
 * For an address in a mapping of stubs: the instruction of the site where a thread in the same
 * state would be. The same address if there is no stub. The caller holds the mmap lock.
 */
unsigned long private_leave_stub(const struct mm_struct *mm, unsigned long ip);

/* The same for the address of a jump, which has these bytes. */
unsigned long private_leave_cave(const struct mm_struct *mm, unsigned long ip, const u8 *jump);

#endif
