/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* What this folder's assembler offers to C. */
#ifndef PROCESS_CROSSING_H
#define PROCESS_CROSSING_H

#include "state/state.h"

extern u8 ph_thunks_start[], ph_thunks_end[];

extern const u64 gs_displacement;

/* The vCPU, for code that runs in a call of the kernel: the GS base is the kernel's. */
static inline struct vcpu *this_vcpu(void)
{
	struct vcpu *v;

	__asm__ volatile("movq %%gs:%c1(%2), %0" : "=r"(v) : "i"(F_VCPU), "r"(gs_displacement));
	return v;
}

/* Returns 0 from the call that the vCPU made, in this process. */
noreturn void ph_resume_call(struct vcpu *v);
/* Starts the vCPU in the state of struct vcpu.ap: raises a signal whose return loads that state. */
noreturn void ph_resume_full(void);

#endif
