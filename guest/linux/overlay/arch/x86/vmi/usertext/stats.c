// SPDX-License-Identifier: GPL-2.0-only
/* Counters of replaced sites: /sys/kernel/debug/vmi/sites. */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include "../vmi.h"
#include "stats.h"

static const char *const outcome_names[OUTCOMES] = {
	[CLAIMED] = "claimed",
	[SHARED] = "shared",
	[JOINED] = "joined",
	[AGAIN] = "claimed_again",
	[PUT_BACK] = "put_back",
	[IN_PLACE] = "in_place",
	[NO_SHAPE] = "refused_shape",
	[NO_PROOF] = "refused_proof",
	[NO_CAVE_OR_PAGE] = "refused_page_boundary",
	[NOT_TEXT] = "refused_not_private_text",
	[WRITTEN] = "refused_written",
	[NO_STUB] = "refused_no_slot",
	[NO_MEMORY] = "refused_no_memory",
	[BUSY] = "busy",
};

static atomic_long_t outcomes[OUTCOMES];
DEFINE_PER_CPU(unsigned long, vmi_syscalls_trapped);
DEFINE_PER_CPU(unsigned long, vmi_cpuids_trapped);
atomic_long_t vmi_cpuid_runs, vmi_cpuid_runs_cut;

void sites_note(enum outcome outcome)
{
	atomic_long_inc(&outcomes[outcome]);
}

static int sites_show(struct seq_file *file, void *unused)
{
	unsigned long trapped = 0, cpuids = 0;
	unsigned int i;
	int cpu;

	for_each_possible_cpu(cpu) {
		trapped += per_cpu(vmi_syscalls_trapped, cpu);
		cpuids += per_cpu(vmi_cpuids_trapped, cpu);
	}
	seq_printf(file, "trapped %lu\ncpuid_trapped %lu\n", trapped, cpuids);
	seq_printf(file, "cpuid_runs %ld\n", atomic_long_read(&vmi_cpuid_runs));
	seq_printf(file, "cpuid_runs_cut %ld\n", atomic_long_read(&vmi_cpuid_runs_cut));
	for (i = 0; i < OUTCOMES; i++)
		seq_printf(file, "%s %ld\n", outcome_names[i], atomic_long_read(&outcomes[i]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(sites);

void __init sites_stats_init(void)
{
	debugfs_create_file("sites", 0444, vmi_debugfs(), NULL, &sites_fops);
}
