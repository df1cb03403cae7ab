// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program that walks a directory and reads its files waits for the server once for each file, and
 * a small one is read by one request. So when a program begins to read a small file that is not
 * cached, the small files next to it in the directory are asked for, too, and the server is
 * notified of all of them at once. They are ordinary reads into the page cache, as of any file that
 * is read ahead: their pages are locked until the answer, and valid as the attributes say.
 *
 * Whether that is of use is learnt. A file that is asked for costs credit, and gives back twice as
 * much when it is read. A program that reads a few files gets a small credit, for a trial now
 * and then. So what is read in vain is bounded: by the largest credit once, and then by a file for
 * each CREDIT_FILE files that a program reads from the server.
 */
#include "fuse_i.h"

#include <linux/dcache.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>

/* The most files that are asked for at once, and the fewest */
#define NEARBY_FILES		16
#define NEARBY_FEWEST		4
/* The most pages of such a file, and of all that are asked for at once */
#define NEARBY_FILE_PAGES	16
#define NEARBY_PAGES		64
/* The most names of a directory that are looked at for that */
#define NEARBY_LOOKS		64

/* What a file costs; what it gives when it is read; what any file gives that was not asked for */
#define CREDIT_FILE		8
#define CREDIT_USED		(2 * CREDIT_FILE)
#define CREDIT_MISSED		1
/* Up to where the last counts, and the largest credit */
#define CREDIT_TRIAL		(NEARBY_FEWEST * CREDIT_FILE)
#define CREDIT_MOST		(2 * NEARBY_FILES * CREDIT_FILE)

static bool read_nearby = true;
module_param(read_nearby, bool, 0644);
MODULE_PARM_DESC(read_nearby, "Read small files ahead while a directory is read");

void fuse_nearby_init(struct fuse_nearby *nearby)
{
	spin_lock_init(&nearby->lock);
	nearby->credit = CREDIT_TRIAL;
}

/* Whether a file is small, and nothing of it is cached. */
static bool fuse_is_small(struct inode *inode)
{
	loff_t size = i_size_read(inode);

	return size > 0 && size <= NEARBY_FILE_PAGES * PAGE_SIZE && !inode->i_mapping->nrpages;
}

/* Whether the server lets a file be read without opening it, and its attributes are known. */
static bool fuse_may_read_nearby(struct fuse_conn *fc, struct inode *inode)
{
	struct fuse_inode *fi = get_fuse_inode(inode);

	return S_ISREG(inode->i_mode) && !fuse_is_bad(inode) && !FUSE_IS_DAX(inode) &&
	       test_bit(FUSE_I_NO_OPEN, &fi->state) && fuse_is_small(inode) &&
	       !fuse_attr_expired(fc, fi) &&
	       !(READ_ONCE(fi->inval_mask) & (STATX_SIZE | STATX_MTIME)) &&
	       READ_ONCE(fi->iocachectr) >= 0;
}

/* A file is read that was asked for (@used), or was not. How many are now to be asked for? */
static int fuse_nearby_files(struct fuse_nearby *nearby, const struct dentry *dentry, bool used)
{
	/* Compared with others only. */
	const void *dir = READ_ONCE(dentry->d_parent);
	int files = 0;

	spin_lock(&nearby->lock);
	if (used) {
		nearby->credit = min(nearby->credit + CREDIT_USED, CREDIT_MOST);
		if (nearby->left)
			nearby->left--;
		/* The server reads on before the last is used. */
		if (nearby->left <= NEARBY_FEWEST)
			files = nearby->credit / CREDIT_FILE;
	} else {
		nearby->left = 0;
		if (nearby->credit < CREDIT_TRIAL)
			nearby->credit += CREDIT_MISSED;
		/* The first file of a directory says little. */
		if (dir == nearby->dir || nearby->credit >= CREDIT_MOST / 2)
			files = nearby->credit / CREDIT_FILE;
		nearby->dir = dir;
	}
	spin_unlock(&nearby->lock);

	return files < NEARBY_FEWEST ? 0 : min(files, NEARBY_FILES);
}

/*
 * Find files that come after this one in the order in which the server listed them: the newest
 * child of a directory is the first in its list. Returns their number, with a reference to each.
 */
static int fuse_find_nearby(struct fuse_conn *fc, struct dentry *dentry, struct dentry **found,
			    int most)
{
	struct dentry *parent = dget_parent(dentry);
	struct hlist_node *node = &dentry->d_sib;
	int looks, files = 0;

	spin_lock(&parent->d_lock);
	/* Not the root, and not moved since. */
	if (dentry->d_parent != parent || dentry == parent)
		goto out;
	for (looks = 0; looks < NEARBY_LOOKS && files < most; looks++) {
		struct dentry *child;

		if (node->pprev == &parent->d_children.first)
			break;
		node = container_of(node->pprev, struct hlist_node, next);
		child = hlist_entry(node, struct dentry, d_sib);
		spin_lock_nested(&child->d_lock, DENTRY_D_LOCK_NESTED);
		if (simple_positive(child) && fuse_may_read_nearby(fc, d_inode(child)))
			found[files++] = dget_dlock(child);
		spin_unlock(&child->d_lock);
	}
out:
	spin_unlock(&parent->d_lock);
	dput(parent);
	return files;
}

/*
 * Ask for all of a file, of which nothing is cached. The server is not told yet. @file is another
 * that is open for reading without a request. Returns the number of pages, and 0 if it is not
 * asked for.
 */
static unsigned int fuse_send_nearby(struct file *file, struct inode *inode)
{
	struct address_space *mapping = inode->i_mapping;
	struct fuse_mount *fm = get_fuse_mount(inode);
	struct fuse_inode *fi = get_fuse_inode(inode);
	gfp_t gfp = readahead_gfp_mask(mapping);
	struct fuse_args_pages *ap;
	struct fuse_io_args *ia;
	unsigned int i, pages;
	int err = 0;

	if (!fuse_is_small(inode))
		return 0;
	/* Its holder may wait for a file that is locked here. */
	if (!filemap_invalidate_trylock_shared(mapping))
		return 0;
	pages = DIV_ROUND_UP_ULL(i_size_read(inode), PAGE_SIZE);
	pages = clamp(pages, 1U, (unsigned int)NEARBY_FILE_PAGES);
	ia = fuse_io_alloc(NULL, pages);
	if (!ia) {
		pages = 0;
		goto out;
	}
	ap = &ia->ap;
	for (i = 0; i < pages; i++) {
		struct folio *folio = filemap_alloc_folio(gfp, 0);

		if (!folio)
			break;
		if (filemap_add_folio(mapping, folio, i, gfp)) {
			folio_put(folio);
			break;
		}
		ap->pages[i] = &folio->page;
		ap->descs[i].length = PAGE_SIZE;
	}
	pages = i;
	if (!pages) {
		fuse_io_free(ia);
		goto out;
	}

	ap->num_pages = pages;
	ap->args.out_pages = true;
	ap->args.page_zeroing = true;
	ap->args.more = true;
	ap->args.end = fuse_readpages_end;
	fuse_read_args_fill(ia, file, 0, (size_t)pages << PAGE_SHIFT, FUSE_READ);
	ap->args.nodeid = get_node_id(inode);
	ia->read.in.read_flags = FUSE_READ_AHEAD;
	ia->read.attr_ver = fuse_get_attr_version(fm->fc);

	/* What was written may be on its way. Then its reader asks for it. */
	spin_lock(&fi->lock);
	if (!RB_EMPTY_ROOT(&fi->writepages))
		err = -EBUSY;
	spin_unlock(&fi->lock);
	if (!err)
		err = fuse_simple_background(fm, &ap->args, GFP_KERNEL);
	if (err) {
		fuse_readpages_end(fm, &ap->args, err);
		pages = 0;
	}
out:
	filemap_invalidate_unlock_shared(mapping);
	return pages;
}

/*
 * A program begins to read a file, and has no pages of it locked. Files near it may be asked for,
 * and the file itself with them.
 */
void fuse_read_nearby(struct file *file)
{
	struct inode *inode = file_inode(file);
	struct fuse_inode *fi = get_fuse_inode(inode);
	struct dentry *dentry = file_dentry(file);
	struct fuse_file *ff = file->private_data;
	struct fuse_conn *fc = ff->fm->fc;
	struct dentry *found[NEARBY_FILES];
	unsigned int nofs, most, pages = 0;
	int i, files, sent = 0;
	bool used;

	if (!read_nearby || !ff->unopened || !fc->iq.ops->kick)
		return;
	used = test_bit(FUSE_I_NEARBY, &fi->state) &&
	       test_and_clear_bit(FUSE_I_NEARBY, &fi->state);
	/* Pages that are freed before they are read were read in vain, and are read again. */
	used = used && inode->i_mapping->nrpages;
	if (used)
		fuse_invalidate_atime(inode);
	else if (!fuse_is_small(inode))
		return;
	files = fuse_nearby_files(&fc->nearby, dentry, used);
	/* Requests of which the server was not notified must not wait for others. */
	most = min(READ_ONCE(fc->congestion_threshold), READ_ONCE(fc->max_background));
	if (!files || READ_ONCE(fc->num_background) + NEARBY_FILES + 1 >= most)
		return;
	files = fuse_find_nearby(fc, dentry, found, files);
	if (!files)
		return;

	/* As for any readahead: memory is not sought where files are read. */
	nofs = memalloc_nofs_save();
	if (!used) {
		pages = fuse_send_nearby(file, inode);
		fuse_invalidate_atime(inode);
	}
	for (i = 0; i < files && pages <= NEARBY_PAGES - NEARBY_FILE_PAGES; i++) {
		struct inode *near = d_inode(found[i]);
		unsigned int more = fuse_send_nearby(file, near);

		if (!more)
			continue;
		set_bit(FUSE_I_NEARBY, &get_fuse_inode(near)->state);
		pages += more;
		sent++;
	}
	fc->iq.ops->kick(&fc->iq);
	memalloc_nofs_restore(nofs);

	for (i = 0; i < files; i++)
		dput(found[i]);
	spin_lock(&fc->nearby.lock);
	fc->nearby.credit -= sent * CREDIT_FILE;
	fc->nearby.left += sent;
	spin_unlock(&fc->nearby.lock);
}
