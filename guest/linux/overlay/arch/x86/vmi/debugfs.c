// SPDX-License-Identifier: GPL-2.0-only
/* /sys/kernel/debug/vmi */
#include <linux/debugfs.h>
#include "vmi.h"

struct dentry *vmi_debugfs(void)
{
	static struct dentry *folder;

	if (!folder)
		folder = debugfs_create_dir("vmi", NULL);
	return folder;
}
