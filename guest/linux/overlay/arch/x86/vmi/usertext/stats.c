// SPDX-License-Identifier: GPL-2.0-only
/*
 * Replaced sites in /sys/kernel/debug/vmi: counters in sites, and in refused_sites the last system
 * calls and cpuid instructions that trap often and could not be replaced.
 */
#include <linux/debugfs.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <asm/ptrace.h>
#include "../vmi.h"
#include "stats.h"
#include "text_map.h"

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

#define REFUSED_MAX 64

/* The end of a file's path, and the offset there. */
struct place {
	char file[40];
	unsigned long offset;
};

struct refused {
	struct place place;
	char program[TASK_COMM_LEN];
	int number;		/* -1: cpuid */
	unsigned int times;
	enum outcome outcome;
};

static struct refused refused[REFUSED_MAX];
static unsigned int refused_next;
static DEFINE_SPINLOCK(refused_lock);

static atomic_long_t outcomes[OUTCOMES];
DEFINE_PER_CPU(unsigned long, vmi_syscalls_trapped);
DEFINE_PER_CPU(unsigned long, vmi_cpuids_trapped);
atomic_long_t vmi_cpuid_runs, vmi_cpuid_runs_cut;

void sites_note(enum outcome outcome)
{
	atomic_long_inc(&outcomes[outcome]);
}

/* The place of an address of the current process. Without a file, it is the address itself. */
static bool place_of(struct place *place, unsigned long ip)
{
	struct vm_area_struct *vma;

	if (mmap_read_lock_killable(current->mm))
		return false;
	vma = vma_lookup(current->mm, ip);
	if (vma && vma->vm_file) {
		place->offset = ip - vma->vm_start + (vma->vm_pgoff << PAGE_SHIFT);
		snprintf(place->file, sizeof(place->file), "%pD", text_file_of(vma));
	} else {
		place->offset = ip;
		strscpy(place->file, "-");
	}
	mmap_read_unlock(current->mm);
	return true;
}

static bool is_refused(enum outcome outcome)
{
	return outcome >= NO_SHAPE && outcome < BUSY;
}

/* A site that is there already only counts once more. */
static struct refused *refused_entry(const struct place *place)
{
	struct refused *entry;
	unsigned int i;

	for (i = 0; i < REFUSED_MAX; i++) {
		entry = &refused[i];
		if (entry->times && entry->place.offset == place->offset &&
		    !strcmp(entry->place.file, place->file))
			return entry;
	}
	entry = &refused[refused_next++ % REFUSED_MAX];
	entry->place = *place;
	entry->times = 0;
	return entry;
}

void sites_note_at(enum outcome outcome, unsigned long ip, const struct pt_regs *regs)
{
	struct refused *entry;
	struct place place;

	sites_note(outcome);
	if (!is_refused(outcome) || !place_of(&place, ip))
		return;
	spin_lock(&refused_lock);
	entry = refused_entry(&place);
	strscpy(entry->program, current->comm);
	entry->number = regs->orig_ax;
	entry->outcome = outcome;
	entry->times++;
	spin_unlock(&refused_lock);
}

static int refused_sites_show(struct seq_file *file, void *unused)
{
	unsigned int i;

	seq_puts(file, "file offset call program times outcome\n");
	for (i = 0; i < REFUSED_MAX; i++) {
		struct refused entry;

		spin_lock(&refused_lock);
		entry = refused[i];
		spin_unlock(&refused_lock);
		if (!entry.times)
			continue;
		seq_escape(file, entry.place.file, " \n\\");
		seq_printf(file, " %#lx %d ", entry.place.offset, entry.number);
		seq_escape(file, entry.program, " \n\\");
		seq_printf(file, " %u %s\n", entry.times, outcome_names[entry.outcome]);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(refused_sites);

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
	debugfs_create_file("refused_sites", 0400, vmi_debugfs(), NULL, &refused_sites_fops);
}
