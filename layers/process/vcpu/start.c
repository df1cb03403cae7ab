// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Starts and stops vCPUs. */
#include "vcpu/start.h"
#include "common/faults.h"
#include "host/lock.h"
#include "host/signals.h"
#include "host/step.h"
#include "mm/walk.h"
#include "state/cpu.h"
#include "state/state.h"
#include "vcpu/handover.h"
#include "vcpu/lines.h"
#include "vcpu/percpu.h"
#include "vcpu/pool.h"
#include "vcpu/slice.h"

/*
 * Sets a vCPU that is off to the state that smp.set_ap_state gave, and everything else as after a
 * reset. Under the spaces lock.
 */
static void prepare_start(struct vcpu *v)
{
	const struct vmi_ap_state *state = &v->ap;

	/* Marks in its old per-CPU data no longer count. */
	percpu_update(v);
	*(u64 *)((u8 *)v->percpu + F_VCPU) = (u64)v;
	FAST(v, F_PENDING) = 0;
	FAST(v, F_FORCE) = 0;
	FAST(v, F_IRQ) = (state->rflags & FLAG_IF) != 0;
	v->cr0 = state->cr0;
	v->cr2 = 0;
	v->cr3 = state->cr3;
	v->context = state->context_id;
	v->generation = state->generation;
	v->cr4 = state->cr4;
	v->cr8 = 0;
	v->efer = state->efer | 0x400;
	v->gdt_base = state->gdt_base;
	v->gdt_limit = state->gdt_limit;
	v->idt_base = state->idt_base;
	v->idt_limit = state->idt_limit;
	v->tr = state->tr;
	v->ldt = state->ldtr;
	v->kernel_gs = state->gs_base;
	v->fs_base = state->fs_base;
	v->ds_selector = v->es_selector = v->fs_selector = v->gs_selector = 0;
	v->user_gs = 0;
	v->user_cpuid_faults = 0;
	v->lazy_mode = 0;
	v->queued = 0;
	v->expected_hint = 0;
	v->alarm_fired = 0;
	if (!FAULT(START_KEEPS_NMI))
		v->nmi_on = 0;
	v->had_init = 0;
	__builtin_memset(v->isr, 0, sizeof(v->isr));
	if (!FAULT(STOP_KEEPS_REQUESTS))
		__builtin_memset(v->s.irr, 0, sizeof(v->s.irr));
	__atomic_store_n(&v->s.pending, 0, __ATOMIC_SEQ_CST);
	v->resume = RESUME_FULL;
	v->s.state = PHV_VCPU_RUNNING;
	v->run.state = VMI_RUN_READY;
}

/* Starts a vCPU that prepare_start() has prepared, by the same thread, under no lock. */
static void start(struct vcpu *v)
{
	u32 index = pool_get(v, v->cr3 & PTE_ADDR);

	v->woken = rdtsc_rough();
	v->s.proc = index;
	wake_thread(v, index, WAKE_RUN);
}

void vcpu_startup(struct vcpu *v)
{
	bool off;

	lock_take(&shared->spaces);
	off = v->s.state == PHV_VCPU_OFF && v->have_ap_state;
	if (off)
		prepare_start(v);
	else if (READ_ONCE(v->s.pending) & PHV_PENDING_STOP)
		v->startup_pending = v->have_ap_state;
	lock_release(&shared->spaces);
	step();
	if (off)
		start(v);
}

noreturn void vcpu_stop(struct vcpu *v)
{
	bool again;

	slice_end(v);
	v->s.deadline_ns = U64_MAX;
	v->alarms[0].armed = v->alarms[1].armed = 0;
	v->alarm_vector = 0;
	/*
	 * Being on, a pending stop and a pending start change together under the lock (send_init,
	 * vcpu_startup). An INIT that arrived since is this one, and only one thread starts the
	 * vCPU.
	 */
	lock_take(&shared->spaces);
	proc_at(v->s.proc)->loaded &= ~(1ULL << v->number);
	v->s.state = PHV_VCPU_OFF;
	if (!FAULT(STOP_STAYS_ON))
		v->run.state = VMI_RUN_OFF;
	if (FAULT(STOP_FORGETS_KICK))
		v->s.kick = 0;
	__atomic_fetch_and(&v->s.pending, ~(u32)PHV_PENDING_STOP, __ATOMIC_SEQ_CST);
	again = v->startup_pending;
	v->startup_pending = 0;
	if (again)
		prepare_start(v);
	lock_release(&shared->spaces);
	step();
	if (again)
		start(v);
	/* Either way this vCPU's requests are lost, and those of lines must reach one that runs. */
	lines_resend();
	/* This may be the handler of a notification, in which further ones are blocked. */
	signals_open(thread_of(v), vcpu_park);
}
