/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * System-call sites in user text that the architecture has replaced (arch/x86/vmi/usertext/). Code
 * that is about to read, write or move such text for another process has them put back first.
 */
#ifndef _LINUX_SYSCALL_SITES_H
#define _LINUX_SYSCALL_SITES_H

#include <linux/mm.h>

#ifdef CONFIG_VMI_USER_TEXT

/*
 * A flag of mm->context, after those of asm/mmu.h: there may be mappings of text in which sites are
 * replaced for all mappings of the file.
 */
#define MM_CONTEXT_TEXTS	5
/* The same: the process has had memory that can be written and executed. */
#define MM_CONTEXT_WRITES_CODE	6

void __syscall_sites_put_back(struct mm_struct *mm);
void __syscall_sites_put_back_range(struct mm_struct *mm, unsigned long start, unsigned long end);

/* Puts back all sites and prevents that any is replaced again. Takes the mmap lock. */
static inline void syscall_sites_put_back(struct mm_struct *mm)
{
	/* Even if none is replaced yet: another thread may be about to replace one. */
	if (mm)
		__syscall_sites_put_back(mm);
}

/* The same for a task that is about to be traced. */
void syscall_sites_put_back_task(struct task_struct *task);

/* Puts back the sites in a range. The caller holds the mmap lock for writing. */
static inline void syscall_sites_put_back_range(struct mm_struct *mm, unsigned long start,
						unsigned long end)
{
	if (unlikely(mm->context.vmi.sites || test_bit(MM_CONTEXT_TEXTS, &mm->context.flags)))
		__syscall_sites_put_back_range(mm, start, end);
}

void __syscall_sites_map(struct vm_area_struct *vma);

/* A new mapping of a file, not yet visible to others, may become one with replaced sites. */
static inline void syscall_sites_map(struct vm_area_struct *vma)
{
	const vm_flags_t want = VM_READ | VM_EXEC | VM_MAYWRITE;

	if ((vma->vm_flags & (want | VM_WRITE | VM_SHARED)) == want)
		__syscall_sites_map(vma);
}

/* From now on a file's own mapping finds all mappings of the file. */
void syscall_sites_refuse(void);

/*
 * A file has changed without a write by this kernel: on a server, for instance. Its old pages are
 * gone from its cache already. New mappings show the new bytes. What a process has mapped, with
 * sites replaced, may stay as it is.
 */
void syscall_sites_file_changed(struct inode *inode);

#else

static inline void syscall_sites_map(struct vm_area_struct *vma)
{
}

static inline void syscall_sites_refuse(void)
{
}

static inline void syscall_sites_file_changed(struct inode *inode)
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
