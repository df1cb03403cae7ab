// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/debug/vmi/stats: what a layer with section stats has counted. A line for each call
 * that was made: its name, how often, cycles of all, and how many took 2^i cycles up to, but not,
 * 2^(i+1), as 2^i:count. A write resets the counts.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include "vmi.h"

static void call_show(struct seq_file *file, const char *name, u32 call)
{
	struct vmi_call_stats stats;
	unsigned int i;

	if (vmi.stats_read(call, &stats) || !stats.calls)
		return;
	seq_printf(file, "%s %llu %llu", name, stats.calls, stats.cycles);
	for (i = 0; i < VMI_STATS_BUCKETS; i++)
		if (stats.buckets[i])
			seq_printf(file, " %llu:%llu", 1ULL << i, stats.buckets[i]);
	seq_putc(file, '\n');
}

static int stats_show(struct seq_file *file, void *unused)
{
#define X(SECTION, section, CALL, name, number, CLASS, since) \
	call_show(file, #section "." #name, number);
	VMI_FOR_EACH_CALL(X)
#undef X
	return 0;
}

static ssize_t stats_write(struct file *file, const char __user *text, size_t size, loff_t *at)
{
	vmi.stats_reset();
	return size;
}

DEFINE_SHOW_STORE_ATTRIBUTE(stats);

static int __init stats_init(void)
{
	if (vmi_layer.present && vmi.stats_read && vmi.stats_reset)
		debugfs_create_file("stats", 0600, vmi_debugfs(), NULL, &stats_fops);
	return 0;
}
late_initcall(stats_init);
