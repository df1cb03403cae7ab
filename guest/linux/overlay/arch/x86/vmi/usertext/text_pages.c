// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pages of a text. They are made from the pages of the file's own cache when they are asked
 * for, and can be reclaimed at any time.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/shmem_fs.h>
#include <asm/vmi_cost.h>
#include "text_pages.h"

#define CHUNK (1UL << VMI_TEXT_CHUNK_ORDER)

struct folio *text_original(struct file *file, pgoff_t index)
{
	struct address_space *mapping = file->f_mapping;
	struct folio *folio = ERR_PTR(-EFAULT);

	if (mapping->a_ops->read_folio) {
		/* Against truncation, which could free the blocks during the read. */
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

int text_page_copy(struct text *text, struct file *file, pgoff_t index, u8 *to)
{
	struct folio *folio = text_original(file, index);
	/* Pairs with the release in change_add(). */
	unsigned int changes = smp_load_acquire(&text->changes);
	unsigned int i, tail;

	if (IS_ERR(folio))
		return PTR_ERR(folio);
	memcpy_from_folio(to, folio, offset_in_folio(folio, (loff_t)index << PAGE_SHIFT),
			  PAGE_SIZE);
	folio_put(folio);
	for (i = 0; i < changes; i++) {
		const struct change *change = &text->change[i];
		u8 *at = to + offset_in_page(change->offset);

		/* Skips bytes that the file does not hold any more. */
		if (change->offset >> PAGE_SHIFT == index &&
		    !memcmp(at, change->old, change->length))
			memcpy(at, change->new, change->length);
	}
	tail = offset_in_page(text->end);
	if (tail && text->end >> PAGE_SHIFT == index)
		memcpy(to + tail, text->tail + tail, PAGE_SIZE - tail);
	return 0;
}

static int text_read_folio(struct file *file, struct folio *folio)
{
	struct text *text = folio->mapping->host->i_private;
	int result = file ? 0 : -EIO;
	unsigned int i;

	for (i = 0; i < folio_nr_pages(folio) && !result; i++)
		result = text_page_copy(text, file->private_data, folio->index + i,
					page_address(folio_page(folio, i)));
	folio_end_read(folio, !result);
	return result;
}

const struct address_space_operations text_aops = {
	.read_folio = text_read_folio,
	.dirty_folio = noop_dirty_folio,
};

/* Reads pages into neighbouring pages of memory. False: there is no memory for that. */
static bool pages_read(struct file *file, pgoff_t first, pgoff_t end)
{
	struct address_space *mapping = file->f_mapping;
	gfp_t gfp = mapping_gfp_mask(mapping);
	unsigned int order = order_base_2(end - first), i;
	struct page *page = alloc_pages(gfp | __GFP_NORETRY | __GFP_NOWARN, order);

	if (!page)
		return false;
	split_page(page, order);
	for (i = 0; i < 1U << order; i++) {
		struct folio *folio = page_folio(page + i);

		if (i < end - first && !filemap_add_folio(mapping, folio, first + i, gfp))
			text_read_folio(file, folio);
		folio_put(folio);
	}
	return true;
}

/*
 * Reads the pages around a missing one: all of a small text, or else a piece. Without memory for
 * that the fault reads one page.
 */
static void chunk_read(struct file *file, pgoff_t index)
{
	const struct text *text = file->f_mapping->host->i_private;
	pgoff_t first = (pgoff_t)text->start >> PAGE_SHIFT;
	pgoff_t end = DIV_ROUND_UP((pgoff_t)text->end, PAGE_SIZE);

	if (index < first || index >= end ||
	    (end - first <= VMI_SMALL_TEXT_PAGES && pages_read(file, first, end)))
		return;
	first = max(first, round_down(index, CHUNK));
	end = min(end, round_down(index, CHUNK) + CHUNK);
	pages_read(file, first, end);
}

vm_fault_t text_fault(struct vm_fault *vmf)
{
	struct file *file = vmf->vma->vm_file;
	struct folio *folio = filemap_get_folio(file->f_mapping, vmf->pgoff);

	if (IS_ERR(folio))
		chunk_read(file, vmf->pgoff);
	else
		folio_put(folio);
	return filemap_fault(vmf);
}

void text_page_update(struct text *text, pgoff_t index, u32 from, const u8 *bytes,
		      unsigned int length)
{
	struct address_space *mapping = text->pages;
	struct folio *folio;

	/*
	 * A reader that adds the page to the cache now sees the change, or the page is found here.
	 */
	smp_mb();
	folio = filemap_lock_folio(mapping, index);
	if (IS_ERR(folio))
		return;
	if (folio_test_uptodate(folio)) {
		unmap_mapping_pages(mapping, index, 1, false);
		memcpy(folio_address(folio) +
		       offset_in_folio(folio, ((loff_t)index << PAGE_SHIFT) + from),
		       bytes, length);
	}
	folio_unlock(folio);
	folio_put(folio);
}

static int text_release(struct inode *inode, struct file *file)
{
	iput(file->f_mapping->host);
	fput(file->private_data);
	return 0;
}

/* Readers of the mapping's file, such as build ids, get the file's own bytes. */
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

struct file *text_file(struct file *file, struct inode *shadow)
{
	struct file *clone = alloc_file_clone(file, O_RDONLY | O_LARGEFILE, &text_fops);

	if (IS_ERR(clone))
		return clone;
	if (file->f_mode & FMODE_BACKING) {
		struct path path = clone->f_path;

		clone->f_path = *file_user_path(file);
		/* __fput() decrements the count of the inode that f_inode names then. */
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
