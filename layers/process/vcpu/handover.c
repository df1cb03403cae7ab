// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The hand-over of a vCPU between address-space processes. pool.c has the table of processes and
 * their spaces.
 *
 * A hand-over costs at most two host calls (wake the other thread, wait on this one) and the
 * context switch between them. If the host runs the other thread before this one waits, and that
 * thread hands the vCPU back, it need not wake this thread, and this thread need not wait: each
 * hand-over costs one call. This depends on the host's scheduler. The hand-over passes the vCPU's
 * registers in struct vcpu, with XSAVE state and the FS base. After the wake this thread no longer
 * owns the vCPU: it touches neither the vCPU nor the guest's stack.
 */
#include "vcpu/handover.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "host/call.h"
#include "host/cpuid.h"
#include "host/futex.h"
#include "host/lock.h"
#include "host/step.h"
#include "mm/fill.h"
#include "mm/flush.h"
#include "mm/sync.h"
#include "mm/trim.h"
#include "mm/walk.h"
#include "state/cpu.h"
#include "state/event.h"
#include "state/state.h"
#include "vcpu/guest_clock.h"
#include "vcpu/irq.h"
#include "vcpu/look.h"
#include "vcpu/pool.h"
#include "vcpu/registers.h"
#include "vcpu/slice.h"

/* Makes this thread the owner of the vCPU. */
static noreturn void become(struct vcpu *v)
{
	struct thread *t = thread_of(v);

	step();
	v->s.owner = (u64)self.pid << 32 | t->tid;
	step();
	/* S1 and S2 of host/doorbell.h; irq_refresh() is S3. */
	fence();
	mm_sync(v);
	step();
	v->s.state = PHV_VCPU_RUNNING;
	v->run.state = VMI_RUN_RUNNING;
	slice_begin(v);
	clock_follow();
	if (!FAULT(CPUID_FAULTS_STAY))
		cpuid_faulting_follow(v, t);
	tlb_age(v, v->slice_start);
	segments_load(v);
	if (v->resume == RESUME_FULL) {
		if (v->percpu)
			irq_refresh(v);
		ph_resume_full();
	}
	state_load(v);
	irq_refresh(v);
	ph_resume_call(v);
}

noreturn void vcpu_park(void *thread)
{
	struct thread *t = thread;
	struct vcpu *v = t->vcpu;
	u32 *word = &self.proc->s.wake[v->number];

	for (;;) {
		u32 told = __atomic_exchange_n(word, 0, __ATOMIC_ACQUIRE), nothing = 0;

		if (told == WAKE_RUN)
			become(v);
		if (told == WAKE_DROP)
			mm_drop_released();
		else if (told == WAKE_TRIM)
			mm_trim();
		else if (told == WAKE_LOOK)
			look_answer(v);
		else if (told == WAKE_FLUSH)
			mm_serve_flushes_parked();
		else if (__atomic_compare_exchange_n(word, &nothing, WAKE_WAITS, false,
						     __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
			/* For statistics only: the vCPU's new owner may count at the same time. */
			v->s.parks++;
			futex_wait(word, WAKE_WAITS, U64_MAX);
		}
	}
}

void wake_thread(struct vcpu *v, u32 index, u32 what)
{
	u32 *word = &proc_at(index)->s.wake[v->number];

	step();
	if (__atomic_exchange_n(word, what, __ATOMIC_RELEASE) == WAKE_WAITS) {
		step();
		futex_wake(word, 1);
	}
	step();
}

bool wake_if_free(struct vcpu *v, u32 index, u32 what)
{
	u32 *word = &proc_at(index)->s.wake[v->number], was = WAKE_WAITS;

	step();
	/* 0: it is about to look for work. It stores WAKE_WAITS once after that. */
	while (!__atomic_compare_exchange_n(word, &was, what, false, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		/*
		 * The failed exchange is a locked instruction, so the thread that takes the word
		 * sees what the caller stored before.
		 */
		if (was && was != WAKE_WAITS)
			return was == what;
	if (was == WAKE_WAITS)
		futex_wake(word, 1);
	return true;
}

void space_load(struct vcpu *v, u64 cr3, u64 context, u64 generation)
{
	u32 index = pool_get(v, cr3 & PTE_ADDR);

	step();
	v->cr3 = cr3 & ~CR3_FLAGS;
	v->context = context;
	v->generation = generation;
	if (index == self.index) {
		mm_sync(v);
		tlb_age(v, rdtsc_rough());
		return;
	}
	/*
	 * Only this thread can drop these pages on its way to user mode. Mappings that an exec hint
	 * has kept stay: the tables to compare them with are no longer loaded, and the next vCPU
	 * that loads them compares (mm_sync).
	 */
	tlb_drop_supervisor(v);
	v->s.switches++;
	event(v, PHV_EVENT_SWITCH, cr3, index);
	slice_end(v);
	v->run.state = VMI_RUN_READY;
	self.proc->left = v->woken;
	state_save(v, !(cr3 & CR3_FLAGS));
	v->resume = RESUME_CALL;
	v->s.proc = index;
	/*
	 * A kick from here on finds no thread to signal. The next owner looks for what is pending
	 * after it has stored its name.
	 */
	if (!FAULT(OWNER_GONE_LATE))
		WRITE_ONCE(v->s.owner, 0);
	wake_thread(v, index, WAKE_RUN);
	if (FAULT(OWNER_GONE_LATE))
		WRITE_ONCE(v->s.owner, 0);
	ph_on_stack(v->host_stack, vcpu_park, thread_of(v));
}

bool space_release(struct vcpu *v, u64 cr3)
{
	bool drop = false;
	s64 index;

	if ((v->cr3 & PTE_ADDR) == cr3)
		return false;
	lock_take(&shared->spaces);
	index = pool_find(cr3);
	if (index >= 0) {
		struct proc *p = proc_at((u32)index);

		p->reset++;
		if (!p->loaded) {
			p->s.state = PHV_PROC_FREE;
			p->s.cr3 = 0;
			drop = heuristic(PHV_FLAG_NO_EARLY_DROP) &&
			       (p->user_mappings > KEEP_MAPPINGS || p->user_tables > KEEP_TABLES);
		}
	}
	lock_release(&shared->spaces);
	/*
	 * This vCPU's thread there is parked, and only this vCPU can wake it. If it still has other
	 * work to do, a new space drops the mappings (tlb_take_over).
	 */
	if (drop)
		wake_if_free(v, (u32)index, WAKE_DROP);
	return true;
}

