/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * System-call sites in user text that the architecture has replaced (arch/x86/vmi/sites.c): whoever
 * is about to look at, write or move such text has them put back first.
 */
#ifndef _LINUX_SYSCALL_SITES_H
#define _LINUX_SYSCALL_SITES_H

#include <linux/mm_types.h>

#ifdef CONFIG_VMI_GUEST

void __syscall_sites_put_back(struct mm_struct *mm);
void __syscall_sites_put_back_range(struct mm_struct *mm, unsigned long start, unsigned long end);

/* All of them, for good: nothing is replaced there any more. Takes the mmap lock. */
static inline void syscall_sites_put_back(struct mm_struct *mm)
{
	/* Also where there is none yet: another thread may be at it. */
	if (mm)
		__syscall_sites_put_back(mm);
}

/* The same for a task that is going to be traced. */
void syscall_sites_put_back_task(struct task_struct *task);

/* Those in a range. With the mmap lock held for writing. */
static inline void syscall_sites_put_back_range(struct mm_struct *mm, unsigned long start,
						unsigned long end)
{
	if (unlikely(mm->context.sites))
		__syscall_sites_put_back_range(mm, start, end);
}

#else

static inline void syscall_sites_put_back(struct mm_struct *mm)
{
}

static inline void syscall_sites_put_back_task(struct task_struct *task)
{
}

static inline void syscall_sites_put_back_range(struct mm_struct *mm, unsigned long start,
						unsigned long end)
{
}

#endif
#endif
