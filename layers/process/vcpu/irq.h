/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Interrupts: any thread requests them, the owner of the vCPU delivers them. */
#ifndef PROCESS_IRQ_H
#define PROCESS_IRQ_H

#include "state/state.h"

/*
 * Requests a vector of any vCPU. False: an earlier request is pending, whose sender has kicked the
 * vCPU, or is about to.
 */
bool irq_request(struct vcpu *v, u32 vector);
/* Requests a vector of another vCPU and kicks it, if it does not know of requests already. */
void irq_send(struct vcpu *v, u32 vector);
/* Sets pending bits of any vCPU and kicks it. */
void irq_notify(struct vcpu *v, u32 pending);
/* Wakes a halted vCPU, or signals its owner. */
void vcpu_kick(struct vcpu *v);
/* Notes that the vCPU wants to run since this moment (TSC). The earliest one counts. */
void vcpu_woken(struct vcpu *v, u64 tsc);
/* Does the flush that another vCPU waits for, if one is pending. The caller must hold no lock. */
void irq_serve_flush(struct vcpu *v);
/* For a signal that must not deliver now: marks that the next return to the guest delivers. */
void irq_mark(struct vcpu *v);
/* Evaluates what is pending: alarms, F_PENDING, F_FORCE. Only the owner calls this. */
void irq_refresh(struct vcpu *v);
/* The vector to deliver now, or -1. Ignores the interrupt flag. */
int irq_next(struct vcpu *v);
/* Moves a vector from requested to in service. */
void irq_accept(struct vcpu *v, u32 vector);

/*
 * Whether an interrupt may be delivered now, or an event that does not depend on the interrupt
 * flag. A call that sleeps returns then.
 */
static inline bool irq_deliverable(const struct vcpu *v)
{
	return (FAST(v, F_PENDING) && FAST(v, F_IRQ)) || (FAST(v, F_FORCE) & FORCE_EVENT);
}

static inline int highest(const u64 *bits)
{
	int i;

	for (i = 3; i >= 0; i--) {
		u64 word = READ_ONCE(bits[i]);

		if (word)
			return i * 64 + 63 - __builtin_clzll(word);
	}
	return -1;
}

#endif
