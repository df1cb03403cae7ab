// SPDX-License-Identifier: GPL-2.0-only
/*
 * System-call sites in user text become jumps to slots of the layer, where a system call is a dear trap otherwise
 * (the VMI's section patch): which ones, and when.
 *
 * A site is rewritten after a few traps, in a text that others have, too (text.c), or in the process's own copy
 * (sites_private.c). It is put back when somebody attaches to the process, writes to its text by force, dumps its
 * core, makes the text writable or moves it.
 */
#include <linux/debugfs.h>
#include <linux/entry-common.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/moduleparam.h>
#include <linux/ptrace.h>
#include <linux/sched/mm.h>
#include <linux/security.h>
#include <linux/seq_file.h>
#include <linux/syscall_sites.h>
#include <linux/uprobes.h>
#include <asm/mmu_context.h>
#include <asm/vmi.h>
#include "private.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

/* Traps after which a site is looked at; and again after so many, since text comes and goes. */
#define TRAPS_HOT 8
#define TRAPS_AGAIN 1024
/* Who executes a cpuid instruction so often will go on, and nothing comes of it. */
#define CPUIDS_ENOUGH 200

static bool enabled __read_mostly = true;
module_param_named(sites, enabled, bool, 0644);
MODULE_PARM_DESC(sites, "rewrite system-call sites of user programs");

/* Whether the layer does it. */
static bool offered __ro_after_init;

static const char *const outcome_names[OUTCOMES] = {
	[CLAIMED] = "claimed",
	[SHARED] = "shared",
	[AGAIN] = "claimed_again",
	[PUT_BACK] = "put_back",
	[IN_PLACE] = "in_place",
	[NO_SHAPE] = "refused_shape",
	[NO_CAVE_OR_PAGE] = "refused_page_boundary",
	[NOT_TEXT] = "refused_not_private_text",
	[WRITTEN] = "refused_written",
	[NO_SLOT] = "refused_no_slot",
	[NO_MEMORY] = "refused_no_memory",
	[BUSY] = "busy",
};

static atomic_long_t outcomes[OUTCOMES];
DEFINE_PER_CPU(unsigned long, vmi_syscalls_trapped);
static DEFINE_PER_CPU(unsigned long, cpuids_trapped);

/*
 * How often what happened lately: two places for each, the one with less behind it goes. A guess: what gets lost in a collision, or
 * because two CPUs count at once, comes again.
 */
struct heat {
	u64 key;
	u32 times;
};

#define HEAT_SETS 256
/* Traps of sites by address space, on this CPU; and what is the same for all who map a file. */
static DEFINE_PER_CPU(struct heat[HEAT_SETS][2], trap_heat);
static struct heat file_heat[2 * HEAT_SETS][2];

/* Counts; how often it has been. */
static unsigned int heat_add(struct heat *set, u64 key)
{
	struct heat *entry = set[0].times <= set[1].times ? &set[0] : &set[1];
	struct heat *other = entry == &set[0] ? &set[1] : &set[0];

	if (other->key == key)
		entry = other;
	if (entry->key != key) {
		/* And the other one next time, if it does not happen any more. */
		other->times -= DIV_ROUND_UP(other->times, 8);
		entry->key = key;
		entry->times = 0;
	}
	return ++entry->times;
}

static unsigned int trap_heat_add(u64 key)
{
	unsigned int times = heat_add(get_cpu_var(trap_heat)[hash_64(key, ilog2(HEAT_SETS))], key);

	put_cpu_var(trap_heat);
	return times;
}

unsigned int vmi_file_heat_add(u64 key)
{
	return heat_add(file_heat[hash_64(key, ilog2(2 * HEAT_SETS))], key);
}

/* Whether it is time to look at the site. */
static bool hot(unsigned int traps)
{
	return traps == TRAPS_HOT || !(traps % TRAPS_AGAIN);
}

void sites_note(enum outcome outcome)
{
	atomic_long_inc(&outcomes[outcome]);
}

/*
 * A site has trapped often in this process. In a text that others have, too, it is replaced for all of them; where that has no room, this process
 * goes its own way, with the file itself.
 */
static void site_hot(const struct pt_regs *regs)
{
	struct mm_struct *mm = current->mm;
	enum outcome outcome = NOT_TEXT;
	unsigned long ip = regs->ip - 2;
	struct vm_area_struct *vma;
	bool shared;

	if (mmap_read_lock_killable(mm))
		return;
	vma = vma_lookup(mm, ip);
	shared = vma && text_is(vma);
	mmap_read_unlock(mm);
	if (shared) {
		outcome = text_claim_at(ip, regs, false);
		if (outcome != NO_SLOT && outcome != NOT_TEXT) {
			sites_note(outcome);
			return;
		}
	}
	if (mmap_write_lock_killable(mm))
		return;
	vma = vma_lookup(mm, ip);
	/* A debugger may have come meanwhile. */
	if (vma && vmi_is_private_text(vma) && vmi_sites_allowed()) {
		if (text_is(vma))
			text_revert(vma);
		outcome = site_private(vma, regs);
	}
	mmap_write_unlock(mm);
	sites_note(outcome);
}

bool vmi_sites_allowed(void)
{
	return enabled && offered && !current->ptrace && !test_thread_flag(TIF_SYSCALL_SITES_OFF) &&
	       !test_bit(MM_CONTEXT_SITES_OFF, &current->mm->context.flags);
}

/* An instruction has trapped that may be one which many processes execute once. How often it has. */
static unsigned int text_warm(const struct pt_regs *regs, unsigned long ip, bool cpuid)
{
	u64 place = text_place(ip);
	unsigned int traps = place ? vmi_file_heat_add(place) : UINT_MAX;

	/* A fault of cpuid is to be learnt from. Of a system call more and more rarely: what it had in registers may have spoken against it. */
	if (place && (cpuid ? traps == 2 : traps >= TRAPS_HOT && is_power_of_2(traps)))
		sites_note(text_claim_at(ip, regs, cpuid));
	return traps;
}

void vmi_syscall_trapped(const struct pt_regs *regs)
{
	struct mm_struct *mm = current->mm;

	unsigned int traps;

	clear_thread_flag(TIF_SYSCALL_TRAPPED);
	this_cpu_inc(vmi_syscalls_trapped);
	if (!mm || !vmi_sites_allowed())
		return;
	traps = trap_heat_add(mm->context.ctx_id << 48 ^ mm->context.ctx_id >> 16 ^ regs->ip);
	if (hot(traps))
		site_hot(regs);
	else if (traps == 1)
		text_warm(regs, regs->ip - 2, false);
}

/* Counted by file alone: a process executes most of them once. */
bool vmi_cpuid_trapped(const struct pt_regs *regs, unsigned long ip)
{
	this_cpu_inc(cpuids_trapped);
	return vmi_sites_allowed() && text_warm(regs, ip, true) < CPUIDS_ENOUGH;
}

void vmi_sites_texts_revert(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, start);

	if (!test_bit(MM_CONTEXT_TEXTS, &mm->context.flags))
		return;
	for_each_vma_range(vmi, vma, end) {
		if (!text_is(vma))
			continue;
		text_revert(vma);
		sites_note(PUT_BACK);
	}
}

/* With the lock held for writing. */
void __syscall_sites_put_back_range(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	vmi_sites_texts_revert(mm, start, end);
	sites_private_put_back(mm, start, end);
}

void __syscall_sites_put_back(struct mm_struct *mm)
{
	if (!offered || test_and_set_bit(MM_CONTEXT_SITES_OFF, &mm->context.flags))
		return;
	mmap_write_lock(mm);
	__syscall_sites_put_back_range(mm, 0, ULONG_MAX);
	mmap_write_unlock(mm);
}

void syscall_sites_put_back_task(struct task_struct *task)
{
	struct mm_struct *mm = get_task_mm(task);

	if (!mm)
		return;
	syscall_sites_put_back(mm);
	mmput(mm);
}

#ifdef CONFIG_UPROBES
/* A breakpoint on a syscall instruction must be reached. The caller holds the lock for writing. */
int set_swbp(struct arch_uprobe *auprobe, struct mm_struct *mm, unsigned long vaddr)
{
	set_bit(MM_CONTEXT_SITES_OFF, &mm->context.flags);
	syscall_sites_put_back_range(mm, vaddr & PAGE_MASK, PAGE_ALIGN(vaddr + 1));
	return uprobe_write_opcode(auprobe, mm, vaddr, UPROBE_SWBP_INSN);
}
#endif

long vmi_sites_prctl(unsigned long argument)
{
	if (argument > 1)
		return -EINVAL;
	if (argument) {
		clear_thread_flag(TIF_SYSCALL_SITES_OFF);
	} else {
		set_thread_flag(TIF_SYSCALL_SITES_OFF);
		syscall_sites_put_back(current->mm);
	}
	return 0;
}

/* Of each vCPU, when it sets where system calls enter. */
void vmi_sites_enter(void)
{
	if (vmi.patch_set_entry)
		vmi.patch_set_entry((u64)vmi_entry_SYSCALL_64);
}

unsigned long vmi_sites_lstar(void)
{
	return (unsigned long)(vmi.patch_set_entry ? vmi_entry_SYSCALL_64_trapped : vmi_entry_SYSCALL_64);
}

static int outcomes_show(struct seq_file *file, void *unused)
{
	unsigned long trapped = 0, cpuids = 0;
	unsigned int i;
	int cpu;

	for_each_possible_cpu(cpu) {
		trapped += per_cpu(vmi_syscalls_trapped, cpu);
		cpuids += per_cpu(cpuids_trapped, cpu);
	}
	seq_printf(file, "trapped %lu\ncpuid_trapped %lu\n", trapped, cpuids);
	vmi_cpuid_show(file);
	for (i = 0; i < OUTCOMES; i++)
		seq_printf(file, "%s %ld\n", outcome_names[i], atomic_long_read(&outcomes[i]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(outcomes);

static int __init sites_init(void)
{
	s64 version;

	/* entry.S sets a bit there. */
	BUILD_BUG_ON(offsetof(struct task_struct, thread_info.flags));
	if (!vmi_low || !vmi.patch_set_entry)
		return 0;
	version = vmi.core_version(VMI_SECTION_PATCH);
	offered = version >= 0 && (version >> 32 & VMI_PATCH_ENTRIES);
	if (offered && version >> 32 & VMI_PATCH_CODE && text_init())
		pr_warn("vmi: replaced sites are not shared\n");
	debugfs_create_file("sites", 0444, vmi_debugfs(), NULL, &outcomes_fops);
	return 0;
}
late_initcall(sites_init);
