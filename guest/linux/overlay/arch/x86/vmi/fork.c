// SPDX-License-Identifier: GPL-2.0-only
/*
 * What fork copies because parent and child would both fault on it, and what a new process has
 * prepared when it runs for the first time.
 */
#include <linux/prefault.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/userfaultfd_k.h>
#include <asm/mmu_context.h>
#include <asm/vmi.h>
#include <asm/vmi_cost.h>
#include "vmi.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

bool vmi_fork_eager __read_mostly;
module_param_named(fork_copies, vmi_fork_eager, bool, 0644);
MODULE_PARM_DESC(fork_copies,
		 "fork copies pages that are about to be written, and entries of text");

/*
 * Notes a page to copy, if there is room. Some places are reserved. fork asks twice about a page:
 * the first time it has no page to copy to.
 */
static bool note_copy(struct vmi_fork_pages *fork, unsigned long addr, bool reserved)
{
	fork->pending = true;
	if (fork->count && fork->address[fork->count - 1] == addr)
		return true;
	if (fork->count == ARRAY_SIZE(fork->address) ||
	    (!reserved && fork->plain == VMI_FORK_PAGES))
		return false;
	fork->plain += !reserved;
	fork->address[fork->count++] = addr;
	return true;
}

/* The place of an address in the filter. */
static unsigned int filter_bit(unsigned long addr)
{
	return addr >> PAGE_SHIFT & (VMI_HOT_FILTER_BITS - 1);
}

/* The place of a hot page, or NULL. */
static unsigned long *find_hot(struct vmi_hot_pages *hot, unsigned long addr)
{
	unsigned int i;

	if (!test_bit(filter_bit(addr), hot->filter))
		return NULL;
	for (i = 0; i < ARRAY_SIZE(hot->page); i++)
		if ((hot->page[i] & PAGE_MASK) == addr)
			return &hot->page[i];
	return NULL;
}

static void make_hot(struct vmi_hot_pages *hot, unsigned long addr, bool of_child)
{
	unsigned long *place = find_hot(hot, addr);
	unsigned int i;

	if (!place && of_child)
		place = &hot->page[VMI_FORK_HOT_PAGES +
				   hot->next_of_child++ % VMI_FORK_CHILD_PAGES];
	else if (!place)
		place = &hot->page[hot->next++ % VMI_FORK_HOT_PAGES];
	*place = addr;
	bitmap_zero(hot->filter, VMI_HOT_FILTER_BITS);
	for (i = 0; i < ARRAY_SIZE(hot->page); i++)
		__set_bit(filter_bit(hot->page[i]), hot->filter);
}

/* Whether one of the two is a copy of the other, and executes the same program. */
static bool same_layout(const struct mm_struct *a, const struct mm_struct *b)
{
	return a->start_stack == b->start_stack && a->start_brk == b->start_brk &&
	       a->start_code == b->start_code && a->mmap_base == b->mmap_base;
}

/*
 * What this child writes to, the next children of its parent will most probably write to, too. The
 * page-table lock is held, so this does not wait for the parent.
 */
static void tell_parent(struct mm_struct *mm, unsigned long addr)
{
	struct vmi_hot_pages *hot = &mm->context.vmi.hot;
	struct task_struct *parent;

	if (hot->told == VMI_FORK_CHILD_PAGES)
		return;
	rcu_read_lock();
	parent = rcu_dereference(current->real_parent);
	/* The lock keeps the parent's mm. */
	if (spin_trylock(&parent->alloc_lock)) {
		if (parent->mm && parent->mm != mm && same_layout(parent->mm, mm)) {
			make_hot(&parent->mm->context.vmi.hot, addr, true);
			hot->told++;
		}
		spin_unlock(&parent->alloc_lock);
	}
	rcu_read_unlock();
}

/* The current process has written to a page that fork had shared. */
void vmi_fork_shared_write(struct mm_struct *mm, unsigned long addr)
{
	addr &= PAGE_MASK;
	if (mm != current->mm || atomic_read(&mm->mm_users) != 1 || !addr)
		return;
	make_hot(&mm->context.vmi.hot, addr, false);
	tell_parent(mm, addr);
}

/* Whether fork copies a page for the reason that it is hot. */
static bool copy_hot(struct vmi_fork_pages *fork, struct vmi_hot_pages *hot, unsigned long addr)
{
	unsigned long *place = find_hot(hot, addr);
	bool again = fork->count && fork->address[fork->count - 1] == addr;

	if (!place)
		return false;
	if ((*place & ~PAGE_MASK) == VMI_FORK_HOT_COPIES && !again) {
		*place = 0;
		return false;
	}
	if (!note_copy(fork, addr, true))
		return false;
	*place += !again;
	return true;
}

/*
 * Whether fork copies a page because it lies between a copied page and a hot one, which the host
 * then maps together.
 */
static bool copy_between(struct vmi_fork_pages *fork, struct vmi_hot_pages *hot, unsigned long addr)
{
	unsigned long last = fork->count ? fork->address[fork->count - 1] : 0;
	unsigned int i;

	/* The second question about this page. */
	if (last && last == addr)
		return true;
	if (!last || last + PAGE_SIZE != addr || fork->between == VMI_FORK_BETWEEN_PAGES)
		return false;
	for (i = 1; i <= VMI_FORK_GAP_PAGES; i++) {
		if (find_hot(hot, addr + i * PAGE_SIZE)) {
			fork->between++;
			return note_copy(fork, addr, true);
		}
	}
	return false;
}

/* Notes a constant page. Only the first run of them counts: it is the program's own. */
static void note_constant(struct vmi_fork_pages *fork, unsigned long addr)
{
	fork->pending = true;
	if (!fork->constant_pages)
		fork->constants = addr;
	if (fork->constants + fork->constant_pages * PAGE_SIZE == addr)
		fork->constant_pages++;
}

/* How many pages of a folio fork may share before it comes to one that it may copy. */
static int pages_to_share(struct vmi_hot_pages *hot, unsigned long addr, unsigned long stack,
			  int most)
{
	int i;

	for (i = 1; i < most; i++)
		if (addr + i * PAGE_SIZE == stack || find_hot(hot, addr + i * PAGE_SIZE))
			break;
	return min(i, most);
}

static bool is_text(const struct vm_area_struct *vma)
{
	return vma && vma->vm_flags & VM_EXEC && vma->vm_file;
}

/*
 * The layer keeps mappings that parent and child have in common, if the child's tables have the
 * entries when the child runs for the first time.
 */
bool vmi_fork_copies_file(const struct vm_area_struct *dst, const struct vm_area_struct *src)
{
	unsigned int pages = (src->vm_end - src->vm_start) >> PAGE_SHIFT;
	struct vmi_fork_pages *fork = &dst->vm_mm->context.vmi.fork;
	bool copies;

	/* Mappings next to text hold headers, and tables that are read. */
	if (!is_text(src) && !is_text(vma_lookup(src->vm_mm, src->vm_start - 1)) &&
	    !is_text(vma_lookup(src->vm_mm, src->vm_end)))
		return false;
	fork->pending = true;
	copies = fork->file_pages + pages <= VMI_FORK_FILE_PAGES;
	if (copies)
		fork->file_pages += pages;
	return copies;
}

/*
 * Copies pages that the program has written since its last fork, up to a bound, those on which it
 * or a child faulted after one, and the top of its stack: parent and child most probably write to
 * them again. What lies between them is copied where one mapping is then enough.
 * A process with several threads gets no copies, since another thread could write to a page during
 * the copy and the child would find half of an update.
 */
bool vmi_fork_copies(struct vm_area_struct *dst, struct vm_area_struct *src, struct folio *folio,
		     unsigned long addr, pte_t pte, int *max_nr)
{
	struct vmi_fork_pages *fork = &dst->vm_mm->context.vmi.fork;
	struct mm_struct *mm = src->vm_mm;
	struct vmi_hot_pages *hot = &mm->context.vmi.hot;
	unsigned long stack = current_pt_regs()->sp & PAGE_MASK;
	bool written = pte_write(pte) && pte_dirty(pte);

	if (!is_cow_mapping(src->vm_flags) || !folio_test_anon(folio) || mm != current->mm ||
	    userfaultfd_wp(dst))
		return false;
	if (src->vm_file && !(src->vm_flags & VM_WRITE))
		note_constant(fork, addr);
	if (atomic_read(&mm->mm_users) != 1 || !(src->vm_flags & VM_WRITE))
		return false;
	if (folio_test_large(folio) && !(written && addr == stack)) {
		if (copy_hot(fork, hot, addr))
			return true;
		*max_nr = pages_to_share(hot, addr, stack, *max_nr);
		return false;
	}
	/* What is not written was shared by an earlier fork: only children write to it. */
	return copy_hot(fork, hot, addr) || copy_between(fork, hot, addr) ||
	       (written && note_copy(fork, addr, addr == stack));
}

/*
 * A new process, before it uses any of its memory: has the layer map the copied pages, the
 * constants and the page where it continues.
 */
void vmi_fork_fill(void)
{
	struct mm_struct *mm = current->mm;
	struct vmi_fork_pages *fork;
	unsigned int i, count;

	if (!mm || !mm->context.vmi.fork.pending)
		return;
	fork = &mm->context.vmi.fork;
	fork->pending = false;
	/* Page tables are freed by RCU, if khugepaged collapses what is there. */
	rcu_read_lock();
	for (i = 0; i < fork->count; i += count) {
		for (count = 1; i + count < fork->count; count++)
			if (fork->address[i + count] != fork->address[i] + count * PAGE_SIZE)
				break;
		vmi_fill_range(mm, fork->address[i], count);
	}
	vmi_fill_range(mm, fork->constants, fork->constant_pages);
	vmi_fill_range(mm, current_pt_regs()->ip, 1);
	rcu_read_unlock();
}
