/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Exceptions of guest code, and faults in the layer. */
#ifndef PROCESS_EXCEPTION_H
#define PROCESS_EXCEPTION_H

#include "host/signals.h"
#include "state/state.h"

/* An exception by the processor's vector, in guest code. */
void guest_exception(struct vcpu *v, struct host_registers *regs, s32 code);
/*
 * A synchronous signal while the instruction pointer is in the layer. False: the stack pointer may be the program's, since what was
 * completed may have been the way of a system call.
 */
bool layer_fault(struct vcpu *v, int signal, struct host_registers *regs, s32 code);

#endif
