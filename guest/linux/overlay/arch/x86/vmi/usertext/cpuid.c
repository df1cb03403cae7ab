// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cpuid instruction of user programs. It is dear where the host is itself a virtual machine,
 * and C libraries execute it 70 times in each new program. So text_sites.c replaces it, where it
 * stands in files that are executed often. To learn where that is, a few runs of a program have it
 * fault (Intel: CPUID faulting, MSR_MISC_FEATURES_ENABLES; a layer may offer it on any processor).
 * All others execute what is not replaced. Either way a program sees the same: what the instruction
 * gives in user mode.
 *
 * Learning costs: a fault is dearer than the instruction, and each switch between a program that
 * learns and one that does not takes two calls of the layer's host. So learning is for a program's
 * start alone, where its C library executes cpuid, and is bounded: it ends LEARN_MS after the
 * process was made, or when that has been switched LEARN_SWITCHES times, whatever is first. Both
 * are looked at on each way to user mode. Children and further threads do not learn.
 */
#include <linux/atomic.h>
#include <linux/entry-common.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <asm/insn.h>
#include <asm/msr.h>
#include <asm/processor.h>
#include <asm/vmi.h>
#include "text_map.h"
#include "../vmi.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

/* What a program's start takes at most where the host is busy with others: alone it takes 1 ms. */
#define LEARN_MS 50
#define LEARN_SWITCHES 16

static bool enabled __read_mostly = true;
module_param_named(cpuid, enabled, bool, 0644);
MODULE_PARM_DESC(cpuid, "have cpuid fault in a few starts of a program, to replace it");

/* Runs that have learnt, and those of them that the bounds have ended. */
static atomic_long_t runs, runs_cut;

/* The layer does it, and has slots for what is replaced. */
static bool offered __ro_after_init;

static const u8 prefixes[] = { 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3 };

/* The length of the cpuid instruction there; 0: it is another one. Prefixes change nothing. */
static unsigned int cpuid_length(unsigned long ip)
{
	const u8 __user *at = (const u8 __user *)ip;
	unsigned int length;
	u8 byte, next;

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
	u64 value = this_cpu_read(msr_misc_features_shadow) & ~MSR_MISC_FEATURES_ENABLES_CPUID_FAULT;

	if (on)
		value |= MSR_MISC_FEATURES_ENABLES_CPUID_FAULT;
	this_cpu_write(msr_misc_features_shadow, value);
	wrmsrl(MSR_MISC_FEATURES_ENABLES, value);
}

/* Counted from when the process was made, as if it executed its program at once: most do. */
static bool past_start(const struct task_struct *task)
{
	return task->nvcsw + task->nivcsw > LEARN_SWITCHES ||
	       ktime_get_boottime_ns() - task->start_boottime > LEARN_MS * NSEC_PER_MSEC;
}

static void learning_end(void)
{
	preempt_disable();
	clear_thread_flag(TIF_CPUID_LEARNING);
	if (test_and_clear_thread_flag(TIF_NOCPUID))
		set_faulting(false);
	preempt_enable();
}

bool vmi_fixup_cpuid(struct pt_regs *regs)
{
	/* Where the program itself has asked for faults, it gets them. */
	bool learning = test_thread_flag(TIF_CPUID_LEARNING) && user_64bit_mode(regs);
	unsigned int length = learning ? cpuid_length(regs->ip) : 0;
	unsigned long ip = regs->ip;
	u32 a, b, c, d;

	if (!length)
		return false;
	a = regs->ax;
	c = regs->cx;
	preempt_disable();
	set_faulting(false);
	native_cpuid(&a, &b, &c, &d);
	set_faulting(true);
	preempt_enable();
	if (length != 2 || !vmi_cpuid_trapped(regs, ip))
		learning_end();
	regs->ax = a;
	regs->bx = b;
	regs->cx = c;
	regs->dx = d;
	regs->ip = ip + length;
	return true;
}

void vmi_cpuid_learn(void)
{
	if (!offered || !enabled || past_start(current))
		return;
	preempt_disable();
	if (!test_and_set_thread_flag(TIF_NOCPUID))
		set_faulting(true);
	if (!test_and_set_thread_flag(TIF_CPUID_LEARNING))
		atomic_long_inc(&runs);
	preempt_enable();
}

/*
 * A program that learns goes to user mode; interrupts are off. After an exec the flag may be what
 * is left of the program before.
 */
void vmi_cpuid_look(void)
{
	bool faults = test_thread_flag(TIF_NOCPUID);

	if (faults && !past_start(current))
		return;
	if (faults)
		atomic_long_inc(&runs_cut);
	learning_end();
}

void vmi_cpuid_learnt(void)
{
	if (test_thread_flag(TIF_CPUID_LEARNING))
		learning_end();
}

void vmi_cpuid_fork(struct task_struct *task)
{
	if (test_and_clear_tsk_thread_flag(task, TIF_CPUID_LEARNING))
		clear_tsk_thread_flag(task, TIF_NOCPUID);
}

void vmi_cpuid_show(struct seq_file *file)
{
	seq_printf(file, "cpuid_runs %ld\n", atomic_long_read(&runs));
	seq_printf(file, "cpuid_runs_cut %ld\n", atomic_long_read(&runs_cut));
}

static int __init cpuid_init(void)
{
	u64 value;

	offered = vmi_low && vmi_layer_features(VMI_SECTION_PATCH) & VMI_PATCH_CPUID &&
		  !rdmsrl_safe(MSR_PLATFORM_INFO, &value) && value & MSR_PLATFORM_INFO_CPUID_FAULT;
	return 0;
}
late_initcall(cpuid_init);
