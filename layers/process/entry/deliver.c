// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Delivers what is pending to the guest. */
#include "entry/deliver.h"
#include "common/faults.h"
#include "entry/debug.h"
#include "entry/inject.h"
#include "entry/where.h"
#include "host/signals.h"
#include "mm/fill.h"
#include "state/cpu.h"
#include "state/state.h"
#include "vcpu/irq.h"
#include "vcpu/start.h"

/* Nothing is delivered while a vCPU is stepped. Marks are evaluated again when it goes on. */
static void deliver_nothing(struct vcpu *v, const struct host_registers *regs)
{
	irq_serve_flush(v);
	if (from_user(v, regs->rip))
		tlb_kernel_done(v);
	FAST(v, F_PENDING) = 0;
	FAST(v, F_FORCE) = v->nmi_on ? FORCE_IRET : 0;
	/* A signal just before may have marked it there. */
	if (READ_ONCE(v->s.pending) & PHV_PENDING_DEBUG)
		force(v, FORCE_EVENT);
}

/* Delivers the events that were noted for calls that do not know their vCPU. */
static void any_pending_done(const struct vcpu *v)
{
	u64 bit = 1ULL << thread_of(v)->number;

	if (__atomic_load_n(&ph_any_pending, __ATOMIC_RELAXED) & bit)
		__atomic_fetch_and(&ph_any_pending, ~bit, __ATOMIC_SEQ_CST);
}

bool deliver_pending(struct vcpu *v, struct host_registers *regs)
{
	u32 pending;
	bool entered = false;
	int vector;

	any_pending_done(v);
	irq_refresh(v);
	if (READ_ONCE(v->s.pending) & PHV_PENDING_DEBUG)
		debug_stop(v, regs, PHV_STOP_ASKED);
	if (v->debug_step) {
		deliver_nothing(v, regs);
		return false;
	}
	pending = READ_ONCE(v->s.pending);
	if (pending & PHV_PENDING_STOP)
		vcpu_stop(v);
	irq_serve_flush(v);
	if ((pending & PHV_PENDING_NMI) && !v->nmi_on) {
		__atomic_fetch_and(&v->s.pending, ~(u32)PHV_PENDING_NMI, __ATOMIC_SEQ_CST);
		inject(v, regs, VECTOR_NMI, false, 0);
		v->nmi_on = !FAULT(NMI_NESTS);
		entered = true;
	}
	if (FAST(v, F_IRQ)) {
		vector = irq_next(v);
		if (vector >= 0) {
			irq_accept(v, (u32)vector);
			inject(v, regs, (u32)vector, false, 0);
			entered = true;
		}
	}
	if (from_user(v, regs->rip))
		tlb_kernel_done(v);
	irq_refresh(v);
	return entered;
}

u64 deliver_at_return(struct vcpu *v, u64 flags)
{
	const u64 *stack = to_pointer(v->rsp);
	struct host_registers regs = {};
	int vector;

	any_pending_done(v);
	irq_refresh(v);
	/* The gate gets the flags that the processor has here, and must not get these. */
	if ((FAST(v, F_FORCE) & FORCE_EVENT) || v->debug_step || v->debug_resumed ||
	    (flags & (FLAG_NT | FLAG_AC | FLAG_TF)))
		return 0;
	vector = irq_next(v);
	if (vector < 0)
		return v->rsp;
	regs.rip = stack[0];
	regs.rsp = v->rsp + (FAULT(CALL_DELIVERS_INSIDE) ? 0 : 8);
	regs.rflags = flags;
	regs.cs = HOST_USER_CS;
	irq_accept(v, (u32)vector);
	inject(v, &regs, (u32)vector, false, 0);
	irq_refresh(v);
	*(u64 *)to_pointer(regs.rsp - 8) = regs.rip;
	return regs.rsp - 8;
}
