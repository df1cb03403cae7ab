// SPDX-License-Identifier: GPL-2.0-only
/*
 * Text of programs in which sites are replaced for everybody who maps it.
 *
 * A site that many processes execute, each of them once, is never hot in one of them. So sites are counted by file, too, and a
 * file that has some gets a second page cache (text_pages.c): what the file has, with the sites replaced (text_sites.c). New private executable mappings
 * of the file are mappings of that; to everybody who asks they are mappings of the file (the same path and inode). Here is the life of a text: when there
 * is one, who maps it, and how it goes.
 *
 * A text of a file that is changed gets no more sites and no more mappings, until there is a new one. Who wants to see or change a process's text as it is
 * gets mappings of the file itself there. A mark of fsnotify finds the text by its inode, tells of writes, and goes with the inode without holding it.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fsnotify_backend.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/pseudo_fs.h>
#include <linux/slab.h>
#include <linux/syscall_sites.h>
#include "text.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

static bool enabled __read_mostly = true;
module_param_named(shared_sites, enabled, bool, 0644);
MODULE_PARM_DESC(shared_sites, "replace sites for everybody who maps a file");

static struct fsnotify_group *group __ro_after_init;
static struct vfsmount *mount __ro_after_init;
/* Somebody has set a breakpoint by file: mappings are found by the file's own cache. */
static bool refused;

static struct text *text_of_mark(struct fsnotify_mark *mark)
{
	return container_of(mark, struct text, mark);
}

/* A part of the text may go, or become something else, and the slots are in another. */
static int text_may_split(struct vm_area_struct *vma, unsigned long addr)
{
	text_revert(vma);
	return 0;
}

static const struct vm_operations_struct text_vm_ops = {
	.may_split = text_may_split,
	.fault = text_fault,
	.map_pages = filemap_map_pages,
};

/* A file that could be mapped before and cannot be now: who touches it gets SIGBUS. */
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

/* The file of a mapping; that whose text it is. */
static struct file *file_of(const struct vm_area_struct *vma)
{
	return text_is(vma) ? vma->vm_file->private_data : vma->vm_file;
}

/* NULL: the text goes, and another one may take the place. */
static struct inode *shadow_get(struct text *text)
{
	struct inode *shadow;

	spin_lock(&text->shadow_lock);
	shadow = text->shadow;
	if (shadow)
		ihold(shadow);
	spin_unlock(&text->shadow_lock);
	return shadow;
}

static struct text *text_find(struct inode *inode)
{
	struct fsnotify_mark *mark = fsnotify_find_inode_mark(inode, group);

	return mark ? text_of_mark(mark) : NULL;
}

static bool text_current(struct text *text, const struct inode *inode)
{
	struct timespec64 mtime = inode_get_mtime(inode), ctime = inode_get_ctime(inode);

	if (i_size_read(inode) != text->size || !timespec64_equal(&mtime, &text->mtime) ||
	    !timespec64_equal(&ctime, &text->ctime))
		WRITE_ONCE(text->dead, true);
	return !READ_ONCE(text->dead);
}

static void text_put(struct text *text)
{
	fsnotify_put_mark(&text->mark);
}

/* A program, or its loader, whose text nobody else has mapped as often: from LEARN_FROM on so often, it shows where it executes cpuid. */
#define LEARN_FROM 4
#define LEARN_TO 10

static void exec_count(const struct vm_area_struct *vma)
{
	struct inode *inode = file_inode(vma->vm_file);
	unsigned int times;

	if (!READ_ONCE(inode->i_size))
		return;
	times = vmi_file_heat_add((u64)inode << 16 ^ inode->i_generation ^ U64_MAX);
	if (times >= LEARN_FROM && times < LEARN_TO)
		vmi_cpuid_learn();
}

/* With all of the segment: jumps find their slots. */
static bool covers(const struct vm_area_struct *vma, const struct text *text)
{
	u64 start = (u64)vma->vm_pgoff << PAGE_SHIFT;

	return start <= text->start && start + (vma->vm_end - vma->vm_start) >= text->end;
}

/* A new mapping, before it can be found. */
void __syscall_sites_map(struct vm_area_struct *vma)
{
	struct inode *shadow;
	struct text *text;
	struct file *file;

	if (!group || !enabled)
		return;
	/* What nothing can come of is not learnt. */
	if (current->in_execve && vmi_sites_allowed() && !READ_ONCE(refused))
		exec_count(vma);
	text = text_find(file_inode(vma->vm_file));
	if (!text)
		return;
	shadow = shadow_get(text);
	if (shadow && text_current(text, file_inode(vma->vm_file)) && covers(vma, text) &&
	    !READ_ONCE(refused) && vmi_sites_allowed() &&
	    !inode_is_open_for_write(file_inode(vma->vm_file)) && vma->vm_ops &&
	    vma->vm_ops->map_pages && !vma->vm_ops->close) {
		file = file_with_sites(vma->vm_file, shadow);
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

static void bytes_keep(struct vm_area_struct *vma, u32 offset, const u8 *bytes, unsigned int length)
{
	u64 start = (u64)vma->vm_pgoff << PAGE_SHIFT;

	if (offset < start || offset - start >= vma->vm_end - vma->vm_start)
		return;
	while (vmi_text_write(vma, vma->vm_start + (offset - start), bytes, length) == -EAGAIN)
		cond_resched();
}

/* Somebody may be in a slot, or at the jump in a cave: those stay, as the process's own. Nothing leads there any more. */
static void slots_keep(struct vm_area_struct *vma, struct text *text)
{
	unsigned int i;

	mutex_lock(&text->lock);
	for (i = 0; i < text->changes; i++)
		if (text->change[i].cave)
			bytes_keep(vma, text->change[i].offset, text->change[i].new, JUMP_SIZE);
	bytes_keep(vma, text->end, text->tail + offset_in_page(text->end),
		   PAGE_SIZE - offset_in_page(text->end));
	mutex_unlock(&text->lock);
}

void text_revert(struct vm_area_struct *vma)
{
	struct zap_details details = { .even_cows = false };
	struct file *shadow = vma->vm_file, *file = shadow->private_data;

	vma_start_write(vma);
	zap_page_range_single(vma, vma->vm_start, vma->vm_end - vma->vm_start, &details);
	file_unlink(vma);
	vma->vm_file = get_file(file);
	vma->vm_ops = NULL;
	if (call_mmap(file, vma) || !vma->vm_ops)
		vma->vm_ops = &no_vm_ops;
	file_link(vma);
	/* Nobody executes there before the caller gives back the lock. */
	slots_keep(vma, shadow->f_mapping->host->i_private);
	fput(shadow);
}

/* Texts */

static int text_event(struct fsnotify_mark *mark, u32 mask, struct inode *inode, struct inode *dir,
		      const struct qstr *name, u32 cookie)
{
	WRITE_ONCE(text_of_mark(mark)->dead, true);
	return 0;
}

/* The inode goes, or another text takes the place. Mappings have the shadow for themselves. */
static void text_freeing(struct fsnotify_mark *mark, struct fsnotify_group *unused)
{
	struct text *text = text_of_mark(mark);
	struct inode *shadow;

	WRITE_ONCE(text->dead, true);
	spin_lock(&text->shadow_lock);
	shadow = text->shadow;
	text->shadow = NULL;
	spin_unlock(&text->shadow_lock);
	iput(shadow);
}

static void text_free(struct fsnotify_mark *mark)
{
	kvfree(text_of_mark(mark));
}

static const struct fsnotify_ops text_notify_ops = {
	.handle_inode_event = text_event,
	.freeing_mark = text_freeing,
	.free_mark = text_free,
};

static void text_evict(struct inode *inode)
{
	truncate_inode_pages_final(&inode->i_data);
	clear_inode(inode);
	if (inode->i_private)
		text_put(inode->i_private);
}

static const struct super_operations text_super_ops = {
	.statfs = simple_statfs,
	.evict_inode = text_evict,
};

static int text_init_fs(struct fs_context *fc)
{
	struct pseudo_fs_context *ctx = init_pseudo(fc, ANON_INODE_FS_MAGIC);

	if (!ctx)
		return -ENOMEM;
	ctx->ops = &text_super_ops;
	return 0;
}

static struct file_system_type text_fs = {
	.name = "vmi_text",
	.init_fs_context = text_init_fs,
	.kill_sb = kill_anon_super,
};

static struct inode *shadow_new(struct text *text, struct inode *inode)
{
	struct inode *shadow = alloc_anon_inode(mount->mnt_sb);

	if (IS_ERR(shadow))
		return shadow;
	shadow->i_mapping->a_ops = &text_aops;
	shadow->i_mode |= S_IFREG;
	mapping_set_gfp_mask(shadow->i_mapping, GFP_HIGHUSER_MOVABLE);
	i_size_write(shadow, i_size_read(inode));
	fsnotify_get_mark(&text->mark);
	shadow->i_private = text;
	return shadow;
}

static struct text *text_new(struct file *file, u32 offset)
{
	struct inode *inode = file_inode(file);
	struct text *text;
	u32 start, end;

	if (!S_ISREG(inode->i_mode) || IS_DAX(inode) || inode_is_open_for_write(inode) ||
	    mapping_writably_mapped(file->f_mapping) || !text_segment_find(file, offset, &start, &end) ||
	    !offset_in_page(end) || !text_tail_free(file, end))
		return NULL;
	text = kvzalloc(sizeof(*text), GFP_KERNEL_ACCOUNT);
	if (!text)
		return NULL;
	mutex_init(&text->lock);
	spin_lock_init(&text->shadow_lock);
	text->start = start;
	text->end = end;
	text->slots = round_up(end, SLOT_ALIGN);
	text->mtime = inode_get_mtime(inode);
	text->ctime = inode_get_ctime(inode);
	text->size = i_size_read(inode);
	fsnotify_init_mark(&text->mark, group);
	text->mark.mask = FS_MODIFY | FS_CLOSE_WRITE;
	text->mark.flags |= FSNOTIFY_MARK_FLAG_NO_IREF;
	text->shadow = shadow_new(text, inode);
	if (IS_ERR(text->shadow)) {
		text_put(text);
		return NULL;
	}
	text->pages = text->shadow->i_mapping;
	if (fsnotify_add_inode_mark(&text->mark, inode, 0)) {
		/* Somebody was faster. */
		iput(text->shadow);
		text_put(text);
		return text_find(inode);
	}
	return text;
}

static struct text *text_get(struct file *file, u32 offset)
{
	struct text *text = text_find(file_inode(file));

	if (text && !text_current(text, file_inode(file))) {
		fsnotify_destroy_mark(&text->mark, group);
		text_put(text);
		text = NULL;
	}
	return text ? text : text_new(file, offset);
}

enum outcome text_claim(struct file *file, loff_t offset, const struct pt_regs *regs, bool cpuid)
{
	enum outcome outcome = NOT_TEXT;
	struct inode *shadow;
	struct text *text;

	if (!group || !enabled || READ_ONCE(refused) || offset >= SZ_1G)
		return NOT_TEXT;
	text = text_get(file, offset);
	if (!text)
		return NOT_TEXT;
	shadow = shadow_get(text);
	if (shadow) {
		mutex_lock(&text->lock);
		outcome = text_add(text, file, offset, regs, cpuid);
		mutex_unlock(&text->lock);
		iput(shadow);
	}
	text_put(text);
	return outcome;
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
	if (vma && vmi_is_private_text(vma) && vma->vm_file) {
		file = get_file(file_of(vma));
		offset = ip - vma->vm_start + ((loff_t)vma->vm_pgoff << PAGE_SHIFT);
	}
	mmap_read_unlock(current->mm);
	if (!file)
		return NOT_TEXT;
	outcome = text_claim(file, offset, regs, cpuid);
	fput(file);
	return outcome;
}

u64 text_place(unsigned long ip)
{
	struct vm_area_struct *vma = lock_vma_under_rcu(current->mm, ip);
	u64 place = 0;

	if (!vma)
		return 0;
	if (vma->vm_file && vmi_is_private_text(vma))
		place = (u64)file_inode(file_of(vma)) << 16 ^
			(ip - vma->vm_start + ((u64)vma->vm_pgoff << PAGE_SHIFT));
	vma_end_read(vma);
	return place;
}

/* In all threads' address spaces: the first of a process may have ended. */
static void revert_all(void)
{
	struct task_struct *task;
	struct mm_struct *mm;
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
			vmi_sites_texts_revert(mm, 0, ULONG_MAX);
			mmap_write_unlock(mm);
			mmput(mm);
		}
		if (task)
			put_task_struct(task);
	}
	rcu_read_unlock();
}

/* Somebody wants to find all mappings of some file: there are none of texts any more. */
void syscall_sites_refuse(void)
{
	unsigned int pass;

	if (!group || xchg(&refused, true))
		return;
	/* Twice: the first time a process may be about to be born. */
	for (pass = 0; pass < 2; pass++)
		revert_all();
}

int __init text_init(void)
{
	struct fsnotify_group *made;
	int result = register_filesystem(&text_fs);

	if (result)
		return result;
	mount = kern_mount(&text_fs);
	if (IS_ERR(mount))
		return PTR_ERR(mount);
	made = fsnotify_alloc_group(&text_notify_ops, 0);
	if (IS_ERR(made))
		return PTR_ERR(made);
	group = made;
	return 0;
}
