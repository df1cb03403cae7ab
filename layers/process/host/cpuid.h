/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* What cpuid returns, from tables. */
#ifndef PROCESS_CPUID_H
#define PROCESS_CPUID_H

#include "state/state.h"

struct cpuid_entry {
	u32 leaf, subleaf;	/* CPUID_ANY: no subleaves */
	u32 eax, ebx, ecx, edx;
};
_Static_assert(offsetof(struct cpuid_entry, subleaf) == CPUID_SUBLEAF, "CPUID_SUBLEAF");
_Static_assert(offsetof(struct cpuid_entry, eax) == CPUID_EAX, "CPUID_EAX");
_Static_assert(offsetof(struct cpuid_entry, ebx) == CPUID_EBX, "CPUID_EBX");
_Static_assert(offsetof(struct cpuid_entry, ecx) == CPUID_ECX, "CPUID_ECX");
_Static_assert(offsetof(struct cpuid_entry, edx) == CPUID_EDX, "CPUID_EDX");
_Static_assert(sizeof(struct cpuid_entry) == CPUID_ENTRY, "CPUID_ENTRY");

/*
 * Reads what the host's processor returns, in the zygote, before anything uses it. False if there
 * is no room for all of it. No cpuid instruction is executed after the zygote is ready.
 */
bool cpuid_prepare(void);

/* How long a cpuid instruction takes here, in cycles of the TSC. Only in the zygote. */
u64 cpuid_cycles(void);

/* What the host's processor returns. */
void cpuid_host(u32 leaf, u32 subleaf, struct vmi_cpuid *regs);

/*
 * State components that the host has enabled, without those of features that are hidden from the
 * kernel.
 */
u64 xcr0_shown(void);

/* Whether Intel made the processor. */
bool cpuid_intel(void);

/*
 * Fills the table that stubs read, in the zygote, after cpuid_prepare(). False if the processor
 * lacks instructions that stubs need.
 */
bool cpuid_stubs_prepare(void);

/*
 * Makes cpuid fault in the calling thread, or not, as the guest kernel wants it for programs. The
 * thread is the owner.
 */
void cpuid_faulting_set(const struct vcpu *v);

static inline void cpuid_faulting_follow(const struct vcpu *v, const struct thread *t)
{
	if (t->cpuid_faults != v->user_cpuid_faults)
		cpuid_faulting_set(v);
}

#endif
