// SPDX-License-Identifier: GPL-2.0-only
/*
 * Text of programs in which sites are replaced for everybody who maps it.
 *
 * A site that many processes execute, each of them once, is never hot in one of them. So sites are counted by file, too, and a
 * file that has some gets a second page cache: what the file has, with the sites replaced. New private executable mappings of the file are
 * mappings of that; to everybody who asks they are mappings of the file (the same path and inode). Pages come from the file's own cache when
 * they are asked for, and can be dropped at any time.
 *
 * Slots are where nothing else can be: in what is left of the last page of the executable segment, so that they are at the same distance in
 * every process. Jumps into another page of the cache are added while nobody maps either page: whoever executes there faults and waits.
 *
 * A text of a file that is changed gets no more sites and no more mappings, until there is a new one. Who wants to see or change a process's text as it is
 * gets mappings of the file itself there. A mark of fsnotify finds the text by its inode, tells of writes, and goes with the inode without holding it.
 */
#include <linux/elf.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fsnotify_backend.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/moduleparam.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/pseudo_fs.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>
#include <linux/syscall_sites.h>
#include <linux/unaligned.h>
#include <asm/vmi.h>
#include "shape.h"
#include "text.h"
#include "vmi.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

/* Pages that are read, and lie side by side, when one of them is faulted on. */
#define CHUNK_ORDER 7
#define CHUNK (1UL << CHUNK_ORDER)

#define CHANGES_MAX 512
#define SLOT_ALIGN 8

/* Offsets in the file stand for addresses: the layer asks only for distances. */
#define BIAS 0x10000000UL

/* Bytes that are different from the file's. Sorted by nothing: there are few. */
struct change {
	u32 offset;
	u8 length;
	u8 old[JUMP_SIZE], new[JUMP_SIZE];
	/* A jump in padding: somebody may be at it, from another one. */
	bool cave;
};

struct text {
	struct fsnotify_mark mark;
	/* Held as long as the mark is there; the shadow has the text, so that the text does not have it. */
	spinlock_t shadow_lock;
	struct inode *shadow;
	/* The shadow's; for who holds that. */
	struct address_space *pages;
	struct mutex lock;
	/* No more sites, no new mappings. Also set without the lock. */
	bool dead;
	/* The file's, when it was looked at first: not everybody who changes a file does it here. */
	struct timespec64 mtime, ctime;
	loff_t size;
	/* Of the executable segment, in the file. */
	u32 start, end;
	/* Behind it: slots. */
	u32 slots, body;
	u8 tail[PAGE_SIZE];
	unsigned int changes, sites;
	struct change change[CHANGES_MAX];
	/* Of their instruction; also those that cannot be replaced. */
	u32 site[CHANGES_MAX];
};

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

/* The file's own page: it stays locked in memory by nobody, so it may be another one next time. */
static struct folio *original(struct file *file, pgoff_t index)
{
	struct address_space *mapping = file->f_mapping;
	struct folio *folio = ERR_PTR(-EFAULT);

	if (mapping->a_ops->read_folio) {
		/* Or blocks that are just being freed could be read. */
		filemap_invalidate_lock_shared(mapping);
		if (index < DIV_ROUND_UP(i_size_read(mapping->host), PAGE_SIZE))
			folio = read_mapping_folio(mapping, index, file);
		filemap_invalidate_unlock_shared(mapping);
		return folio;
	}
	if (index >= DIV_ROUND_UP(i_size_read(mapping->host), PAGE_SIZE))
		return folio;
	return shmem_mapping(mapping) ? shmem_read_folio(mapping, index) : ERR_PTR(-EOPNOTSUPP);
}

/*
 * A page of the file, and the changes. Without the text's lock: what is added meanwhile is added to the page when it is unlocked, its slot
 * first.
 */
static int page_with_sites(struct text *text, struct file *file, pgoff_t index, u8 *to)
{
	struct folio *folio = original(file, index);
	unsigned int i, slots, changes = smp_load_acquire(&text->changes);

	if (IS_ERR(folio))
		return PTR_ERR(folio);
	memcpy_from_folio(to, folio, offset_in_folio(folio, (loff_t)index << PAGE_SHIFT), PAGE_SIZE);
	folio_put(folio);
	for (i = 0; i < changes; i++) {
		const struct change *change = &text->change[i];
		u8 *at = to + offset_in_page(change->offset);

		/* Not what is different now. */
		if (change->offset >> PAGE_SHIFT == index && !memcmp(at, change->old, change->length))
			memcpy(at, change->new, change->length);
	}
	slots = offset_in_page(text->end);
	if (slots && text->end >> PAGE_SHIFT == index)
		memcpy(to + slots, text->tail + slots, PAGE_SIZE - slots);
	return 0;
}

static int text_read_folio(struct file *file, struct folio *folio)
{
	struct text *text = folio->mapping->host->i_private;
	int result = file ? 0 : -EIO;
	unsigned int i;

	for (i = 0; i < folio_nr_pages(folio) && !result; i++)
		result = page_with_sites(text, file->private_data, folio->index + i,
					 page_address(folio_page(folio, i)));
	folio_end_read(folio, !result);
	return result;
}

static const struct address_space_operations text_aops = {
	.read_folio = text_read_folio,
	.dirty_folio = noop_dirty_folio,
};

/* Pages around one that is missing; those that cannot be had come one by one. */
static void chunk_read(struct file *file, pgoff_t index)
{
	struct address_space *mapping = file->f_mapping;
	struct text *text = mapping->host->i_private;
	gfp_t gfp = mapping_gfp_mask(mapping);
	pgoff_t first = max(round_down(index, CHUNK), (pgoff_t)text->start >> PAGE_SHIFT);
	pgoff_t end = min(round_down(index, CHUNK) + CHUNK, DIV_ROUND_UP((pgoff_t)text->end, PAGE_SIZE));
	struct page *page;
	unsigned int order, i;

	if (index < first || index >= end)
		return;
	order = order_base_2(end - first);
	page = alloc_pages(gfp | __GFP_NORETRY | __GFP_NOWARN, order);
	if (!page)
		return;
	split_page(page, order);
	for (i = 0; i < 1U << order; i++) {
		struct folio *folio = page_folio(page + i);

		if (i < end - first && !filemap_add_folio(mapping, folio, first + i, gfp))
			text_read_folio(file, folio);
		folio_put(folio);
	}
}

static vm_fault_t text_fault(struct vm_fault *vmf)
{
	struct file *file = vmf->vma->vm_file;
	struct folio *folio = filemap_get_folio(file->f_mapping, vmf->pgoff);

	if (IS_ERR(folio))
		chunk_read(file, vmf->pgoff);
	else
		folio_put(folio);
	return filemap_fault(vmf);
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

static int text_release(struct inode *inode, struct file *file)
{
	iput(file->f_mapping->host);
	fput(file->private_data);
	return 0;
}

/* Who reads by the mapping's file (build ids) has the file's own bytes. */
static ssize_t text_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct file *clone = iocb->ki_filp, *file = clone->private_data;
	ssize_t result;

	if (!file->f_op->read_iter || !is_sync_kiocb(iocb))
		return -EINVAL;
	iocb->ki_filp = file;
	result = file->f_op->read_iter(iocb, to);
	iocb->ki_filp = clone;
	return result;
}

static const struct file_operations text_fops = {
	.read_iter = text_read_iter,
	.release = text_release,
};

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

/* A file like this one to whoever asks, with the text's pages; has the caller's reference to the shadow. */
static struct file *file_with_sites(struct file *file, struct inode *shadow)
{
	struct file *clone = alloc_file_clone(file, O_RDONLY | O_LARGEFILE, &text_fops);

	if (IS_ERR(clone))
		return clone;
	if (file->f_mode & FMODE_BACKING) {
		struct path path = clone->f_path;

		clone->f_path = *file_user_path(file);
		/* Counted when it is let go of by what it is then. */
		i_readcount_dec(file_inode(clone));
		clone->f_inode = d_inode(clone->f_path.dentry);
		i_readcount_inc(file_inode(clone));
		path_get(&clone->f_path);
		path_put(&path);
	}
	clone->f_mode |= FMODE_NONOTIFY;
	clone->private_data = get_file(file);
	clone->f_mapping = shadow->i_mapping;
	return clone;
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
	if (current->in_execve && vmi_sites_allowed())
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

/* The executable segment around an offset, and what is left of its last page. */
static bool segment_find(struct file *file, u32 offset, u32 *start, u32 *end)
{
	struct folio *folio = original(file, 0);
	const struct elf64_phdr *phdr;
	const struct elf64_hdr *elf;
	unsigned int i, count;
	bool found = false;

	if (IS_ERR(folio))
		return false;
	elf = folio_address(folio) + offset_in_folio(folio, 0);
	phdr = (const void *)elf + sizeof(*elf);
	/* The file may be written to meanwhile. */
	count = READ_ONCE(elf->e_phnum);
	if (!memcmp(elf->e_ident, ELFMAG, SELFMAG) && elf->e_ident[EI_CLASS] == ELFCLASS64 &&
	    elf->e_phoff == sizeof(*elf) && elf->e_phentsize == sizeof(*phdr) &&
	    count <= (PAGE_SIZE - sizeof(*elf)) / sizeof(*phdr)) {
		for (i = 0; i < count && !found; i++) {
			u64 first = READ_ONCE(phdr[i].p_offset), size = READ_ONCE(phdr[i].p_filesz);

			found = phdr[i].p_type == PT_LOAD && phdr[i].p_flags & PF_X && first <= offset &&
				size < SZ_1G && offset - first < size && first + size < SZ_1G;
			*start = first;
			*end = first + size;
		}
	}
	folio_put(folio);
	return found;
}

/* Nobody else has anything there: zeros, to the page's end. */
static bool tail_free(struct file *file, u32 end)
{
	struct folio *folio = original(file, end >> PAGE_SHIFT);
	const u8 *page;
	bool is_free;

	if (IS_ERR(folio))
		return false;
	page = folio_address(folio) + offset_in_folio(folio, round_down(end, PAGE_SIZE));
	is_free = !memchr_inv(page + offset_in_page(end), 0, PAGE_SIZE - offset_in_page(end));
	folio_put(folio);
	return is_free;
}

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
	    mapping_writably_mapped(file->f_mapping) || !segment_find(file, offset, &start, &end) ||
	    !offset_in_page(end) || !tail_free(file, end))
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

/* Sites */

static void change_add(struct text *text, u32 offset, const u8 *page, const u8 *new, unsigned int length,
		       bool cave)
{
	struct change *change = &text->change[text->changes];

	change->offset = offset;
	change->length = length;
	change->cave = cave;
	memcpy(change->old, page + offset_in_page(offset), length);
	memcpy(change->new, new, length);
	/* Whoever reads a page may look at it now. */
	smp_store_release(&text->changes, text->changes + 1);
}

/* As the text now says, where the page is in the cache: nobody maps it meanwhile, and who faults on it comes back by an iret, which serializes. */
static void page_update(struct text *text, pgoff_t index, u32 from, const u8 *bytes, unsigned int length)
{
	struct address_space *mapping = text->pages;
	struct folio *folio;

	/* Who puts the page into the cache now sees what the text says, or is seen here. */
	smp_mb();
	folio = filemap_lock_folio(mapping, index);
	if (IS_ERR(folio))
		return;
	if (folio_test_uptodate(folio)) {
		unmap_mapping_pages(mapping, index, 1, false);
		memcpy(folio_address(folio) + offset_in_folio(folio, ((loff_t)index << PAGE_SHIFT) + from),
		       bytes, length);
	}
	folio_unlock(folio);
	folio_put(folio);
}

static void change_show(struct text *text, const struct change *change)
{
	page_update(text, change->offset >> PAGE_SHIFT, offset_in_page(change->offset), change->new,
		    change->length);
}

/* The layer's code at the next free place; 0: there is no room. */
static u32 slot_write(struct text *text, struct vmi_syscall_site *site)
{
	u32 slot = text->slots, length;
	u8 *at = text->tail + offset_in_page(slot);
	int result;

	if (slot >> PAGE_SHIFT != text->end >> PAGE_SHIFT)
		return 0;
	site->slot = BIAS + slot;
	result = vmi.patch_code(site, text->body ? BIAS + text->body : 0, at,
				PAGE_SIZE - offset_in_page(slot));
	if (result <= 0)
		return 0;
	length = result;
	page_update(text, slot >> PAGE_SHIFT, offset_in_page(slot), at, length);
	text->slots = round_up(slot + length, SLOT_ALIGN);
	return slot;
}

static enum outcome site_claim(struct text *text, const u8 *page, u32 offset, const struct pt_regs *regs,
			       bool cpuid)
{
	u32 base = round_down(offset, PAGE_SIZE), slot;
	struct vmi_syscall_site site = {};
	unsigned int first = text->changes;
	u8 jump[JUMP_SIZE];
	struct shape shape;

	if (offset_in_page(offset) > PAGE_SIZE - 2)
		return NO_CAVE_OR_PAGE;
	/* Registers are what some program liked them to be: nothing that others execute is changed because of them. */
	if (cpuid ? !shape_find_cpuid(page, offset_in_page(offset), &shape) :
		    !shape_find(page, offset_in_page(offset), regs, &shape) || !shape_proven(page, &shape))
		return NO_SHAPE;
	/* What is not of the segment proves nothing, and slots are no padding. */
	if (base < text->start || (shape.cave && base + shape.cave + JUMP_SIZE > text->end))
		return NO_SHAPE;
	if (cpuid && !text->body) {
		site.flags = VMI_SITE_BODY;
		text->body = slot_write(text, &site);
		if (!text->body)
			return NO_SLOT;
	}
	site.addr = BIAS + base + shape.start;
	site.length = shape.syscall + 2 - shape.start;
	site.syscall_offset = shape.syscall - shape.start;
	site.flags = cpuid ? VMI_SITE_CPUID : 0;
	memcpy(site.code, page + shape.start, site.length);
	if (shape.relative) {
		s32 distance = get_unaligned((s32 *)(site.code + shape.relative));

		put_unaligned(distance + (s32)(site.addr - BIAS - text->slots), (s32 *)(site.code + shape.relative));
	}
	slot = slot_write(text, &site);
	if (!slot)
		return NO_SLOT;
	if (shape.cave) {
		u8 hop[2] = { 0xeb, shape.cave - (shape.start + 2) };

		jump_to(jump, base + shape.cave, slot);
		change_add(text, base + shape.cave, page, jump, JUMP_SIZE, true);
		change_show(text, &text->change[first++]);
		change_add(text, base + shape.start, page, hop, 2, false);
	} else {
		jump_to(jump, base + shape.start, slot);
		change_add(text, base + shape.start, page, jump, JUMP_SIZE, false);
	}
	change_show(text, &text->change[first]);
	return SHARED;
}

static enum outcome text_add(struct text *text, struct file *file, u32 offset, const struct pt_regs *regs,
			     bool cpuid)
{
	enum outcome outcome;
	unsigned int i;
	u8 *page;

	if (READ_ONCE(text->dead) || offset < text->start || offset >= text->end)
		return NOT_TEXT;
	for (i = 0; i < text->sites; i++)
		if (text->site[i] == offset)
			return IN_PLACE;
	if (text->sites == CHANGES_MAX || text->changes > CHANGES_MAX - 2)
		return NO_SLOT;
	page = (u8 *)__get_free_page(GFP_KERNEL);
	if (!page)
		return NO_MEMORY;
	outcome = BUSY;
	if (!page_with_sites(text, file, offset >> PAGE_SHIFT, page)) {
		outcome = site_claim(text, page, offset, regs, cpuid);
		/* What only somebody's registers speak against may work out for others. */
		if (cpuid || outcome == SHARED)
			text->site[text->sites++] = offset;
	}
	free_page((unsigned long)page);
	return outcome;
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
