// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cpuid instructions of programs.
 *
 * Where the host is itself a virtual machine, cpuid is an expensive exit, and a C library executes
 * it 70 times in each new program. So text_sites.c replaces it in files that are executed often. To
 * find the instructions, the kernel has them fault in a few runs of a program (Intel: CPUID
 * faulting, MSR_MISC_FEATURES_ENABLES; a layer may offer it on any processor). In all other runs
 * cpuid instructions that are not replaced execute as usual. A program sees the same values either
 * way: those of user mode.
 *
 * Learning costs: a fault is more expensive than the instruction, and each switch between a program
 * that learns and one that does not takes two host calls of the layer. So only the start of a
 * program learns, where its C library executes cpuid. Learning ends VMI_CPUID_LEARN_MS after the
 * process was created, or when the process has been switched VMI_CPUID_LEARN_SWITCHES times,
 * whichever comes first. Both are checked on each return to user mode. Children and further threads
 * do not learn.
 */
#include <linux/atomic.h>
#include <linux/entry-common.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <asm/insn.h>
#include <asm/msr.h>
#include <asm/processor.h>
#include <asm/vmi.h>
#include <asm/vmi_cost.h>
#include "../vmi.h"
#include "cpuid.h"
#include "heat.h"
#include "policy.h"
#include "stats.h"
#include "text.h"
#include "text_map.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

bool vmi_cpuid_enabled __read_mostly;
module_param_named(cpuid, vmi_cpuid_enabled, bool, 0644);
MODULE_PARM_DESC(cpuid, "let cpuid fault in a few runs of a program, to find and replace it");

/* The layer lets cpuid fault, and has stubs for it. */
static bool offered __ro_after_init;

static const u8 prefixes[] = { 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3 };

/* cpuid_length(): another task has replaced the instruction since it faulted. */
#define REPLACED UINT_MAX

/*
 * Returns the length of the cpuid instruction there, with prefixes; 0 for any other instruction.
 * One access reads an instruction that can be replaced: it sees all of a change or nothing. A short
 * jump takes its place, which itself never faults.
 */
static unsigned int cpuid_length(unsigned long ip)
{
	const u8 __user *at = (const u8 __user *)ip;
	unsigned int length;
	u8 byte, next;
	u16 both;

	if (get_user(both, (const u16 __user *)at))
		return 0;
	if (both == 0xa20f)
		return 2;
	if ((both & 0xff) == 0xeb)
		return REPLACED;
	for (length = 2; length <= MAX_INSN_SIZE; length++, at++) {
		if (get_user(byte, at))
			return 0;
		if (byte == 0x0f)
			return !get_user(next, at + 1) && next == 0xa2 ? length : 0;
		if (!memchr(prefixes, byte, sizeof(prefixes)) && (byte & 0xf0) != 0x40)
			return 0;
	}
	return 0;
}

static void set_faulting(bool on)
{
	u64 value = this_cpu_read(msr_misc_features_shadow);

	value &= ~MSR_MISC_FEATURES_ENABLES_CPUID_FAULT;
	if (on)
		value |= MSR_MISC_FEATURES_ENABLES_CPUID_FAULT;
	this_cpu_write(msr_misc_features_shadow, value);
	wrmsrl(MSR_MISC_FEATURES_ENABLES, value);
}

/*
 * The time counts from the creation of the process, as if it had executed its program at once. Most
 * processes do.
 */
static bool past_start(const struct task_struct *task)
{
	return task->nvcsw + task->nivcsw > VMI_CPUID_LEARN_SWITCHES ||
	       ktime_get_boottime_ns() - task->start_boottime > VMI_CPUID_LEARN_MS * NSEC_PER_MSEC;
}

static void learning_end(void)
{
	preempt_disable();
	clear_thread_flag(TIF_CPUID_LEARNING);
	if (test_and_clear_thread_flag(TIF_NOCPUID))
		set_faulting(false);
	preempt_enable();
}

/*
 * A cpuid instruction has faulted in the current process. Counts it by file alone, since a process
 * executes most of them once. Returns false if there is no more to learn from this process.
 */
static bool count_trap(const struct pt_regs *regs, unsigned long ip)
{
	this_cpu_inc(vmi_cpuids_trapped);
	return vmi_sites_allowed() && text_warm(ip, regs, true) < VMI_CPUID_TRAPS_ENOUGH;
}

bool vmi_fixup_cpuid(struct pt_regs *regs)
{
	/* A program that has asked for faults itself (ARCH_SET_CPUID) gets them. */
	bool learning = test_thread_flag(TIF_CPUID_LEARNING) && user_64bit_mode(regs);
	unsigned int length = learning ? cpuid_length(regs->ip) : 0;
	unsigned long ip = regs->ip;
	u32 a, b, c, d;

	if (!length)
		return false;
	/* What is there now is executed. */
	if (length == REPLACED)
		return true;
	a = regs->ax;
	c = regs->cx;
	preempt_disable();
	set_faulting(false);
	native_cpuid(&a, &b, &c, &d);
	set_faulting(true);
	preempt_enable();
	if (length != 2 || !count_trap(regs, ip))
		learning_end();
	regs->ax = a;
	regs->bx = b;
	regs->cx = c;
	regs->dx = d;
	regs->ip = ip + length;
	return true;
}

static void learning_begin(void)
{
	if (!offered || !vmi_cpuid_enabled || past_start(current))
		return;
	preempt_disable();
	if (!test_and_set_thread_flag(TIF_NOCPUID))
		set_faulting(true);
	if (!test_and_set_thread_flag(TIF_CPUID_LEARNING))
		atomic_long_inc(&vmi_cpuid_runs);
	preempt_enable();
}

void cpuid_count_exec(const struct vm_area_struct *vma)
{
	struct inode *inode = file_inode(vma->vm_file);
	unsigned int times;

	if (!READ_ONCE(inode->i_size))
		return;
	times = heat_by_file((u64)inode << 16 ^ inode->i_generation ^ U64_MAX);
	if (times >= VMI_CPUID_LEARN_FROM && times < VMI_CPUID_LEARN_TO)
		learning_begin();
}

/*
 * A task that learns returns to user mode; interrupts are off. After an exec TIF_CPUID_LEARNING can
 * be left over from the previous program: exec clears only TIF_NOCPUID.
 */
void vmi_cpuid_look(void)
{
	bool faults = test_thread_flag(TIF_NOCPUID);

	if (faults && !past_start(current))
		return;
	if (faults)
		atomic_long_inc(&vmi_cpuid_runs_cut);
	learning_end();
}

void vmi_cpuid_learnt(void)
{
	if (test_thread_flag(TIF_CPUID_LEARNING))
		learning_end();
}

void cpuid_fork(struct task_struct *task)
{
	if (test_and_clear_tsk_thread_flag(task, TIF_CPUID_LEARNING))
		clear_tsk_thread_flag(task, TIF_NOCPUID);
}

static int __init cpuid_init(void)
{
	u64 value;

	offered = vmi_low && vmi_layer_features(VMI_SECTION_PATCH) & VMI_PATCH_CPUID &&
		  !rdmsrl_safe(MSR_PLATFORM_INFO, &value) && value & MSR_PLATFORM_INFO_CPUID_FAULT;
	return 0;
}
late_initcall(cpuid_init);
