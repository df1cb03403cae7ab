// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Brings the mappings of a process up to date with its space. */
#include "mm/sync.h"
#include "common/faults.h"
#include "host/futex.h"
#include "host/lock.h"
#include "mm/flush.h"
#include "mm/shadow.h"
#include "state/state.h"

/*
 * Whether there is nothing to do, judged by reads alone: this thread has the space loaded, so the
 * process cannot be assigned to another space meanwhile.
 */
static bool synchronised(const struct vcpu *v)
{
	const struct proc *p = self.proc;

	return (!READ_ONCE(p->needs_resync) || FAULT(EXPECTED_IS_SYNCHRONISED)) && v->context &&
	       v->generation &&
	       READ_ONCE(p->reset) == READ_ONCE(p->reset_done) &&
	       READ_ONCE(p->flush_done) == READ_ONCE(p->flush_wanted) &&
	       READ_ONCE(p->s.context) == v->context &&
	       READ_ONCE(p->s.generation) == v->generation &&
	       READ_ONCE(p->kernel_generation) == READ_ONCE(shared->kernel_generation);
}

/*
 * Tells the vCPUs that wait for these flushes: everything was compared or dropped after they asked.
 */
static void flush_done(struct proc *p, u32 wanted)
{
	if (p->flush_done == wanted)
		return;
	__atomic_store_n(&p->flush_done, wanted, __ATOMIC_SEQ_CST);
	futex_wake(&p->flush_done, PHV_MAX_VCPUS);
}

/* Makes this process's mappings agree with the vCPU's space at its generation. */
void mm_sync(struct vcpu *v)
{
	struct proc *p = self.proc;
	u32 wanted, reset;
	u64 kernel;

	if (synchronised(v))
		return;
	lock_take(&p->lock);
	/* Read before the tables: a later change counts one more. */
	kernel = READ_ONCE(shared->kernel_generation);
	wanted = __atomic_load_n(&p->flush_wanted, __ATOMIC_SEQ_CST);
	reset = READ_ONCE(p->reset);
	if (reset != p->reset_done || !v->context || p->s.context != v->context) {
		tlb_take_over(v);
	} else if (p->needs_resync || !v->generation || p->s.generation != v->generation ||
		   p->flush_done != wanted) {
		tlb_flush_user(v);
	}
	if (p->kernel_generation != kernel)
		tlb_flush_kernel_all(v);
	flush_done(p, wanted);
	p->reset_done = reset;
	p->s.context = v->context;
	p->s.generation = v->generation;
	p->kernel_generation = kernel;
	lock_release(&p->lock);
}

void mm_serve_flushes(struct vcpu *v)
{
	struct proc *p = self.proc;
	u32 wanted;

	if (READ_ONCE(p->flush_done) == READ_ONCE(p->flush_wanted))
		return;
	lock_take(&p->lock);
	wanted = __atomic_load_n(&p->flush_wanted, __ATOMIC_SEQ_CST);
	if (p->flush_done != wanted)
		tlb_flush_user(v);
	flush_done(p, wanted);
	lock_release(&p->lock);
}

void mm_serve_flushes_parked(void)
{
	struct proc *p = self.proc;
	u32 wanted;

	lock_take(&p->lock);
	/* The space that a flush is for was assigned before the flush was requested. */
	wanted = __atomic_load_n(&p->flush_wanted, __ATOMIC_SEQ_CST);
	/*
	 * The process may lose its space meanwhile. Whoever loads the next one compares or drops
	 * everything, and needs the lock for that (mm_sync).
	 */
	if (p->flush_done != wanted && READ_ONCE(p->s.state) == PHV_PROC_SPACE)
		tlb_flush_root(READ_ONCE(p->s.cr3));
	flush_done(p, wanted);
	lock_release(&p->lock);
}

void mm_drop_released(void)
{
	struct proc *p = self.proc;

	lock_take(&p->lock);
	/* Unless another thread was faster. */
	if (READ_ONCE(p->reset) != p->reset_done)
		tlb_drop_user();
	lock_release(&p->lock);
}
