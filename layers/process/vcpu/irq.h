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
void irq_poke(struct vcpu *v);
/* In a signal that must not deliver now: the next return to the guest will. */
void irq_mark(struct vcpu *v);
/* Takes what was requested into account: alarms, F_PENDING, F_FORCE. Only by the vCPU's own thread. */
void irq_refresh(struct vcpu *v);
/* The vector to deliver now, or -1; the flag is not looked at. */
int irq_next(struct vcpu *v);
/* Moves a vector from requested to in service. */
void irq_accept(struct vcpu *v, u32 vector);
/* Waits until something may be deliverable; kick: also for the vCPU's kick, which it consumes. */
void irq_wait(struct vcpu *v, bool kick, bool enabled);

/* time.c: the guest's clock page, if the monitor's has changed; alarms. */
void clock_follow(void);
void alarm_check(struct vcpu *v);
u64 now_ns(void);
/* The counter at a moment that is not long ago; ns of now_ns. */
u64 tsc_at(u64 ns);
/* TSC cycles, at most some hours of them, in ns. */
u64 cycles_ns(u64 cycles);

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
