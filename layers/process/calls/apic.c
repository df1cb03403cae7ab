// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Sections apic and smp: a local APIC in memory, interrupts between vCPUs, and their start. */
#include "calls/calls.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "host/call.h"
#include "host/clock.h"
#include "host/lock.h"
#include "host/step.h"
#include "state/cpu.h"
#include "state/state.h"
#include "vcpu/irq.h"
#include "vcpu/percpu.h"
#include "vcpu/start.h"

#define APIC_ID 0x20
#define APIC_VERSION 0x30
#define APIC_TPR 0x80
#define APIC_PPR 0xa0
#define APIC_EOI 0xb0
#define APIC_ISR 0x100
#define APIC_TMR 0x180
#define APIC_IRR 0x200
#define APIC_ICR 0x300
#define APIC_ICR_HIGH 0x310

#define ICR_MODE(icr) ((icr) >> 8 & 7)
#define ICR_LOGICAL 0x800
#define ICR_ASSERT 0x4000
#define ICR_LEVEL 0x8000
#define ICR_SHORTHAND(icr) ((icr) >> 18 & 3)
#define MODE_FIXED 0
#define MODE_NMI 4
#define MODE_INIT 5
#define MODE_STARTUP 6

static bool offset_bad(u32 offset)
{
	return offset > 0x3f0 || (offset & 15);
}

static u32 bits_word(const u64 *bits, u32 offset)
{
	return (u32)(bits[offset >> 5 & 3] >> (offset & 0x10 ? 32 : 0));
}

s64 process_apic_read(u32 offset)
{
	struct vcpu *v = this_vcpu();
	int service = highest(v->isr);

	if (offset_bad(offset))
		return -VMI_EINVAL;
	switch (offset) {
	case APIC_ID:
		return (s64)v->apic_id << 24;
	case APIC_VERSION:
		return 0x50014;
	case APIC_TPR:
		return (s64)v->cr8 << 4;
	case APIC_PPR:
		return service >> 4 > (int)v->cr8 ? service & 0xf0 : (s64)v->cr8 << 4;
	case APIC_ISR ... APIC_ISR + 0x70:
		return bits_word(v->isr, offset - APIC_ISR);
	case APIC_IRR ... APIC_IRR + 0x70:
		return bits_word(v->s.irr, offset - APIC_IRR);
	default:
		return v->apic[offset >> 4];
	}
}

void process_apic_eoi(void)
{
	struct vcpu *v = this_vcpu();
	int service = highest(v->isr);

	if (service >= 0)
		v->isr[service >> 6] &= ~(1ULL << (service & 63));
	irq_refresh(v);
}

int process_apic_write(u32 offset, u32 value)
{
	struct vcpu *v = this_vcpu();

	if (offset_bad(offset) || offset == APIC_ICR || offset == APIC_ICR_HIGH)
		return -VMI_EINVAL;
	switch (offset) {
	case APIC_EOI:
		process_apic_eoi();
		break;
	case APIC_TPR:
		v->cr8 = value >> 4 & 15;
		irq_refresh(v);
		break;
	case APIC_ID: case APIC_VERSION: case APIC_PPR:
	case APIC_ISR ... APIC_ISR + 0x70:
	case APIC_TMR ... APIC_TMR + 0x70:
	case APIC_IRR ... APIC_IRR + 0x70:
		break;
	default:
		v->apic[offset >> 4] = value;
	}
	return 0;
}

/*
 * INIT: the vCPU stops by itself. The sender waits for that, unless it is the target or must stop
 * too. Cancels a STARTUP that was waiting for the stop.
 */
static void send_init(struct vcpu *from, struct vcpu *to)
{
	bool off;
	u32 i;

	lock_take(&shared->spaces);
	to->startup_pending = 0;
	to->had_init = 1;
	off = to->s.state == PHV_VCPU_OFF;
	if (!off)
		__atomic_fetch_or(&to->s.pending, PHV_PENDING_STOP, __ATOMIC_SEQ_CST);
	lock_release(&shared->spaces);
	step();
	if (off)
		return;
	if (to == from) {
		irq_refresh(from);
		return;
	}
	vcpu_kick(to);
	for (i = 0; i < 1000000 && (READ_ONCE(to->s.pending) & PHV_PENDING_STOP) &&
	     !(READ_ONCE(from->s.pending) & PHV_PENDING_STOP); i++)
		host0(sched_yield);
}

static void send(struct vcpu *from, struct vcpu *to, u64 icr)
{
	if (FAULT(IPI_TAIL_LATE) && to != from && from->s.kicks_sent % 8 == 0) {
		u64 end = now_ns() + 3000000;

		while (now_ns() < end)
			cpu_relax();
	}
	switch (ICR_MODE(icr)) {
	case MODE_FIXED:
		if (READ_ONCE(to->s.state) == PHV_VCPU_OFF && !FAULT(STOP_KEEPS_REQUESTS))
			return;
		if (to != from) {
			from->s.kicks_sent++;
			irq_send(to, icr & 0xff);
			return;
		}
		irq_request(to, icr & 0xff);
		break;
	case MODE_NMI:
		__atomic_fetch_or(&to->s.pending, PHV_PENDING_NMI, __ATOMIC_SEQ_CST);
		break;
	case MODE_INIT:
		/* A de-assert does nothing. */
		if (!(icr & ICR_LEVEL) || (icr & ICR_ASSERT))
			send_init(from, to);
		return;
	case MODE_STARTUP:
		vcpu_startup(to);
		return;
	}
	if (to == from) {
		irq_refresh(from);
	} else {
		from->s.kicks_sent++;
		vcpu_kick(to);
	}
}

int process_apic_send_ipi(u64 icr)
{
	struct vcpu *v = this_vcpu();
	u32 mode = ICR_MODE(icr), shorthand = ICR_SHORTHAND(icr), i, count = shared->s.vcpu_count;
	u64 destination = icr >> 32;

	if (mode != MODE_FIXED && mode != MODE_NMI && mode != MODE_INIT && mode != MODE_STARTUP)
		return -VMI_EINVAL;
	if ((icr & ICR_LOGICAL) || (mode == MODE_FIXED && (icr & 0xff) < 16))
		return -VMI_EINVAL;
	if (!shorthand && destination >= count && destination != 0xff && destination != 0xffffffff)
		return -VMI_ENOENT;
	for (i = 0; i < count && i < PHV_MAX_VCPUS; i++) {
		bool self_target = i == v->number;

		if (shorthand == 1 ? !self_target : shorthand == 3 ? self_target : false)
			continue;
		if (!shorthand && destination != i && destination != 0xff &&
		    destination != 0xffffffff)
			continue;
		send(v, vcpu_at(i), icr);
	}
	return 0;
}

static bool canonical(u64 address)
{
	return address + 0x800000000000ULL < 0x1000000000000ULL;
}

int process_smp_set_ap_state(u32 number, const struct vmi_ap_state *state)
{
	struct vcpu *v;

	if (number == 0 || number >= shared->s.vcpu_count)
		return -VMI_ENOENT;
	v = vcpu_at(number);
	/* The kernel may give a vCPU its data as late as now. */
	if (!v->percpu)
		percpu_update(v);
	if (!v->percpu)
		return -VMI_ENOENT;
	if (!(state->cr0 & 1) || !(state->cr0 >> 31 & 1) || !(state->cr4 & 0x20) ||
	    !(state->efer & 0x100))
		return -VMI_EINVAL;
	if (!canonical(state->rip) || !canonical(state->fs_base) || !canonical(state->gs_base) ||
	    !canonical(state->gdt_base) || !canonical(state->idt_base))
		return -VMI_EINVAL;
	/* Used at the STARTUP, which comes later; until then the vCPU may even run. */
	lock_take(&shared->spaces);
	v->ap = *state;
	v->have_ap_state = 1;
	lock_release(&shared->spaces);
	return 0;
}

s64 process_smp_startup_vector(void)
{
	return 0;
}

int process_smp_vcpu_state(u32 number, struct vmi_vcpu_state *state)
{
	struct vmi_vcpu_state copy = { 0 };
	const struct vcpu *v;
	u32 i;

	if (number >= shared->s.vcpu_count)
		return -VMI_ENOENT;
	v = vcpu_at(number);
	/* This layer takes a vCPU's data at its first start. */
	if (!v->percpu)
		return -VMI_EBUSY;
	if (!vcpu_known(number))
		return -VMI_ENOENT;
	/* A vCPU that is off without an INIT was never started, or has stopped by itself. */
	if (v != this_vcpu() &&
	    (READ_ONCE(v->s.state) != PHV_VCPU_OFF ||
	     (!READ_ONCE(v->had_init) && !FAULT(VCPU_STATE_WITHOUT_INIT))))
		return -VMI_EBUSY;
	copy.kick = READ_ONCE(v->s.kick) != 0 && !FAULT(VCPU_STATE_NO_KICK);
	for (i = 0; i < 2; i++) {
		if (!v->alarms[i].armed)
			continue;
		copy.armed |= 1U << i;
		copy.alarm_vector = v->alarm_vector;
		copy.expiry[i] = v->alarms[i].expiry;
		copy.period[i] = v->alarms[i].periodic ? v->alarms[i].period : 0;
	}
	/* Those of a vCPU that is off are lost, though they may be there until its STARTUP. */
	for (i = 0; v == this_vcpu() && i < 4; i++)
		copy.requested[i] = READ_ONCE(v->s.irr[i]);
	*state = copy;
	return 0;
}
