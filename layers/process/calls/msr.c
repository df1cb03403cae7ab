// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Model-specific registers and CPUID. */
#include "calls/calls.h"
#include "calls/patch.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "host/cpuid.h"
#include "state/cpu.h"
#include "state/state.h"

#define MSR_TSC 0x10
#define MSR_APIC_BASE 0x1b
#define MSR_BIOS_SIGN_ID 0x8b
#define MSR_PLATFORM_INFO 0xce
#define MSR_MISC_FEATURES_ENABLES 0x140
#define MSR_SYSENTER_CS 0x174
#define MSR_SYSENTER_EIP 0x176
#define MSR_MISC_ENABLE 0x1a0
#define MSR_PAT 0x277
#define MSR_EFER 0xc0000080
#define MSR_STAR 0xc0000081
#define MSR_LSTAR 0xc0000082
#define MSR_CSTAR 0xc0000083
#define MSR_SFMASK 0xc0000084
#define MSR_FS_BASE 0xc0000100
#define MSR_GS_BASE 0xc0000101
#define MSR_KERNEL_GS_BASE 0xc0000102

#define PLATFORM_INFO_CPUID_FAULTING (1ULL << 31)
#define MISC_FEATURES_CPUID_FAULTING 1ULL

#define EFER_KNOWN 0xd01ULL	/* SCE LME LMA NXE */
#define EFER_FIXED 0x500ULL	/* LME LMA */

/* Registers that are only stored. */
static u64 *kept(struct vcpu *v, u32 msr)
{
	switch (msr) {
	case MSR_STAR:
		return &v->star;
	case MSR_LSTAR:
		return &v->lstar;
	case MSR_CSTAR:
		return &v->cstar;
	case MSR_SFMASK:
		return &v->sfmask;
	case MSR_PAT:
		return &v->pat;
	case MSR_SYSENTER_CS ... MSR_SYSENTER_EIP:
		return &v->sysenter[msr - MSR_SYSENTER_CS];
	default:
		return NULL;
	}
}

/*
 * Intel's IA32_MISC_ENABLE (SDM volume 4, table 2-2). A kernel that does not find fast strings
 * enabled there clears and copies memory without them. Branch traces and event samples are shown as
 * unavailable. No other vendor has the register.
 */
static bool misc_enable(u64 *value)
{
	struct vmi_cpuid regs;

	if (!cpuid_intel())
		return false;
	*value = 1U << 11 | 1U << 12;	/* BTS, PEBS unavailable */
	cpuid_host(0, 0, &regs);
	if (regs.eax >= 7) {
		cpuid_host(7, 0, &regs);
		*value |= regs.ebx >> 9 & 1;	/* ERMS */
	}
	return true;
}

int process_cpu_read_msr(u32 msr, u64 *value)
{
	struct vcpu *v = this_vcpu();
	u64 *keep = kept(v, msr), result;

	if (keep)
		result = *keep;
	else if (msr == MSR_EFER)
		result = v->efer;
	else if (msr == MSR_TSC)
		result = rdtsc();
	else if (msr == MSR_APIC_BASE)
		result = v->apic_base;
	else if (msr == MSR_BIOS_SIGN_ID)
		result = 0;	/* microcode revision: none of the guest's business */
	else if (msr == MSR_FS_BASE)
		result = rdfsbase();
	else if (msr == MSR_GS_BASE)
		result = v->kernel_gs;
	else if (msr == MSR_KERNEL_GS_BASE)
		result = v->user_gs;
	else if (msr == MSR_PLATFORM_INFO && shared->s.cpuid_faulting)
		result = PLATFORM_INFO_CPUID_FAULTING;
	else if (msr == MSR_MISC_FEATURES_ENABLES && shared->s.cpuid_faulting)
		result = v->user_cpuid_faults;
	else if (msr != MSR_MISC_ENABLE || !misc_enable(&result)) {
		*value = 0;
		return -VMI_EFAULT;
	}
	*value = result;
	return 0;
}

int process_cpu_write_msr(u32 msr, u64 value)
{
	struct vcpu *v = this_vcpu();
	u64 *keep = kept(v, msr);

	if ((msr == MSR_LSTAR || msr == MSR_CSTAR) &&
	    value + 0x800000000000ULL >= 0x1000000000000ULL)
		return -VMI_EFAULT;
	if (msr == MSR_SFMASK && value >> 32)
		return -VMI_EFAULT;
	if (keep) {
		*keep = value;
		if (msr == MSR_LSTAR)
			patch_entry_update(v);
		return 0;
	}
	switch (msr) {
	case MSR_EFER:
		if ((value & ~EFER_KNOWN) || (value & EFER_FIXED) != EFER_FIXED)
			return -VMI_EFAULT;
		v->efer = value;
		return 0;
	case MSR_BIOS_SIGN_ID:
		/* Software writes 0 before cpuid stores a revision there. */
		return value ? -VMI_EFAULT : 0;
	case MSR_MISC_FEATURES_ENABLES:
		/*
		 * Intel's register (SDM volume 4, table 2-2), offered on all processors: the host
		 * knows how to do it.
		 */
		if (!shared->s.cpuid_faulting || (value & ~MISC_FEATURES_CPUID_FAULTING))
			return -VMI_EFAULT;
		v->user_cpuid_faults = (u32)value;
		cpuid_faulting_follow(v, thread_of(v));
		return 0;
	case MSR_FS_BASE:
		return process_cpu_set_fs_base(value);
	case MSR_GS_BASE:
		if (FAULT(WRITE_MSR_MOVES_NOTHING))
			return 0;
		return process_cpu_set_gs_base(value);
	case MSR_KERNEL_GS_BASE:
		return process_cpu_set_user_gs_base(value);
	default:
		return -VMI_EFAULT;
	}
}

/*
 * Shows only the components of features that the kernel is shown. There is no XSAVES, so supervisor
 * components are neither listed nor counted in the size of an area, standard or compacted.
 */
static void cpuid_xsave(struct vmi_cpuid *regs, u32 subleaf)
{
	u64 shown = xcr0_shown();
	u32 i, standard = 512 + 64, compacted = 512 + 64;
	struct vmi_cpuid part;

	if (subleaf > 1) {
		if (subleaf > 63 || !(shown >> subleaf & 1))
			regs->eax = regs->ebx = regs->ecx = regs->edx = 0;
		return;
	}
	for (i = 2; i < 63; i++) {
		if (!(shown >> i & 1))
			continue;
		cpuid_host(0xd, i, &part);
		if (part.ecx & 2)
			compacted = (compacted + 63) & ~63U;
		compacted += part.eax;
		if (part.ebx + part.eax > standard)
			standard = part.ebx + part.eax;
	}
	if (subleaf == 0) {
		regs->eax = (u32)shown;
		regs->ebx = regs->ecx = standard;
		regs->edx = (u32)(shown >> 32);
		return;
	}
	regs->eax &= ~(1U << 3 | 1U << 4);	/* XSAVES XFD */
	regs->ebx = compacted;
	regs->ecx = regs->edx = 0;
}

/*
 * Hides from the kernel what does not work here: supervisor-mode protection, PCID, LA57, XSAVES and
 * what depends on it, MWAIT, VMX, SVM, MCE, MTRR, and the host's own hypervisor.
 */
void process_cpu_cpuid(struct vmi_cpuid *regs)
{
	const struct vcpu *v = this_vcpu();
	u32 leaf = regs->eax, subleaf = regs->ecx;

	cpuid_host(leaf, subleaf, regs);
	if (leaf >= 0x40000000 && leaf < 0x50000000) {
		regs->eax = regs->ebx = regs->ecx = regs->edx = 0;
		return;
	}
	switch (leaf) {
	case 1:
		regs->ebx = (regs->ebx & 0xffff) | v->apic_id << 24 |
			(shared->s.vcpu_count & 0xff) << 16;
		/* MONITOR VMX SMX PCID x2APIC TSC-deadline hypervisor */
		regs->ecx &= ~(1U << 3 | 1U << 5 | 1U << 6 | 1U << 17 | 1U << 21 | 1U << 24 |
			       1U << 31);
		if (FAULT(CPUID_SHOWS_PCID))
			regs->ecx |= 1U << 17;
		/* MCE MCA MTRR */
		regs->edx &= ~(1U << 7 | 1U << 14 | 1U << 12);
		break;
	case 7:
		if (subleaf == 0) {
			/* SMEP INVPCID SMAP SGX */
			regs->ebx &= ~(1U << 7 | 1U << 10 | 1U << 20 | 1U << 2);
			/* UMIP PKU OSPKE WAITPKG CET LA57 */
			regs->ecx &= ~(1U << 2 | 1U << 3 | 1U << 4 | 1U << 5 | 1U << 7 | 1U << 16);
			/* IBT AMX */
			regs->edx &= ~(1U << 20 | 1U << 22 | 1U << 24 | 1U << 25);
		} else {
			regs->eax &= ~(1U << 17 | 1U << 18 | 1U << 26);	/* FRED LKGS LAM */
		}
		if (FAULT(CPUID_SHOWS_LA57) && subleaf == 0)
			regs->ecx |= 1U << 16;
		break;
	case 0xb: case 0x1f:
		regs->edx = v->apic_id;
		break;
	case 0xd:
		cpuid_xsave(regs, subleaf);
		break;
	case 0x80000001:
		regs->ecx &= ~(1U << 2);	/* SVM */
		break;
	}
}
