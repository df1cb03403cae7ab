// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mappings of texts: a new mapping of a file becomes one of its text, and a mapping of a text
 * becomes one of the file again before a debugger, a write by force or a change of the mapping gets
 * to it.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/pid.h>
#include <linux/ptrace.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/syscall_sites.h>
#include <asm/vmi_cost.h>
#include "heat.h"
#include "policy.h"
#include "text.h"
#include "text_map.h"
#include "text_pages.h"
#include "text_sites.h"
#include "write.h"

/* The part that is split off may be unmapped or changed, and the stubs lie in another part. */
static int text_may_split(struct vm_area_struct *vma, unsigned long addr)
{
	return text_revert(vma);
}

static const struct vm_operations_struct text_vm_ops = {
	.may_split = text_may_split,
	.fault = text_fault,
	.map_pages = filemap_map_pages,
};

/* The file could be mapped before and cannot be mapped now: an access raises SIGBUS. */
static vm_fault_t no_fault(struct vm_fault *vmf)
{
	return VM_FAULT_SIGBUS;
}

static const struct vm_operations_struct no_vm_ops = {
	.fault = no_fault,
};

bool text_is(const struct vm_area_struct *vma)
{
	return vma->vm_ops == &text_vm_ops;
}

struct file *text_file_of(const struct vm_area_struct *vma)
{
	return text_is(vma) ? vma->vm_file->private_data : vma->vm_file;
}

/* A mapping of a text must cover the whole segment, so that jumps reach their stubs. */
static bool covers(const struct vm_area_struct *vma, const struct text *text)
{
	u64 start = (u64)vma->vm_pgoff << PAGE_SHIFT;

	return start <= text->start && start + (vma->vm_end - vma->vm_start) >= text->end;
}

/* The most mappings of a process that are searched for memory with code of its own. */
#define MAPPINGS_SEEN 1024

/*
 * A program that writes code may do so from what it reads of another program's or library's text:
 * valgrind translates all that it runs. Jumps to stubs would mislead it, so such a process gets
 * files as they are from then on. It has mapped memory for its code before it maps what it reads.
 * The mmap lock is held.
 */
bool text_is_read(struct mm_struct *mm)
{
	struct vm_area_struct *vma;
	unsigned int seen = 0;
	VMA_ITERATOR(iterator, mm, 0);

	if (test_bit(MM_CONTEXT_WRITES_CODE, &mm->context.flags))
		return true;
	for_each_vma(iterator, vma) {
		if ((vma->vm_flags & (VM_WRITE | VM_EXEC)) == (VM_WRITE | VM_EXEC)) {
			set_bit(MM_CONTEXT_WRITES_CODE, &mm->context.flags);
			return true;
		}
		if (++seen == MAPPINGS_SEEN)
			break;
	}
	return false;
}

void text_map(struct vm_area_struct *vma)
{
	struct inode *inode = file_inode(vma->vm_file), *shadow;
	struct text *text = text_find(inode);
	struct file *file;

	if (!text)
		return;
	shadow = text_shadow(text);
	if (shadow && text_current(text, inode) && covers(vma, text) && !text_refused() &&
	    vmi_sites_allowed() && !inode_is_open_for_write(inode) && vma->vm_ops &&
	    vma->vm_ops->map_pages && !vma->vm_ops->close) {
		file = text_file(vma->vm_file, shadow);
		if (!IS_ERR(file)) {
			shadow = NULL;
			vma_set_file(vma, file);
			fput(file);
			vma->vm_ops = &text_vm_ops;
			set_bit(MM_CONTEXT_TEXTS, &vma->vm_mm->context.flags);
		}
	}
	iput(shadow);
	text_put(text);
}

static void file_unlink(struct vm_area_struct *vma)
{
	struct address_space *mapping = vma->vm_file->f_mapping;

	i_mmap_lock_write(mapping);
	flush_dcache_mmap_lock(mapping);
	vma_interval_tree_remove(vma, &mapping->i_mmap);
	flush_dcache_mmap_unlock(mapping);
	i_mmap_unlock_write(mapping);
}

static void file_link(struct vm_area_struct *vma)
{
	struct address_space *mapping = vma->vm_file->f_mapping;

	i_mmap_lock_write(mapping);
	flush_dcache_mmap_lock(mapping);
	vma_interval_tree_insert(vma, &mapping->i_mmap);
	flush_dcache_mmap_unlock(mapping);
	i_mmap_unlock_write(mapping);
}

/*
 * A mapping that is older than the text of its file becomes one of the text. The process has no
 * pages of its own there, so only sites differ, and a thread that executes there faults and waits:
 * what holds for a change of a text holds here. The mmap lock is held for writing.
 */
bool text_join(struct vm_area_struct *vma)
{
	if (text_is(vma) || !vma->vm_file || vma->anon_vma || vma->vm_flags & VM_LOCKED)
		return false;
	vma_start_write(vma);
	zap_page_range_single(vma, vma->vm_start, vma->vm_end - vma->vm_start, NULL);
	file_unlink(vma);
	text_map(vma);
	file_link(vma);
	return text_is(vma);
}

static int bytes_keep(struct vm_area_struct *vma, u32 offset, const u8 *bytes, unsigned int length)
{
	struct piece piece = { .bytes = bytes, .length = length };
	u64 start = (u64)vma->vm_pgoff << PAGE_SHIFT;
	int error;

	if (offset < start || offset - start >= vma->vm_end - vma->vm_start)
		return 0;
	piece.address = vma->vm_start + (offset - start);
	while ((error = text_write(vma, &piece, 1)) == -EAGAIN)
		cond_resched();
	/* The file has become shorter: a thread that executes there gets SIGBUS. */
	return error == -EFAULT ? 0 : error;
}

/*
 * A thread may be executing a stub, or be at the jump in a cave. So both stay, in the process's own
 * copies of those pages. They are made while the mapping still shows the text: at any moment at
 * which a thread finds such a page, the stubs are in it.
 */
static int stubs_keep(struct vm_area_struct *vma, const struct text *text)
{
	unsigned int i;
	int error;

	error = bytes_keep(vma, text->end, text->tail + offset_in_page(text->end),
			   PAGE_SIZE - offset_in_page(text->end));
	for (i = 0; i < text->changes && !error; i++)
		if (text->change[i].cave)
			error = bytes_keep(vma, text->change[i].offset, text->change[i].new,
					   JUMP_SIZE);
	return error;
}

/* Whether stubs_keep() has copied the page that holds this offset. */
static bool is_kept(const struct text *text, u32 offset)
{
	unsigned int i;

	if (offset >> PAGE_SHIFT == text->end >> PAGE_SHIFT)
		return true;
	for (i = 0; i < text->changes; i++)
		if (text->change[i].cave &&
		    text->change[i].offset >> PAGE_SHIFT == offset >> PAGE_SHIFT)
			return true;
	return false;
}

/*
 * Puts the sites in the copied pages back: nothing leads to their stubs any more. They stay if the
 * caller is being killed.
 */
static void sites_put_back(struct vm_area_struct *vma, const struct text *text)
{
	unsigned int i;

	for (i = 0; i < text->changes; i++) {
		const struct change *change = &text->change[i];

		if (!change->cave && is_kept(text, change->offset))
			bytes_keep(vma, change->offset, change->old, change->length);
	}
}

/* Pages that the process has for itself stay. */
static void file_change(struct vm_area_struct *vma, struct file *file)
{
	file_unlink(vma);
	vma->vm_file = file;
	vma->vm_ops = NULL;
	if (call_mmap(file, vma) || !vma->vm_ops)
		vma->vm_ops = &no_vm_ops;
	file_link(vma);
}

int text_revert(struct vm_area_struct *vma)
{
	unsigned long size = vma->vm_end - vma->vm_start;
	struct zap_details shared = { .even_cows = false };
	struct file *shadow = vma->vm_file;
	struct text *text = shadow->f_mapping->host->i_private;
	int error;

	vma_start_write(vma);
	/* New stubs would be missing in the copies. */
	mutex_lock(&text->lock);
	error = stubs_keep(vma, text);
	/* No thread gets a page of the text after this, before the caller drops the mmap lock. */
	zap_page_range_single(vma, vma->vm_start, size, error ? NULL : &shared);
	if (!error) {
		file_change(vma, get_file(shadow->private_data));
		sites_put_back(vma, text);
	}
	mutex_unlock(&text->lock);
	if (!error)
		fput(shadow);
	return error;
}

int text_revert_range(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	struct vm_area_struct *vma;
	int error = 0, this;
	VMA_ITERATOR(iterator, mm, start);

	if (!test_bit(MM_CONTEXT_TEXTS, &mm->context.flags))
		return 0;
	for_each_vma_range(iterator, vma, end) {
		if (!text_is(vma))
			continue;
		this = text_revert(vma);
		if (this)
			error = this;
		else
			sites_note(PUT_BACK);
	}
	return error;
}

unsigned long text_leave(const struct vm_area_struct *vma, unsigned long ip)
{
	u32 at;

	if (!text_is(vma))
		return ip;
	at = ip - vma->vm_start + (vma->vm_pgoff << PAGE_SHIFT);
	return ip + (s32)(text_leave_stub(vma->vm_file->f_mapping->host->i_private, at) - at);
}

enum outcome text_claim_at(unsigned long ip, const struct pt_regs *regs, bool cpuid)
{
	struct vm_area_struct *vma;
	struct file *file = NULL;
	enum outcome outcome;
	loff_t offset;

	if (mmap_read_lock_killable(current->mm))
		return BUSY;
	vma = vma_lookup(current->mm, ip);
	if (vma && text_is_private(vma) && vma->vm_file) {
		file = get_file(text_file_of(vma));
		offset = ip - vma->vm_start + ((loff_t)vma->vm_pgoff << PAGE_SHIFT);
	}
	mmap_read_unlock(current->mm);
	if (!file)
		return NOT_TEXT;
	outcome = text_claim(file, offset, regs, cpuid);
	fput(file);
	return outcome;
}

/* A key for the place in a file that is mapped at an address of the current process; 0 if none. */
static u64 text_place(unsigned long ip)
{
	struct vm_area_struct *vma = lock_vma_under_rcu(current->mm, ip);
	u64 place = 0;

	if (!vma)
		return 0;
	if (vma->vm_file && text_is_private(vma))
		place = (u64)file_inode(text_file_of(vma)) << 16 ^
			(ip - vma->vm_start + ((u64)vma->vm_pgoff << PAGE_SHIFT));
	vma_end_read(vma);
	return place;
}

unsigned int text_warm(unsigned long ip, const struct pt_regs *regs, bool cpuid)
{
	u64 place = text_place(ip);
	unsigned int traps;
	bool due;

	if (!place)
		return UINT_MAX;
	traps = heat_by_file(place);
	/*
	 * A fault of cpuid happens only to learn from it. A system call is tried more and more
	 * rarely: an earlier attempt may have failed because of its registers.
	 */
	due = cpuid ? traps == 2 : traps >= VMI_TRAPS_HOT && is_power_of_2(traps);
	if (due)
		sites_note_at(text_claim_at(ip, regs, cpuid), ip, regs);
	return traps;
}

/* Visits each thread, not each process: the first thread of a process may have ended. */
static int revert_all(void)
{
	struct task_struct *task;
	struct mm_struct *mm;
	int error = 0, this;
	struct pid *pid;
	pid_t nr;

	for (nr = 1;; nr++) {
		rcu_read_lock();
		pid = find_ge_pid(nr, &init_pid_ns);
		if (!pid)
			break;
		nr = pid_nr(pid);
		task = get_pid_task(pid, PIDTYPE_PID);
		rcu_read_unlock();
		mm = task ? get_task_mm(task) : NULL;
		if (mm) {
			mmap_write_lock(mm);
			this = text_revert_range(mm, 0, ULONG_MAX);
			error = this ? this : error;
			mmap_write_unlock(mm);
			mmput(mm);
		}
		if (task)
			put_task_struct(task);
	}
	rcu_read_unlock();
	return error;
}

/* uprobes finds mappings by the file, so from now on there are no mappings of texts. */
void syscall_sites_refuse(void)
{
	/* A caller that was killed has left some. */
	static bool some_left;
	unsigned int pass;
	int error = 0;

	if (!text_refuse() && !xchg(&some_left, false))
		return;
	/* Twice: during the first pass a fork may be about to copy a mapping. */
	for (pass = 0; pass < 2; pass++)
		error = revert_all();
	if (error)
		WRITE_ONCE(some_left, true);
}
