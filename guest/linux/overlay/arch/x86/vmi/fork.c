// SPDX-License-Identifier: GPL-2.0-only
/* What fork copies, because parent and child would both fault on it, and what a new process has ready. */
#include <linux/prefault.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/userfaultfd_k.h>
#include <asm/mmu_context.h>
#include <asm/vmi.h>
#include "vmi.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

bool vmi_fork_eager __read_mostly = true;
module_param_named(fork_copies, vmi_fork_eager, bool, 0644);
MODULE_PARM_DESC(fork_copies, "fork copies pages that are written to at once, and entries of text");

/* So many, and the top of the stack. */
#define HOT_PAGES 20

/*
 * What fork has copied for a process that has not run yet, by the number of its address space. Two that share a place take it from each
 * other, and fill less, or nothing that harms.
 */
static struct hot {
	u64 context;
	unsigned int file_pages;	/* that entries were copied for, at most */
	unsigned long constants;	/* what was written to once, by the dynamic linker: read again at once */
	unsigned int constant_pages;
	unsigned int count;
	unsigned long address[HOT_PAGES + 1];
} hot_pages[32];
static DEFINE_SPINLOCK(hot_lock);

static struct hot *hot_of(const struct mm_struct *mm)
{
	return &hot_pages[mm->context.ctx_id % ARRAY_SIZE(hot_pages)];
}

/* The one of a process that is being made. Under the lock. */
static struct hot *hot_begin(const struct mm_struct *mm)
{
	struct hot *hot = hot_of(mm);

	if (hot->context != mm->context.ctx_id) {
		hot->context = mm->context.ctx_id;
		hot->file_pages = 0;
		hot->constant_pages = 0;
		hot->count = 0;
	}
	return hot;
}

/* Room for one more; the last place is the stack's. */
static bool hot_add(const struct mm_struct *mm, unsigned long addr, bool stack)
{
	bool added = true;
	struct hot *hot;

	spin_lock(&hot_lock);
	hot = hot_begin(mm);
	/* Fork asks twice, since the second time there is a page to copy to. */
	if (!hot->count || hot->address[hot->count - 1] != addr) {
		added = hot->count < ARRAY_SIZE(hot->address) - !stack;
		if (added)
			hot->address[hot->count++] = addr;
	}
	spin_unlock(&hot_lock);
	return added;
}

/* The first piece of them, that is the program's. */
static void constant_add(const struct mm_struct *mm, unsigned long addr)
{
	struct hot *hot;

	spin_lock(&hot_lock);
	hot = hot_begin(mm);
	if (!hot->constant_pages)
		hot->constants = addr;
	if (hot->constants + hot->constant_pages * PAGE_SIZE == addr)
		hot->constant_pages++;
	spin_unlock(&hot_lock);
}

/* In all, of one process: what is copied is undone at exec or exit. */
#define FORK_FILE_PAGES 1024

static bool is_text(const struct vm_area_struct *vma)
{
	return vma && vma->vm_flags & VM_EXEC && vma->vm_file;
}

/* The layer keeps what parent and child have in common, if it is in the child's tables when that runs first. */
bool vmi_fork_copies_file(const struct vm_area_struct *dst, const struct vm_area_struct *src)
{
	unsigned int pages = (src->vm_end - src->vm_start) >> PAGE_SHIFT;
	struct hot *hot;
	bool copies;

	/* Next to it lie headers, and tables that are read. */
	if (!is_text(src) && !is_text(vma_lookup(src->vm_mm, src->vm_start - 1)) &&
	    !is_text(vma_lookup(src->vm_mm, src->vm_end)))
		return false;
	spin_lock(&hot_lock);
	hot = hot_begin(dst->vm_mm);
	copies = hot->file_pages + pages <= FORK_FILE_PAGES;
	if (copies)
		hot->file_pages += pages;
	spin_unlock(&hot_lock);
	return copies;
}

/*
 * Pages that a program has written since its last fork, if they are few, and the top of its stack: most probably both go on writing to them.
 * Shared, such a page costs a flush and a fault in the parent and another in the child; copied, a third of a microsecond. Not where other threads
 * could write to it meanwhile: they would find half of something in the child.
 */
bool vmi_fork_copies(struct vm_area_struct *dst, struct vm_area_struct *src, struct folio *folio,
		     unsigned long addr, pte_t pte, int *max_nr)
{
	struct mm_struct *mm = src->vm_mm;
	unsigned long stack;

	if (!is_cow_mapping(src->vm_flags) || !folio_test_anon(folio) || mm != current->mm ||
	    userfaultfd_wp(dst))
		return false;
	if (src->vm_file && !(src->vm_flags & VM_WRITE))
		constant_add(dst->vm_mm, addr);
	if (!pte_write(pte) || !pte_dirty(pte) || atomic_read(&mm->mm_users) != 1)
		return false;
	stack = current_pt_regs()->sp & PAGE_MASK;
	if (addr != stack && folio_test_large(folio)) {
		if (stack > addr && (stack - addr) >> PAGE_SHIFT < *max_nr)
			*max_nr = (stack - addr) >> PAGE_SHIFT;
		return false;
	}
	return hot_add(dst->vm_mm, addr, addr == stack);
}

/* A new process, before anything of its memory is used: what was copied for it, and where it goes on. */
void vmi_fork_fill(void)
{
	struct mm_struct *mm = current->mm;
	unsigned int i, count;
	struct hot hot;

	if (!mm || hot_of(mm)->context != mm->context.ctx_id)
		return;
	spin_lock(&hot_lock);
	hot = *hot_of(mm);
	hot_of(mm)->context = 0;
	spin_unlock(&hot_lock);
	if (hot.context != mm->context.ctx_id)
		return;
	/* Page tables are freed by RCU, if somebody else makes a large page of what is there. */
	rcu_read_lock();
	for (i = 0; i < hot.count; i += count) {
		for (count = 1; i + count < hot.count; count++)
			if (hot.address[i + count] != hot.address[i] + count * PAGE_SIZE)
				break;
		vmi_fill_range(mm, hot.address[i], count);
	}
	vmi_fill_range(mm, hot.constants, hot.constant_pages);
	vmi_fill_range(mm, current_pt_regs()->ip, 1);
	rcu_read_unlock();
}
