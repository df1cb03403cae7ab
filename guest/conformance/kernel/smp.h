/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Other vCPUs: start, work, interprocessor interrupts. */
#ifndef KERNEL_SMP_H
#define KERNEL_SMP_H

#include "percpu.h"
#include "types.h"

#define ICR_FIXED	0x000ull
#define ICR_NMI		0x400ull
#define ICR_INIT	0x4500ull
#define ICR_STARTUP	0x4600ull
#define ICR_SELF	0x40000ull
#define ICR_ALL		0x80000ull
#define ICR_OTHERS	0xc0000ull

/* Starts all vCPUs. Prints a line and stops at the first that does not start. */
void smp_init(void);
/* What smp.vcpu_state answered for each vCPU but the first before its first INIT. */
extern int smp_state_before[MAX_VCPUS];
/* Sends INIT and STARTUP with this state; 0 or the error of the call that failed. */
int smp_start_with(u32 vcpu, const struct vmi_ap_state *state);
/*
 * Waits until a vCPU that was started has done something. As long as it has not, this sends more
 * STARTUPs, which a processor that runs ignores.
 */
bool smp_wait_start(u32 vcpu, bool (*done)(void *), void *argument);
/* The state in which a vCPU enters the work loop. */
struct vmi_ap_state smp_work_state(u32 vcpu);
/* Starts or restarts a vCPU into the work loop; false if it does not start in time. */
bool smp_start(u32 vcpu);

/* Enables the APIC of this vCPU. */
void apic_init(void);
int send_ipi(u32 vcpu, u32 vector);
int send_icr(u32 vcpu, u64 icr);

/* Starts work(argument) on another vCPU. */
void run_on(u32 vcpu, void (*work)(void *), void *argument);
/* Waits for the end of the work. Fails the test after its deadline. */
void wait_for(u32 vcpu);
/* Starts work on the vCPUs 1 to count - 1, then waits for all of them. */
void run_on_others(u32 count, void (*work)(void *), void *argument);
/* Whether the work has ended. */
bool work_done(u32 vcpu);

#endif
