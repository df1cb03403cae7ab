/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * System-call sites in user text that the architecture has replaced (arch/x86/vmi/sites.c): whoever
 * is about to look at, write or move such text has them put back first.
 */
#ifndef _LINUX_SYSCALL_SITES_H
#define _LINUX_SYSCALL_SITES_H

#include <linux/mm_types.h>

#ifdef CONFIG_VMI_GUEST

/* Of an address space's context, next to asm/mmu.h's: there may be mappings of text in which sites are replaced for all who have it. */
#define MM_CONTEXT_TEXTS	5

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
	if (unlikely(mm->context.sites || test_bit(MM_CONTEXT_TEXTS, &mm->context.flags)))
		__syscall_sites_put_back_range(mm, start, end);
}

void __syscall_sites_map(struct vm_area_struct *vma);

/* A new mapping of a file, which nobody has seen yet: it may become one of the file's text with sites replaced. */
static inline void syscall_sites_map(struct vm_area_struct *vma)
{
	const vm_flags_t want = VM_READ | VM_EXEC | VM_MAYWRITE;

	if ((vma->vm_flags & (want | VM_WRITE | VM_SHARED)) == want)
		__syscall_sites_map(vma);
}

/* From now on all mappings of a file are found by the file. */
void syscall_sites_refuse(void);

#else

static inline void syscall_sites_map(struct vm_area_struct *vma)
{
}

static inline void syscall_sites_refuse(void)
{
}

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
