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
 * process cannot be assigned to another space during the reads.
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
 * What others want flushed of a process. Read before the tables: a later change counts one more.
 * flush_wanted is the last that they count up and the first that is read here, so the other two
 * include whatever it includes.
 */
struct wanted {
	u32 flushes, user;
	u64 kernel;
};

static struct wanted wanted_of(const struct proc *p)
{
	struct wanted w;

	w.flushes = __atomic_load_n(&p->flush_wanted, __ATOMIC_SEQ_CST);
	w.user = __atomic_load_n(&p->user_wanted, __ATOMIC_SEQ_CST);
	w.kernel = __atomic_load_n(&shared->kernel_generation, __ATOMIC_SEQ_CST);
	return w;
}

/*
 * Notifies the vCPUs that wait for these flushes: everything was compared or dropped after they
 * asked.
 */
static void flush_done(struct proc *p, const struct wanted *w)
{
	p->user_done = w->user;
	p->kernel_generation = w->kernel;
	if (p->flush_done == w->flushes)
		return;
	__atomic_store_n(&p->flush_done, w->flushes, __ATOMIC_SEQ_CST);
	futex_wake(&p->flush_done, PHV_MAX_VCPUS);
}

/* Makes this process's mappings agree with the vCPU's space at its generation. */
void mm_sync(struct vcpu *v)
{
	struct proc *p = self.proc;
	struct wanted wanted;
	u32 reset;

	if (synchronised(v))
		return;
	lock_take(&p->lock);
	wanted = wanted_of(p);
	reset = READ_ONCE(p->reset);
	if (reset != p->reset_done || !v->context || p->s.context != v->context) {
		tlb_take_over(v);
	} else if (p->needs_resync || !v->generation || p->s.generation != v->generation ||
		   p->user_done != wanted.user) {
		tlb_flush_user(v);
	}
	if (p->kernel_generation != wanted.kernel)
		tlb_flush_kernel_all(v->cr3);
	flush_done(p, &wanted);
	p->reset_done = reset;
	p->s.context = v->context;
	p->s.generation = v->generation;
	lock_release(&p->lock);
}

void mm_serve_flushes(struct vcpu *v)
{
	struct proc *p = self.proc;
	struct wanted wanted;

	if (READ_ONCE(p->flush_done) == READ_ONCE(p->flush_wanted))
		return;
	lock_take(&p->lock);
	wanted = wanted_of(p);
	if (p->user_done != wanted.user)
		tlb_flush_user(v);
	if (p->kernel_generation != wanted.kernel)
		tlb_flush_kernel_all(v->cr3);
	flush_done(p, &wanted);
	lock_release(&p->lock);
}

void mm_serve_flushes_parked(void)
{
	struct proc *p = self.proc;
	struct wanted wanted;
	u64 root;

	lock_take(&p->lock);
	/* The space that a flush is for was assigned before the flush was requested. */
	wanted = wanted_of(p);
	if (p->flush_done == wanted.flushes)
		goto done;
	root = READ_ONCE(p->s.cr3);
	/*
	 * The process may lose its space here. A vCPU that loads the next one compares or drops
	 * everything, and needs the lock for that (mm_sync). A vCPU that has not loaded a space yet
	 * also has kernel mappings.
	 */
	if (READ_ONCE(p->s.state) != PHV_PROC_SPACE) {
		shadow_drop_all();
	} else {
		if (p->user_done != wanted.user)
			tlb_flush_root(root);
		if (p->kernel_generation != wanted.kernel)
			tlb_flush_kernel_all(root);
	}
	flush_done(p, &wanted);
done:
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
