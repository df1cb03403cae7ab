// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Pending interrupts.
 *
 * A sender sets the bits first, then looks where the vCPU is. A halted vCPU is woken through its
 * futex. The owner of a running one gets SIGURG, whose handler delivers or, in the layer or with
 * interrupts off, sets F_PENDING. The owner looks again at each enable, return and hand-over, so
 * nothing is lost if the signal hits a thread that has just handed the vCPU over. An interrupt of a
 * running vCPU costs a tgkill, a signal and a signal return. Where the host cannot keep signals
 * inside the machine (PHV_FLAG_ASK), a thread of the monitor sends the signal, which costs two more
 * thread switches.
 */
#include "vcpu/irq.h"
#include "host/call.h"
#include "host/clock.h"
#include "host/doorbell.h"
#include "host/futex.h"
#include "host/step.h"
#include "mm/sync.h"
#include "state/cpu.h"
#include "state/event.h"
#include "state/state.h"
#include "vcpu/alarm.h"

/* Bits that stay until they are acted upon. */
#define PENDING_KEPT						\
	((u32)(PHV_PENDING_NMI | PHV_PENDING_STOP |		\
	       PHV_PENDING_FLUSH | PHV_PENDING_DEBUG))

/*
 * Bits that are acted upon with interrupts off, too. A second NMI waits until the first one's
 * handler returns.
 */
static u32 forcing(const struct vcpu *v, u32 pending)
{
	return pending & PENDING_KEPT & ~(v->nmi_on ? (u32)PHV_PENDING_NMI : 0);
}

/* The earliest moment counts: the vCPU wants to run from then on. */
void vcpu_woken(struct vcpu *v, u64 tsc)
{
	u64 old = READ_ONCE(v->woken);
	u32 halted = VMI_RUN_HALTED;

	while ((!old || (s64)(tsc - old) < 0) &&
	       !__atomic_compare_exchange_n(&v->woken, &old, tsc, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED))
		;
	/* It may run already. */
	__atomic_compare_exchange_n(&v->run.state, &halted, VMI_RUN_READY, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
}

/*
 * Time for the monitor to get a processor. A kick that takes longer comes late, like any wake-up.
 */
#define ASK_TRIES 20
#define ASK_NS 1000000

/*
 * Has the monitor's kick thread send the signal, and returns when it is sent, as tgkill does: a
 * caller that spins for the vCPU right away would keep the processor from the monitor.
 */
static void ask(u32 vcpu)
{
	u64 bit = 1ULL << (vcpu & 63);
	u32 rounds = READ_ONCE(shared->s.kick_rounds), tries;

	__atomic_fetch_or(&shared->s.kick_wanted, bit, __ATOMIC_SEQ_CST);
	wake_announced(&shared->s.kick_sleeping);
	for (tries = 0; tries < ASK_TRIES; tries++) {
		u32 now = READ_ONCE(shared->s.kick_rounds);

		/* The end of a round that began earlier says nothing about this bit. */
		if (now != rounds && !(READ_ONCE(shared->s.kick_wanted) & bit))
			return;
		futex_wait(&shared->s.kick_rounds, now, now_ns() + ASK_NS);
	}
}

void vcpu_kick(struct vcpu *v)
{
	u64 owner;

	/* W2 of host/doorbell.h; the caller has set what is pending. */
	fence();
	step();
	event(thread_here()->vcpu, PHV_EVENT_KICK, v->number, READ_ONCE(v->s.pending));
	if (READ_ONCE(v->s.state) == PHV_VCPU_HALTED) {
		vcpu_woken(v, rdtsc_rough());
		/* After its last look it stores 0, executes a fence, and looks for work again. */
		if (!READ_ONCE(v->s.polling))
			ring(&v->s.wait_word);
		return;
	}
	owner = READ_ONCE(v->s.owner);
	step();
	if (owner && (shared->s.flags & PHV_FLAG_ASK))
		ask(v->number);
	else if (owner)
		host3(tgkill, owner >> 32, owner & 0xffffffff, SIGURG);
}

void irq_notify(struct vcpu *v, u32 pending)
{
	__atomic_fetch_or(&v->s.pending, pending, __ATOMIC_SEQ_CST);
	vcpu_kick(v);
}

bool irq_request(struct vcpu *v, u32 vector)
{
	__atomic_fetch_or(&v->s.irr[vector >> 6 & 3], 1ULL << (vector & 63), __ATOMIC_SEQ_CST);
	return !(__atomic_fetch_or(&v->s.pending, PHV_PENDING_IRQ, __ATOMIC_SEQ_CST) &
		 PHV_PENDING_IRQ);
}

/* Whether the vCPU checks its requests when it can take an interrupt next. */
static bool knows(const struct vcpu *v)
{
	return v->percpu && READ_ONCE(v->s.state) != PHV_VCPU_HALTED && FAST(v, F_PENDING);
}

void irq_send(struct vcpu *v, u32 vector)
{
	/*
	 * The sender of an earlier request may have lost its processor before its kick, so the vCPU
	 * is kicked again, unless it is going to look. F_PENDING may be one of a moment ago: then
	 * the kick of the earlier sender is the one that counts.
	 */
	if (irq_request(v, vector) || !knows(v))
		vcpu_kick(v);
}

void irq_serve_flush(struct vcpu *v)
{
	if (!(READ_ONCE(v->s.pending) & PHV_PENDING_FLUSH))
		return;
	__atomic_fetch_and(&v->s.pending, ~(u32)PHV_PENDING_FLUSH, __ATOMIC_SEQ_CST);
	mm_serve_flushes(v);
}

void irq_mark(struct vcpu *v)
{
	u32 pending = READ_ONCE(v->s.pending);

	if (pending)
		FAST(v, F_PENDING) = 1;
	if (forcing(v, pending))
		force(v, FORCE_EVENT);
}

int irq_next(struct vcpu *v)
{
	int vector = highest(v->s.irr), service = highest(v->isr);

	if (vector < 0 || vector >> 4 <= (int)v->cr8)
		return -1;
	if (service >= 0 && vector >> 4 <= service >> 4)
		return -1;
	return vector;
}

void irq_accept(struct vcpu *v, u32 vector)
{
	u64 bit = 1ULL << (vector & 63);

	__atomic_fetch_and(&v->s.irr[vector >> 6], ~bit, __ATOMIC_SEQ_CST);
	v->isr[vector >> 6] |= bit;
	v->s.interrupts++;
}

void irq_refresh(struct vcpu *v)
{
	u32 pending, left;

	/*
	 * A signal here sets F_PENDING or F_FORCE, and the stores below may undo that. But the
	 * reason for the signal is in pending by then.
	 */
	do {
		pending = READ_ONCE(v->s.pending);
		if (pending & PHV_PENDING_IRQ)
			__atomic_fetch_and(&v->s.pending, ~(u32)PHV_PENDING_IRQ, __ATOMIC_SEQ_CST);
		if (pending & PHV_PENDING_ALARM) {
			__atomic_fetch_and(&v->s.pending, ~(u32)PHV_PENDING_ALARM,
					   __ATOMIC_SEQ_CST);
			alarm_check(v);
		}
		FAST(v, F_PENDING) = irq_next(v) >= 0;
		FAST(v, F_FORCE) = (forcing(v, pending) ? FORCE_EVENT : 0) |
			(v->nmi_on ? FORCE_IRET : 0) |
				   (thread_of(v)->supervisor_count ||
				    self.proc->needs_resync ? FORCE_PAGES : 0);
		left = READ_ONCE(v->s.pending);
	} while ((left & (PHV_PENDING_IRQ | PHV_PENDING_ALARM)) ||
		 (left & PENDING_KEPT & ~pending));
}
