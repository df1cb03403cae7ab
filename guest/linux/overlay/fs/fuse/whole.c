// SPDX-License-Identifier: GPL-2.0-only
/*
 * A directory of which all names are known. When a program makes a file, it mostly asks first
 * whether the name is there, and each such question was a request.
 *
 * The server says that a directory which it has just made is empty, or that a list which was read
 * to its end is the whole list, and that it tells of each name that comes up there later. As long
 * as all those names stay in the dentry cache, one that is not cached is not there. Whatever may
 * have left a name unknown counts in unknown_names: a message of the server, a request that failed,
 * a dentry that went. All names are known while that count is what it was before the server
 * answered. Nothing is allocated, and no negative dentry is kept.
 *
 * A name that another program has just created is seen when the server reports it, as if the guest
 * had asked for it a moment before. After FUSE_WHOLE_SECS the server is asked anyhow.
 */
#include "fuse_i.h"

#include <linux/dcache.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/limits.h>
#include <linux/module.h>
#include <linux/moduleparam.h>

static bool whole_folders = true;
module_param(whole_folders, bool, 0644);
MODULE_PARM_DESC(whole_folders, "Do not ask for names that a known directory lacks");

/* The server is going to be asked for the names of a directory, from the first on. */
void fuse_whole_begin(struct inode *dir, struct fuse_whole *whole)
{
	whole->all = true;
	whole->since = get_jiffies_64();
	whole->epoch = fuse_get_epoch(get_fuse_conn(dir));
	/* Before it answers. */
	whole->names = atomic64_read_acquire(&get_fuse_inode(dir)->unknown_names);
}

/* It has told all of them, and each is cached unless it has been counted since. */
void fuse_whole_end(struct inode *dir, const struct fuse_whole *whole)
{
	struct fuse_inode *fi = get_fuse_inode(dir);

	if (!whole->all)
		return;
	spin_lock(&fi->lock);
	fi->whole_names = whole->names;
	fi->whole_epoch = whole->epoch;
	fi->whole_until = whole->since + FUSE_WHOLE_SECS * HZ;
	spin_unlock(&fi->lock);
}

/* Whether a name that is not cached is not there. */
bool fuse_is_whole(struct inode *dir, const struct qstr *name)
{
	struct fuse_inode *fi = get_fuse_inode(dir);
	bool whole;

	/* The server has an error for longer ones. */
	if (!READ_ONCE(whole_folders) || name->len > NAME_MAX)
		return false;
	spin_lock(&fi->lock);
	whole = fi->whole_names == atomic64_read(&fi->unknown_names) &&
		fi->whole_epoch == fuse_get_epoch(get_fuse_conn(dir)) &&
		time_before64(get_jiffies_64(), fi->whole_until);
	spin_unlock(&fi->lock);
	return whole;
}

/*
 * A dentry goes, for want of memory or because it has expired. What is not hashed was removed, or
 * counted when it was dropped.
 */
void fuse_dentry_prune(struct dentry *dentry)
{
	if (!IS_ROOT(dentry) && !d_unhashed(dentry) && d_really_is_positive(dentry))
		fuse_not_whole(d_inode(dentry->d_parent));
}
