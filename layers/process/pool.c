// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Address-space processes as a cache of spaces, keyed by CR3. */
#include "calls.h"
#include "host.h"
#include "mmu.h"
#include "pool.h"

/* Free processes that are looked at more closely for a new space. */
#define LOOKS 16

static bool is_space(u32 index, u64 cr3)
{
	struct proc *p = proc_at(index);

	return p->s.state == VMI_PH_PROC_SPACE && p->s.cr3 == cr3;
}

static u16 *hint_for(u64 cr3)
{
	return &shared->hints[cr3 >> 12 & (ARRAY_SIZE(shared->hints) - 1)];
}

s64 pool_find(u64 cr3)
{
	u32 i, hint = *hint_for(cr3), count = READ_ONCE(shared->s.proc_count);

	if (count > VMI_PH_MAX_PROCS)
		count = VMI_PH_MAX_PROCS;
	if (hint && hint <= count && is_space(hint - 1, cr3))
		return hint - 1;
	for (i = 0; i < count; i++)
		if (is_space(i, cr3))
			return i;
	return -1;
}

/* Has this process, which is free, mapped a long piece of what is in these tables? */
static bool has_some_of(const struct proc *p, u64 cr3)
{
	u64 va = READ_ONCE(p->text_va);
	struct walk w;

	return va && walk_tables(cr3, va, &w, false) && w.gpa == READ_ONCE(p->text_gpa);
}

/*
 * A process for a new space: a free one, best one that has some of it already (tlb_take_over), at worst one where that has been of use before
 * to others; or the one that has not been loaded for the longest time.
 */
static s64 claim(u64 cr3)
{
	u32 i, count = READ_ONCE(shared->s.proc_count), available = 0, looks = 0;
	s64 best = -1, any = -1, similar = -1;
	u64 oldest = U64_MAX;

	if (count > VMI_PH_MAX_PROCS)
		count = VMI_PH_MAX_PROCS;
	for (i = 0; i < count; i++) {
		struct proc *p = proc_at(i);

		if (p->loaded)
			continue;
		if (p->s.state == VMI_PH_PROC_FREE) {
			available++;
			if (any < 0 || (proc_at((u32)any)->took_over && !p->took_over))
				any = i;
			if (similar < 0 && looks < LOOKS && p->text_va) {
				looks++;
				similar = has_some_of(p, cr3) ? (s64)i : -1;
			}
		} else if (p->s.state == VMI_PH_PROC_SPACE && p->stamp < oldest) {
			oldest = p->stamp;
			best = i;
		}
	}
	if (available < 2 && shared->s.proc_wanted < count + 4 && count < shared->s.proc_limit) {
		shared->s.proc_wanted = count + 4;
		__atomic_fetch_add(&shared->s.doorbell, 1, __ATOMIC_SEQ_CST);
		futex_wake(&shared->s.doorbell, 1);
	}
	return similar >= 0 ? similar : any >= 0 ? any : best;
}

u32 pool_get(struct vcpu *v, u64 cr3)
{
	u64 bit = 1ULL << v->number;
	s64 index;
	struct proc *p;

	lock_take(&shared->spaces);
	for (;;) {
		index = pool_find(cr3);
		if (index >= 0)
			break;
		p = proc_at(v->s.proc);
		/* The process that the machine booted in has no space until the first load. */
		if (p->s.state == VMI_PH_PROC_FREE && p->loaded == bit)
			index = v->s.proc;
		else
			index = claim(cr3);
		if (index >= 0) {
			p = proc_at((u32)index);
			p->s.state = VMI_PH_PROC_SPACE;
			p->s.cr3 = cr3;
			p->reset++;
			*hint_for(cr3) = (u16)(index + 1);
			break;
		}
		/* Every process is loaded on some vCPU that is just leaving it. */
		lock_release(&shared->spaces);
		host0(sched_yield);
		lock_take(&shared->spaces);
	}
	proc_at(v->s.proc)->loaded &= ~bit;
	p = proc_at((u32)index);
	p->loaded |= bit;
	p->resting = 0;
	p->stamp = ++shared->stamp;
	lock_release(&shared->spaces);
	return (u32)index;
}
