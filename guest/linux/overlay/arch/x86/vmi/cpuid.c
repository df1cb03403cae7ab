// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cpuid instruction of user programs. It is dear where the host is itself a virtual machine, and C libraries execute it 70 times in each
 * new program. So text_sites.c replaces it, where it stands in files that are executed often. To learn where that is, a few runs of a program have it
 * fault (Intel: CPUID faulting, MSR_MISC_FEATURES_ENABLES; a layer may offer it on any processor). All others execute what is not replaced, for the
 * fault is dearer than the instruction, and so is a thread that is different from others when the host switches. Either way a program sees the
 * same: what the instruction gives in user mode.
 */
#include <linux/uaccess.h>
#include <asm/insn.h>
#include <asm/msr.h>
#include <asm/processor.h>
#include <asm/vmi.h>
#include "text.h"
#include "vmi.h"

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

bool vmi_fixup_cpuid(struct pt_regs *regs)
{
	bool learning = offered && test_thread_flag(TIF_NOCPUID) && user_64bit_mode(regs);
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
	if (length != 2 || !vmi_cpuid_trapped(regs, ip)) {
		preempt_disable();
		clear_thread_flag(TIF_NOCPUID);
		set_faulting(false);
		preempt_enable();
	}
	regs->ax = a;
	regs->bx = b;
	regs->cx = c;
	regs->dx = d;
	regs->ip = ip + length;
	return true;
}

/* For the rest of what this program does; the next exec ends it. */
void vmi_cpuid_learn(void)
{
	if (!offered)
		return;
	preempt_disable();
	if (!test_and_set_thread_flag(TIF_NOCPUID))
		set_faulting(true);
	preempt_enable();
}

static int __init cpuid_init(void)
{
	u64 value;

	offered = vmi_low && vmi_layer_features(VMI_SECTION_PATCH) & VMI_PATCH_CPUID &&
		  !rdmsrl_safe(MSR_PLATFORM_INFO, &value) && value & MSR_PLATFORM_INFO_CPUID_FAULT;
	return 0;
}
late_initcall(cpuid_init);
