/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* What cpuid gives, from tables. */
#ifndef PROCESS_CPUID_H
#define PROCESS_CPUID_H

#include "state/state.h"

struct cpuid_entry {
	u32 leaf, subleaf;	/* CPUID_ANY: there are no subleaves */
	u32 eax, ebx, ecx, edx;
};
_Static_assert(offsetof(struct cpuid_entry, subleaf) == CPUID_SUBLEAF, "CPUID_SUBLEAF");
_Static_assert(offsetof(struct cpuid_entry, eax) == CPUID_EAX, "CPUID_EAX");
_Static_assert(offsetof(struct cpuid_entry, ebx) == CPUID_EBX, "CPUID_EBX");
_Static_assert(offsetof(struct cpuid_entry, ecx) == CPUID_ECX, "CPUID_ECX");
_Static_assert(offsetof(struct cpuid_entry, edx) == CPUID_EDX, "CPUID_EDX");
_Static_assert(sizeof(struct cpuid_entry) == CPUID_ENTRY, "CPUID_ENTRY");

/*
 * In the zygote, before anything asks: reads what the host's processor says. False if that is more than there is room for. No cpuid
 * instruction is executed after that.
 */
bool cpuid_prepare(void);

/* What the host's processor says. */
void cpuid_host(u32 leaf, u32 subleaf, struct vmi_cpuid *regs);

/* State components that the host has switched on, less those of features that the kernel is not told of. */
u64 xcr0_shown(void);

/* Whether it is Intel's. */
bool cpuid_intel(void);

/* In the zygote, after cpuid_prepare: fills the table that slots read. False if the processor lacks what slots are made of. */
bool cpuid_stubs_prepare(void);

/* The thread that is this vCPU: its cpuid instructions fault, or do not, as the guest's kernel wants it for programs. */
void cpuid_faulting_set(const struct vcpu *v);

static inline void cpuid_faulting_follow(const struct vcpu *v, const struct thread *t)
{
	if (t->cpuid_faults != v->user_cpuid_faults)
		cpuid_faulting_set(v);
}

#endif
