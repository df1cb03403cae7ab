/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Which process is which address space, and how a vCPU gets from one to another. */
#ifndef PROCESS_HANDOVER_H
#define PROCESS_HANDOVER_H

#include "state/state.h"

/* Loads a space on the vCPU that calls. Returns if it is this process's; otherwise the call ends in the other one. */
void space_load(struct vcpu *v, u64 cr3, u64 context, u64 generation);
/* The space is gone. False: this vCPU has it loaded. */
bool space_release(struct vcpu *v, u64 cr3);
/* Main function of a vCPU's thread in a process: waits until it is handed the vCPU. */
noreturn void vcpu_park(void *thread);

/*
 * What a thread that is parked is told by its word: to go on as the vCPU; to drop the mappings of a space that was released, which
 * whoever takes the process next would have to do anyway; to give back all that the process can do without. By itself it says there that it
 * waits. One that was woken often runs at once, on the same CPU, in the middle of the waker's call; when it wakes that one, nobody waits yet.
 */
#define WAKE_RUN 1
#define WAKE_DROP 2
#define WAKE_TRIM 3
#define WAKE_WAITS 4

/* Tells this vCPU's thread in a process, which is parked. */
void wake_thread(struct vcpu *v, u32 index, u32 what);

#endif
