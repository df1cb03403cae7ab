// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The process pool: address-space processes as a cache of spaces, keyed by CR3. */
#include "vcpu/pool.h"
#include "host/call.h"
#include "host/doorbell.h"
#include "host/lock.h"
#include "mm/walk.h"
#include "state/state.h"

/* Free processes whose text is compared with a new space. */
#define LOOKS 16
/*
 * Free processes to keep ready: programs that fork and execute in turn each find their own again.
 */
#define FREE_LEAST 4

static bool is_space(u32 index, u64 cr3)
{
	struct proc *p = proc_at(index);

	return p->s.state == PHV_PROC_SPACE && p->s.cr3 == cr3;
}

/* Two spaces whose roots have the same low bits each have a guess. */
static u16 *guesses_for(u64 cr3)
{
	return shared->guesses[cr3 >> 12 & (ARRAY_SIZE(shared->guesses) - 1)];
}

static void remember(u64 cr3, u32 index)
{
	u16 *guesses = guesses_for(cr3);

	guesses[1] = guesses[0];
	guesses[0] = (u16)(index + 1);
}

s64 pool_find(u64 cr3)
{
	u32 i, guess, count = READ_ONCE(shared->s.proc_count);
	const u16 *guesses = guesses_for(cr3);

	if (count > PHV_MAX_PROCS)
		count = PHV_MAX_PROCS;
	for (i = 0; i < 2; i++) {
		guess = READ_ONCE(guesses[i]);
		if (guess && guess <= count && is_space(guess - 1, cr3))
			return guess - 1;
	}
	for (i = 0; i < count; i++) {
		if (!is_space(i, cr3))
			continue;
		remember(cr3, i);
		return i;
	}
	return -1;
}

/* Whether this free process has mapped a long run of what is in these tables. */
static bool has_some_of(const struct proc *p, u64 cr3)
{
	u64 va = READ_ONCE(p->text_va);
	struct walk w;

	return va && walk_tables(cr3, va, &w, false) && w.gpa == READ_ONCE(p->text_gpa);
}

/* How useful a free process is for a new space. */
enum use {
	USE_NONE,
	USE_EMPTY,	/* nothing that would be of use to any space */
	USE_SOME,	/* text that is in the tables; but a space with its exec hint may come */
	USE_TEXT,
	USE_HINT,
};

static enum use use_of(const struct proc *p, u64 cr3, u64 exec_hint, u32 *looks)
{
	if (exec_hint && p->exec_hint == exec_hint)
		return USE_HINT;
	if (!p->text_va)
		return USE_EMPTY;
	if (exec_hint || !*looks || !heuristic(PHV_FLAG_NO_TEXT_MATCH))
		return USE_NONE;
	--*looks;
	if (!has_some_of(p, cr3))
		return USE_NONE;
	return p->exec_hint ? USE_SOME : USE_TEXT;
}

/*
 * Picks a process for a new space: the free one that has most of it already (tlb_take_over), and
 * among equals the one that was not loaded for the longest time. Without free processes, it picks
 * one of the others by the same rule.
 */
static s64 claim(u64 cr3, u64 exec_hint)
{
	u32 least = heuristic(PHV_FLAG_NO_SPARES) ? FREE_LEAST : 1;
	u32 i, count = READ_ONCE(shared->s.proc_count), available = 0, looks = LOOKS;
	u64 oldest = U64_MAX, oldest_free = U64_MAX;
	s64 best = -1, best_free = -1;
	enum use most = USE_NONE;

	if (count > PHV_MAX_PROCS)
		count = PHV_MAX_PROCS;
	for (i = 0; i < count; i++) {
		struct proc *p = proc_at(i);

		if (p->loaded)
			continue;
		if (p->s.state == PHV_PROC_FREE) {
			enum use use = use_of(p, cr3, exec_hint, &looks);

			available++;
			if (best_free < 0 || use > most ||
			    (use == most && p->stamp < oldest_free)) {
				best_free = i;
				most = use;
				oldest_free = p->stamp;
			}
		} else if (p->s.state == PHV_PROC_SPACE && p->stamp < oldest) {
			oldest = p->stamp;
			best = i;
		}
	}
	if (available < least && shared->s.proc_wanted < count + least &&
	    count < shared->s.proc_limit) {
		shared->s.proc_wanted = count + least;
		doorbell_ring();
	}
	return best_free >= 0 ? best_free : best;
}

/* The exec hint that the kernel has given for a new space, or 0. */
static u64 hint_of(const struct vcpu *v, u64 cr3)
{
	return v->expected_cr3 == cr3 ? v->expected_hint : 0;
}

/* Assigns the process to a new space. */
static void assign(struct proc *p, u64 cr3, u64 exec_hint)
{
	p->expected = exec_hint && p->exec_hint == exec_hint;
	/* If the tables show that the new space is like the last one, its hint still holds. */
	if (exec_hint || !has_some_of(p, cr3))
		p->exec_hint = exec_hint;
	p->s.state = PHV_PROC_SPACE;
	p->s.cr3 = cr3;
	p->reset++;
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
		if (p->s.state == PHV_PROC_FREE && p->loaded == bit)
			index = v->s.proc;
		else
			index = claim(cr3, hint_of(v, cr3));
		if (index >= 0) {
			assign(proc_at((u32)index), cr3, hint_of(v, cr3));
			remember(cr3, (u32)index);
			break;
		}
		/* Every process is loaded on some vCPU that is about to leave it. */
		lock_release(&shared->spaces);
		host0(sched_yield);
		lock_take(&shared->spaces);
	}
	if (v->expected_cr3 == cr3)
		v->expected_hint = 0;
	proc_at(v->s.proc)->loaded &= ~bit;
	p = proc_at((u32)index);
	p->loaded |= bit;
	p->trimmed = 0;
	p->stamp = ++shared->stamp;
	lock_release(&shared->spaces);
	return (u32)index;
}
