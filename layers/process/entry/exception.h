/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Exceptions of guest code, and faults in the layer. */
#ifndef PROCESS_EXCEPTION_H
#define PROCESS_EXCEPTION_H

#include "host/signals.h"
#include "state/state.h"

/*
 * Replaces the trap number and the error code of a signal that the host sends without them, such as
 * SIGILL for a use of AMX that it does not permit. The frame has those of the thread's last
 * exception then.
 */
void trap_of_signal(int signal, struct host_registers *regs);
/* Handles an exception of guest code, by the processor's vector. */
void guest_exception(struct vcpu *v, struct host_registers *regs, s32 code);
/*
 * Handles a synchronous signal while the instruction pointer is in the layer. False: the stack
 * pointer may be the program's, since the fixup may have completed a system call.
 */
bool layer_fault(struct vcpu *v, int signal, struct host_registers *regs, s32 code);

#endif
