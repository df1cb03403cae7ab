/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Interrupts: requested from anywhere, delivered by the thread that is the vCPU. */
#ifndef PROCESS_IRQ_H
#define PROCESS_IRQ_H

#include "state/state.h"

/* Requests a vector of any vCPU. False: who requested one before makes it look, or it is about to. */
bool irq_request(struct vcpu *v, u32 vector);
/* Sets pending bits of any vCPU and makes it look. */
void irq_notify(struct vcpu *v, u32 pending);
/* Wakes a vCPU that waits, or signals the thread that it is. */
void vcpu_kick(struct vcpu *v);
/* The vCPU wants to run from this moment (TSC) on. Who tells it first counts. */
void vcpu_woken(struct vcpu *v, u64 tsc);
/* Does the flush that another vCPU waits for, if one is pending. Under no lock. */
void irq_serve_flush(struct vcpu *v);
/* In a signal that must not deliver now: the next return to the guest will. */
void irq_mark(struct vcpu *v);
/* Takes what was requested into account: alarms, F_PENDING, F_FORCE. Only by the vCPU's own thread. */
void irq_refresh(struct vcpu *v);
/* The vector to deliver now, or -1; the flag is not looked at. */
int irq_next(struct vcpu *v);
/* Moves a vector from requested to in service. */
void irq_accept(struct vcpu *v, u32 vector);

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
