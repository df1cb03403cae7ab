/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Waits of a vCPU. */
#ifndef PROCESS_WAIT_H
#define PROCESS_WAIT_H

#include "state/state.h"

/*
 * Waits until something may be deliverable. kick: also returns for the vCPU's lock.kick, which it
 * consumes.
 */
void irq_wait(struct vcpu *v, bool kick, bool enabled);

#endif
