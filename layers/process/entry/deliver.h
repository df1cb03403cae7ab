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

#endif
