/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Stops a vCPU for the debugger in the monitor. */
#ifndef PROCESS_DEBUG_H
#define PROCESS_DEBUG_H

#include "host/signals.h"
#include "state/state.h"

/*
 * Stops the vCPU, whose registers are complete in regs, until the monitor gives a command, and
 * takes over what it has changed. False: the guest gets the exception that caused the stop. Called
 * in a signal handler, without locks.
 */
bool debug_stop(struct vcpu *v, struct host_registers *regs, u32 reason);
/* At the start of a handler while the vCPU is stepped: gives the flags back the guest's value. */
void debug_step_begin(struct vcpu *v, struct host_registers *regs);
/* The trap after the instruction. */
void debug_step_trap(struct vcpu *v, struct host_registers *regs);
/*
 * At the end of a handler, in guest code: continues the step, or ends it if it has entered the
 * kernel.
 */
void debug_step_end(struct vcpu *v, struct host_registers *regs);
/* Whether a debugger is connected. */
static inline bool debug_on(void)
{
	return READ_ONCE(shared->s.debug_on) != 0;
}
/* Notes the caller's registers for the report, in a call that ends the machine. */
void debug_note_call(struct vcpu *v);

#endif
