/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Delivers what is pending to the guest. */
#ifndef PROCESS_DELIVER_H
#define PROCESS_DELIVER_H

#include "host/signals.h"
#include "state/state.h"

/*
 * Delivers what is pending and allowed; regs are the guest's. True: something was delivered, so
 * regs have the stack of the kernel's entry.
 */
bool deliver_pending(struct vcpu *v, struct host_registers *regs);

/*
 * Delivers an interrupt to the kernel on the return from a call, without a signal: ph_deliver calls
 * it on the vCPU's host stack. `flags` are the kernel's, and v->rsp is its stack, with the address
 * to return to on top. Returns the stack of the gate, with the gate's address on top; v->rsp if
 * there is nothing to deliver; 0 for what needs all registers or stops the vCPU.
 */
u64 deliver_at_return(struct vcpu *v, u64 flags);

#endif
