/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* How a vCPU moves from one address-space process to another. */
#ifndef PROCESS_HANDOVER_H
#define PROCESS_HANDOVER_H

#include "state/state.h"

/* Flags of mmu.set_cr3, which are no part of CR3: today's, and that of section version 2. */
#define CR3_FLAGS ((u64)(VMI_CR3_NO_VECTORS | VMI_CR3_NO_VECTORS_2))

/*
 * Loads a space on the calling vCPU. Returns if this process has the space; otherwise the call
 * returns in the other process.
 */
void space_load(struct vcpu *v, u64 cr3, u64 context, u64 generation);
/* Releases a space. False: this vCPU has it loaded. */
bool space_release(struct vcpu *v, u64 cr3);
/* Main function of a vCPU's thread in a process: waits for a hand-over. */
noreturn void vcpu_park(void *thread);

/*
 * Values of a parked thread's word: WAKE_RUN, take over the vCPU; WAKE_DROP, drop the mappings
 * of a space that was released, which the next user of the process would have to do anyway;
 * WAKE_TRIM, return all memory that the process can do without; WAKE_LOOK, say whether another vCPU
 * that is in this process has a processor; WAKE_FLUSH, do the flushes that were requested of this
 * process. The thread itself stores WAKE_WAITS before it sleeps. A woken thread often runs at once,
 * on the same CPU, in the middle of the waker's call; when it wakes that one in turn, nothing waits
 * yet, and the host call is saved.
 */
#define WAKE_RUN 1
#define WAKE_DROP 2
#define WAKE_TRIM 3
#define WAKE_WAITS 4
#define WAKE_LOOK 5
#define WAKE_FLUSH 6

/* Wakes this vCPU's thread in a process, which is parked. */
void wake_thread(struct vcpu *v, u32 index, u32 what);
/*
 * Wakes the thread for WAKE_LOOK or WAKE_FLUSH, unless it has another request: then it keeps that,
 * and the result is false. Also true if the thread has this request and has not begun.
 */
bool wake_if_free(struct vcpu *v, u32 index, u32 what);

#endif
