// SPDX-License-Identifier: GPL-2.0-only
/*
 * The life of texts.
 *
 * A site that many processes execute, each of them once, never traps often in one of them. So traps
 * are counted by file, too, and a file in which sites trap often gets a text: a second page cache
 * that holds the file's bytes with sites replaced (text_pages.c, text_sites.c). New private
 * executable mappings of the file are mappings of the text (text_map.c). Programs still see the
 * path and inode of the file.
 *
 * A text belongs to its file through an fsnotify mark on the inode. The mark finds the text,
 * reports writes to the file, and goes with the inode without pinning it. After a write the text is
 * dead: it gets no more sites and no more mappings, and a new text can take its place. The pages
 * belong to an inode of their own, the shadow, which mappings pin.
 */
#include <linux/export.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fsnotify_backend.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/pseudo_fs.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/syscall_sites.h>
#include "policy.h"
#include "text.h"
#include "text_pages.h"
#include "text_sites.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

bool vmi_texts_enabled __read_mostly;
module_param_named(shared_sites, vmi_texts_enabled, bool, 0644);
MODULE_PARM_DESC(shared_sites, "replace sites for all mappings of a file");

static struct fsnotify_group *group __ro_after_init;
static struct vfsmount *mount __ro_after_init;
/* A breakpoint was set by file, which finds mappings by the file's own cache. */
static bool refused;

bool text_enabled(void)
{
	return group && vmi_texts_enabled;
}

bool text_refused(void)
{
	return READ_ONCE(refused);
}

bool text_refuse(void)
{
	return group && !xchg(&refused, true);
}

static struct text *text_of_mark(struct fsnotify_mark *mark)
{
	return container_of(mark, struct text, mark);
}

struct text *text_find(struct inode *inode)
{
	struct fsnotify_mark *mark = fsnotify_find_inode_mark(inode, group);

	return mark ? text_of_mark(mark) : NULL;
}

void text_put(struct text *text)
{
	fsnotify_put_mark(&text->mark);
}

void syscall_sites_file_changed(struct inode *inode)
{
	struct text *text = group ? text_find(inode) : NULL;

	if (!text)
		return;
	WRITE_ONCE(text->dead, true);
	text_put(text);
}
EXPORT_SYMBOL_GPL(syscall_sites_file_changed);

bool text_current(struct text *text, const struct inode *inode)
{
	struct timespec64 mtime = inode_get_mtime(inode), ctime = inode_get_ctime(inode);

	if (i_size_read(inode) != text->size || !timespec64_equal(&mtime, &text->mtime) ||
	    !timespec64_equal(&ctime, &text->ctime))
		WRITE_ONCE(text->dead, true);
	return !READ_ONCE(text->dead);
}

struct inode *text_shadow(struct text *text)
{
	struct inode *shadow;

	spin_lock(&text->shadow_lock);
	shadow = text->shadow;
	if (shadow)
		ihold(shadow);
	spin_unlock(&text->shadow_lock);
	return shadow;
}

static int text_event(struct fsnotify_mark *mark, u32 mask, struct inode *inode, struct inode *dir,
		      const struct qstr *name, u32 cookie)
{
	WRITE_ONCE(text_of_mark(mark)->dead, true);
	return 0;
}

/* The inode goes, or a new text takes the place. Mappings hold their own references. */
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
	    mapping_writably_mapped(file->f_mapping) ||
	    !text_segment_find(file, offset, &start, &end) || !offset_in_page(end) ||
	    !text_tail_free(file, end))
		return NULL;
	text = kvzalloc(sizeof(*text), GFP_KERNEL_ACCOUNT);
	if (!text)
		return NULL;
	mutex_init(&text->lock);
	spin_lock_init(&text->shadow_lock);
	text->start = start;
	text->end = end;
	text->next_stub = round_up(end, STUB_ALIGN);
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
		/* Another task has added its text first. */
		iput(text->shadow);
		text_put(text);
		return text_find(inode);
	}
	return text;
}

/* The current text of a file, which replaces one that is out of date. */
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

	if (!text_enabled() || text_refused() || offset >= SZ_1G)
		return NOT_TEXT;
	text = text_get(file, offset);
	if (!text)
		return NOT_TEXT;
	shadow = text_shadow(text);
	if (shadow) {
		mutex_lock(&text->lock);
		outcome = text_add(text, file, offset, regs, cpuid);
		mutex_unlock(&text->lock);
		iput(shadow);
	}
	text_put(text);
	return outcome;
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
