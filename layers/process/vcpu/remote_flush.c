// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Flushes what other vCPUs have loaded: a space, or the kernel's range in all spaces. */
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

/* A process whose flush was requested. */
struct request {
	u32 index, wanted;
	u64 asked;		/* vCPUs, a bit for each */
};

/*
 * Requests a flush of a process that has the space loaded on other vCPUs only. Any of its threads
 * can do it: each that is an owner gets the request, and the first that checks does it for all. A
 * vCPU that leaves the process in between need not, and one that enters it does the flush by
 * itself: see host/doorbell.h.
 */
static struct request request_flush(u32 index)
{
	struct proc *p = proc_at(index);

	return (struct request){
		.index = index,
		.wanted = __atomic_add_fetch(&p->flush_wanted, 1, __ATOMIC_SEQ_CST),
	};
}

/* Whether the flush is done, or no longer necessary. Asks those that were not asked yet. */
static bool ask_owners(struct request *r, u32 *done)
{
	struct proc *p = proc_at(r->index);
	u64 loaded;
	u32 i;

	step();
	*done = __atomic_load_n(&p->flush_done, __ATOMIC_SEQ_CST);
	loaded = __atomic_load_n(&p->loaded, __ATOMIC_SEQ_CST);
	if ((s32)(*done - r->wanted) >= 0 || !loaded)
		return true;
	for (i = 0; i < PHV_MAX_VCPUS; i++)
		if (loaded & ~r->asked & 1ULL << i)
			irq_notify(vcpu_at(i), PHV_PENDING_FLUSH);
	r->asked |= loaded;
	return false;
}

/*
 * If no owner has a processor, this vCPU's own thread there does the flush. It gets the processor
 * that this one leaves. That takes two thread switches, and the signals to the others mostly less.
 */
static void await_flush(struct vcpu *v, struct request *r)
{
	u64 wait = PATIENCE;
	u32 done;

	while (!ask_owners(r, &done)) {
		/* A vCPU that is asked may itself be waiting here, for this process. */
		irq_serve_flush(v);
		mm_serve_flushes(v);
		if (futex_wait(&proc_at(r->index)->flush_done, done, now_ns() + wait) !=
		    -HOST_ETIMEDOUT ||
		    FAULT(FLUSH_WAITS_FOR_OWNERS) || FAULT(FLUSH_KERNEL_WAITS))
			continue;
		wake_if_free(v, r->index, WAKE_FLUSH);
		wait = AGAIN;
	}
}

static void flush_elsewhere(struct vcpu *v, u32 index)
{
	struct request r;

	__atomic_fetch_add(&proc_at(index)->user_wanted, 1, __ATOMIC_SEQ_CST);
	r = request_flush(index);
	await_flush(v, &r);
}

/* The next process after index that is loaded, but not this one; the first one for -1. */
static s64 next_loaded(s64 index)
{
	u32 count = READ_ONCE(shared->s.proc_count);

	while (++index < count && index < PHV_MAX_PROCS)
		if (index != self.index &&
		    __atomic_load_n(&proc_at((u32)index)->loaded, __ATOMIC_SEQ_CST))
			return index;
	return -1;
}

/*
 * A process that no vCPU has loaded compares the kernel's range when one loads it: its generation
 * is old (mm_sync). All others are asked before the first is waited for. The second loop may see
 * later requests, too, whose owners were asked by others; a call has no room to remember all.
 */
void kernel_flush(struct vcpu *v, u64 start, u64 end)
{
	struct request r;
	u32 done;
	s64 i;

	/* Counts the generation up, with a full barrier: W1 and W2 of host/doorbell.h. */
	tlb_flush_kernel(v, start, end);
	if (FAULT(FLUSH_KERNEL_HERE))
		return;
	for (i = next_loaded(-1); i >= 0; i = next_loaded(i)) {
		r = request_flush((u32)i);
		ask_owners(&r, &done);
	}
	for (i = next_loaded(-1); i >= 0; i = next_loaded(i)) {
		r.index = (u32)i;
		r.wanted = __atomic_load_n(&proc_at(r.index)->flush_wanted, __ATOMIC_SEQ_CST);
		r.asked = U64_MAX;
		await_flush(v, &r);
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
