// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Flushes a space that other vCPUs have loaded. */
#include "vcpu/remote_flush.h"
#include "common/faults.h"
#include "host/call.h"
#include "host/clock.h"
#include "host/futex.h"
#include "host/lock.h"
#include "host/step.h"
#include "mm/flush.h"
#include "mm/sync.h"
#include "mm/walk.h"
#include "state/state.h"
#include "vcpu/handover.h"
#include "vcpu/irq.h"
#include "vcpu/pool.h"

/*
 * How long the vCPUs that have the space loaded are waited for, ns. One that has a processor takes
 * less.
 */
#define PATIENCE VMI_PREEMPTED_LATE_NS
/* Between two looks whether this vCPU's own thread there is free by now, ns. */
#define AGAIN 1000000

/*
 * Flushes a process that has the space loaded on other vCPUs only. Any of its threads can do it:
 * each that is an owner is asked, and the first to look does it for all. A vCPU that leaves the
 * process meanwhile need not, and one that comes in does it by itself: see host/doorbell.h.
 *
 * If none of them has a processor, this vCPU's own thread there does it. It gets the processor that
 * this one leaves. That takes two thread switches, and the signals to the others mostly less.
 */
static void flush_elsewhere(struct vcpu *v, u32 index)
{
	struct proc *p = proc_at(index);
	u32 wanted = __atomic_add_fetch(&p->flush_wanted, 1, __ATOMIC_SEQ_CST), done, i;
	u64 asked = 0, loaded, wait = PATIENCE;

	for (;;) {
		step();
		done = __atomic_load_n(&p->flush_done, __ATOMIC_SEQ_CST);
		loaded = __atomic_load_n(&p->loaded, __ATOMIC_SEQ_CST);
		if ((s32)(done - wanted) >= 0 || !loaded)
			return;
		for (i = 0; i < PHV_MAX_VCPUS; i++)
			if (loaded & ~asked & 1ULL << i)
				irq_notify(vcpu_at(i), PHV_PENDING_FLUSH);
		asked |= loaded;
		/* A vCPU that is asked may itself be waiting here, for this process. */
		mm_serve_flushes(v);
		if (futex_wait(&p->flush_done, done, now_ns() + wait) != -HOST_ETIMEDOUT ||
		    FAULT(FLUSH_WAITS_FOR_OWNERS))
			continue;
		wake_if_free(v, index, WAKE_FLUSH);
		wait = AGAIN;
	}
}

void space_flush(struct vcpu *v, u64 cr3, u64 context, u64 generation, u64 start, u64 end)
{
	s64 index;

	if ((v->cr3 & PTE_ADDR) == cr3 && v->context == context && context) {
		tlb_flush_space(v, generation, start, end);
		return;
	}
	lock_take(&shared->spaces);
	index = pool_find(cr3);
	lock_release(&shared->spaces);
	if (index < 0)
		return;
	if ((u32)index == self.index)
		tlb_flush(v, start, end);
	else
		flush_elsewhere(v, (u32)index);
}
