/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Which process is which address space, and how a vCPU gets from one to another. */
#ifndef PROCESS_SPACE_H
#define PROCESS_SPACE_H

#include "state/state.h"

/* Loads a space on the vCPU that calls. Returns if it is this process's; otherwise the call ends in the other one. */
void space_load(struct vcpu *v, u64 cr3, u64 context, u64 generation);
/* The space is gone. False: this vCPU has it loaded. */
bool space_release(struct vcpu *v, u64 cr3);
/* In a long sleep: processes that have not been used lately give the host's memory back. When to call it again, ns, or never: U64_MAX. */
u64 space_rest(struct vcpu *v);
/* Flushes a part of a space for all vCPUs; generation: its new one. */
void space_flush(struct vcpu *v, u64 cr3, u64 context, u64 generation, u64 start, u64 end);
/* Carries out what others have asked of this process (PHV_PENDING_FLUSH); not where this thread holds its lock. */
void space_flush_serve(struct vcpu *v);
/* STARTUP: a vCPU that is off starts in v->ap; one that is just going off starts then. Under no lock. */
void space_startup(struct vcpu *v);
/* The calling vCPU goes off; on its host or signal stack. */
noreturn void space_stop_vcpu(struct vcpu *v);
/* Main function of a vCPU's thread in a process: waits until it is handed the vCPU. */
noreturn void space_park(void *thread);

/*
 * Begins and ends the time in which a thread is a vCPU that runs (time.c). What lies between is stolen, if it is long: from the end of
 * the last stint on, or from vcpu.woken on if that is changed meanwhile; 0: nothing.
 */
void stint_begin(struct vcpu *v);
void stint_end(struct vcpu *v);

#endif
