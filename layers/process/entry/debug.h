/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Stopping a vCPU for the debugger in the monitor. */
#ifndef PROCESS_DEBUG_H
#define PROCESS_DEBUG_H

#include "host/signals.h"
#include "state/state.h"

/*
 * Stops the vCPU, whose registers are complete in regs, until the monitor says how to go on, and takes on what it has changed. False: the
 * guest is to get the exception that this is about. In a signal handler, without locks.
 */
bool debug_stop(struct vcpu *v, struct host_registers *regs, u32 reason);
/* A handler begins while the vCPU is stepped: the flags are as the guest has them again. */
void debug_step_begin(struct vcpu *v, struct host_registers *regs);
/* The trap behind the instruction. */
void debug_step_trap(struct vcpu *v, struct host_registers *regs);
/* A handler ends, in guest code: the step goes on, or has led into the kernel, and is done. */
void debug_step_end(struct vcpu *v, struct host_registers *regs);
/* A debugger is attached. */
static inline bool debug_on(void)
{
	return READ_ONCE(shared->s.debug_on) != 0;
}
/* The vCPU is in a call that ends the machine: its caller's registers, for the report. */
void debug_note_call(struct vcpu *v);

#endif
