// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Flushes: compare the shadow with the guest's tables and keep what still agrees.
 *
 * A flush costs one munmap or mprotect for each run that changed, and no host call if nothing did.
 */
#include "mm/flush.h"
#include "common/faults.h"
#include "host/call.h"
#include "host/fatal.h"
#include "host/lock.h"
#include "host/step.h"
#include "mm/fill.h"
#include "mm/shadow.h"
#include "mm/walk.h"
#include "state/cpu.h"
#include "state/state.h"

/*
 * Above this the count of mappings is most probably too high. space_release() drops more than that.
 */
#define MAPPINGS_RECOUNT 128
#define COMMON_LOOKS 12
/*
 * Runs of replaced pages that a process maps for its next space, instead of unmapping them for a
 * later fill to map: those that fork has copied, and some more. More may never be used.
 */
#define REPLACED_RUNS 16
/* What mprotect can change of a mapping. */
#define RIGHTS (SHADOW_WRITE | SHADOW_EXEC)

/* A run of pages with the same fate, so that one host call serves them all. */
struct run {
	u64 start, end;
	u64 protect;	/* rights that they get; 0: none of that */
	u64 word;	/* 0: they are unmapped; or the shadow entry of the first, all are mapped */
	u64 reach;	/* after end: the host call may extend to here without harm */
	u32 left;	/* runs of replaced pages that may be mapped */
};

/* False: everything was dropped, which agrees with any tables. */
static bool run_end(struct run *r)
{
	u64 start = r->start, end = r->end, word = r->word;
	s64 result;

	if (start == end)
		return true;
	r->start = r->end = r->word = 0;
	step();
	if (word)
		return FAULT(REPLACED_STAYS) || tlb_map_run(start, end - start, word);
	if (!r->protect)
		return shadow_unmap(start, end);
	if (!shadow_maps_room())
		return false;
	/* The pages of a run have equal rights. */
	result = host3(mprotect, start, end - start, r->protect);
	if (result == -HOST_ENOMEM) {
		shadow_drop_all();
		return false;
	}
	if (result)
		fatal("process: mprotect failed at", start);
	shadow_count_mappings(start, 2);
	return true;
}

/* Whether permanent mappings lie between two shadow entries. */
static bool apart(u64 a, u64 b)
{
	return (a < PHV_HOLE_END && b >= PHV_HOLE_END) ||
	       (a < shared->direct_map_end && b >= shared->direct_map_end);
}

/* Nothing is mapped between two consecutive shadow entries, so a range to unmap may have gaps. */
static bool run_add(struct run *r, u64 va, u64 size, u64 protect)
{
	if (r->start != r->end &&
	    (r->word || r->protect != protect ||
	     (protect ? r->reach != va : apart(r->start, va))) &&
	    !run_end(r))
		return false;
	if (r->start == r->end)
		r->start = va;
	r->end = r->reach = va + size;
	r->protect = protect;
	return true;
}

/* Another page takes the place of one. word: its shadow entry. */
static bool run_replace(struct run *r, u64 va, u64 word)
{
	if (r->start != r->end && r->word && r->end == va && word == r->word + (va - r->start) &&
	    region_of(word & PTE_ADDR) == region_of(r->word & PTE_ADDR)) {
		r->end += PAGE_SIZE;
		return true;
	}
	if (!run_end(r))
		return false;
	*r = (struct run){ .start = va, .end = va + PAGE_SIZE, .word = word, .left = r->left - 1 };
	return true;
}

/* A page stays as it is. The run ends, unless its host call would leave this page as it is. */
static bool run_keep(struct run *r, u64 va, u64 size, u64 have)
{
	if (r->start != r->end && r->protect == PROT_READ && r->reach == va &&
	    have == (SHADOW_PRESENT | SHADOW_USER)) {
		r->reach = va + size;
		return true;
	}
	return run_end(r);
}

/*
 * The pages of 2 MiB share the tables above them, and most often a leaf table: what one walk found
 * serves the next.
 */
struct leaves {
	u64 root;	/* of the space */
	u64 base;
	u64 *table;	/* NULL: unknown */
	struct walk above;
};

static bool walk_leaf(u64 va, struct walk *w, struct leaves *l)
{
	if (!l->table || l->base != (va & LARGE_MASK)) {
		bool found = walk_space(l->root, va, w, false);

		l->base = va & LARGE_MASK;
		l->table = found && w->span == PAGE_SIZE ? w->entry - (va >> 12 & 511) : NULL;
		l->above = *w;
		return found;
	}
	w->entry = l->table + (va >> 12 & 511);
	w->pte = READ_ONCE(*w->entry);
	w->span = PAGE_SIZE;
	w->gpa = w->pte & PTE_ADDR;
	w->writable = l->above.above_writable && (w->pte & PTE_W);
	w->user = l->above.above_user && (w->pte & PTE_U);
	w->executable = l->above.above_executable && !(w->pte & PTE_NX);
	return (w->pte & PTE_P) != 0;
}

/* Whether a space may use a page that a walk has found: one that a fill would map in a run. */
static bool usable(const struct walk *w)
{
	return w->span == PAGE_SIZE && w->user && w->gpa < shared->ram_size;
}

/* Compares one shadow entry with the guest's tables. False: see run_end(). */
static bool flush_word(u64 va, u64 size, u64 *word, struct run *r, struct leaves *l)
{
	struct walk w;
	u64 have = *word, want, gpa = have & PTE_ADDR;
	bool used, same;

	used = walk_leaf(va, &w, l) && (w.pte & PTE_A);
	same = used && w.gpa == gpa && w.span >= size;
	want = same ? shadow_flags(&w) : 0;
	/* Writes to device registers must keep faulting (tlb_fill_device). */
	if (gpa >= shared->ram_size)
		want &= ~SHADOW_WRITE;
	have &= SHADOW_PRESENT | SHADOW_WRITE | SHADOW_EXEC | SHADOW_USER;
	/*
	 * Only a part of a larger guest page stays: a flush of any of its addresses is a flush of
	 * all of it.
	 */
	if (same && w.span > size && w.span > shadow_widest)
		shadow_widest = w.span;
	/*
	 * Write permission changed, either way, or a right was taken from an executable page: a
	 * just-in-time compiler makes its code writable and executable by turns. An executable page
	 * that only gains rights is left to faults: most such pages are never used.
	 */
	if (same && (((have ^ want) == SHADOW_WRITE && !(have & SHADOW_EXEC)) ||
		     ((have & ~want) && !((have ^ want) & ~RIGHTS)))) {
		*word ^= have ^ want;
		return run_add(r, va, size, shadow_protection(want));
	}
	if (same && (have & ~want) == 0 && !((have ^ want) & SHADOW_USER))
		return run_keep(r, va, size, have);
	if (r->left && used && size == PAGE_SIZE && !kernel_address(va) && usable(&w)) {
		*word = w.gpa | shadow_flags(&w);
		return run_replace(r, va, *word);
	}
	if (size == LARGE_SIZE)
		shadow_count_large(va, -1);
	*word = 0;
	return run_add(r, va, size, 0);
}

/*
 * Most entries are unchanged, and lie in a row from *va on. Moves *va to the last of them, or
 * leaves it.
 */
static void skip_unchanged(u64 *va, u64 end, const u64 *word, const struct leaves *l)
{
	const u64 *pte = l->table + (*va >> 12 & 511);
	u64 more = (LARGE_SIZE - (*va & (LARGE_SIZE - 1))) / PAGE_SIZE, i;

	more = more < (end - *va) / PAGE_SIZE ? more : (end - *va) / PAGE_SIZE;
	for (i = 1; i < more; i++)
		if (!shadow_agrees(word[i], READ_ONCE(pte[i]), &l->above))
			break;
	*va += (i - 1) * PAGE_SIZE;
}

/* replaced: how many runs of replaced pages may be mapped. The others are unmapped. */
static void flush_range(u64 root, u64 start, u64 end, u32 replaced)
{
	struct leaves leaves = { .root = root };
	struct run r = { .left = replaced };
	u64 va = start & ~(shadow_widest - 1), size, *word;
	struct shadow_leaf leaf = { 0 };

	end = (end + shadow_widest - 1) & ~(shadow_widest - 1);
	for (; (word = shadow_next(&va, end, &size, &leaf)); va += size) {
		if (!flush_word(va, size, word, &r, &leaves))
			goto done;
		if (r.start == r.end && size == PAGE_SIZE && leaves.table &&
		    leaves.base == (va & LARGE_MASK))
			skip_unchanged(&va, end, word, &leaves);
	}
	run_end(&r);
done:
	/* Not earlier: on the way to user mode it is read without the lock (tlb_kernel_done). */
	if (start <= PHV_USER_START && end >= user_end())
		__atomic_store_n(&self.proc->needs_resync, 0, __ATOMIC_RELEASE);
}

void tlb_flush_held(struct vcpu *v, u64 start, u64 end)
{
	flush_range(v->cr3, start, end, 0);
}

void tlb_flush(struct vcpu *v, u64 start, u64 end)
{
	step();
	lock_take(&self.proc->lock);
	step();
	tlb_flush_held(v, start, end > PHV_KERNEL_END ? PHV_KERNEL_END : end);
	lock_release(&self.proc->lock);
	v->s.flushes++;
}

void tlb_flush_space(struct vcpu *v, u64 generation, u64 start, u64 end)
{
	struct proc *p = self.proc;

	lock_take(&p->lock);
	step();
	if (!generation || generation > p->s.generation) {
		/*
		 * Flushes that this process has not seen lie between its generation and this one,
		 * unless it is the next.
		 */
		if (p->s.generation && generation == p->s.generation + 1)
			tlb_flush_held(v, start, end > user_end() ? user_end() : end);
		else
			tlb_flush_user(v);
		p->s.generation = generation;
	}
	lock_release(&p->lock);
	v->s.flushes++;
}

void tlb_flush_kernel(struct vcpu *v, u64 start, u64 end)
{
	struct proc *p = self.proc;
	u64 now = __atomic_add_fetch(&shared->kernel_generation, 1, __ATOMIC_SEQ_CST);

	lock_take(&p->lock);
	step();
	tlb_flush_held(v, start, end > PHV_KERNEL_END ? PHV_KERNEL_END : end);
	/* Other flushes that came in between concerned other addresses. */
	if (p->kernel_generation + 1 == now || (start <= PHV_HOLE_START && end >= PHV_KERNEL_END))
		p->kernel_generation = now;
	lock_release(&p->lock);
	v->s.flushes++;
}

void tlb_flush_user(struct vcpu *v)
{
	tlb_flush_root(v->cr3);
	v->s.resyncs++;
}

void tlb_flush_root(u64 root)
{
	flush_range(root, PHV_USER_START, user_end(), 0);
	self.proc->aged = rdtsc_rough();
}

/* Flushes user addresses for a space that this process did not have. */
static void flush_for_new_space(struct vcpu *v)
{
	flush_range(v->cr3, PHV_USER_START, user_end(),
		    heuristic(PHV_FLAG_NO_REPLACING) ? REPLACED_RUNS : 0);
	self.proc->aged = rdtsc_rough();
	v->s.resyncs++;
}

/*
 * Whether anything that is mapped is also in the tables, judged by a few samples. One for each 2
 * MiB will do, since what belongs together lies together.
 */
static bool common(struct vcpu *v)
{
	u64 va = PHV_USER_START, size, *word;
	struct shadow_leaf leaf;
	struct walk w;
	u32 looks;

	for (looks = 0; looks < COMMON_LOOKS; looks++) {
		leaf = (struct shadow_leaf){ 0 };
		word = shadow_next(&va, user_end(), &size, &leaf);
		if (!word)
			break;
		/* The kernel's range is the same in all spaces. */
		if (kernel_address(va)) {
			va = PHV_HOLE_END;
			continue;
		}
		if (walk_guest(v, va, &w, false) && (w.pte & PTE_A) && w.gpa == (*word & PTE_ADDR))
			return true;
		va = (va & LARGE_MASK) + LARGE_SIZE;
	}
	return false;
}

/*
 * What a new space may keep for a while: pages that the kernel neither reads nor expects to be
 * writable.
 */
static bool kept_at_first(u64 va, u64 size, u64 word)
{
	return va + size <= VMI_EXPECT_END && size == PAGE_SIZE && (word & SHADOW_USER) &&
	       !(word & SHADOW_WRITE);
}

/* Whether there are such pages. A program at a random address has none. */
static bool any_kept_at_first(void)
{
	u64 va = PHV_USER_START, size, *word;
	struct shadow_leaf leaf = { 0 };

	for (; (word = shadow_next(&va, VMI_EXPECT_END, &size, &leaf)); va += size)
		if (kept_at_first(va, size, *word))
			return true;
	return false;
}

/* Drops everything else, for mmu.expect_space. */
static void keep_expected(struct vcpu *v)
{
	u64 va = PHV_USER_START, size, *word;
	struct shadow_leaf leaf = { 0 };
	struct run r = { 0 };

	for (; (word = shadow_next(&va, user_end(), &size, &leaf)); va += size) {
		bool keeps = kept_at_first(va, size, *word);

		/* Most often the text's pages, in a row. */
		for (; keeps && (va + size) & (LARGE_SIZE - 1) &&
		     kept_at_first(va + size, size, word[1]); va += size)
			word++;
		if (kernel_address(va) || keeps) {
			if (!run_end(&r))
				return;
			continue;
		}
		if (size == LARGE_SIZE)
			shadow_count_large(va, -1);
		*word = 0;
		if (!run_add(&r, va, size, 0))
			return;
	}
	if (!run_end(&r))
		return;
	self.proc->needs_resync = 1;
	/* The first comparison makes no sense before the tables are filled (tlb_age). */
	self.proc->aged = rdtsc_rough();
	force(v, FORCE_PAGES);
}

void tlb_take_over(struct vcpu *v)
{
	struct proc *p = self.proc;
	bool expected = p->expected;
	const u64 *text;

	p->expected = 0;
	p->needs_resync = 0;
	/* Host tables that became empty are counted until everything is dropped. */
	if (p->user_mappings > KEEP_MAPPINGS || p->user_tables > KEEP_TABLES ||
	    !(expected ? any_kept_at_first() : heuristic(PHV_FLAG_NO_KEEPING) && common(v))) {
		tlb_drop_user();
		return;
	}
	if (expected)
		keep_expected(v);
	else if (!FAULT(TAKES_ALL_OVER))
		flush_for_new_space(v);
	text = shadow_word(p->text_va, PAGE_SIZE, false);
	if (!text || (*text & PTE_ADDR) != p->text_gpa)
		p->text_va = 0;
	if (p->user_mappings > MAPPINGS_RECOUNT)
		shadow_recount_user();
}

void tlb_flush_kernel_all(u64 root)
{
	flush_range(root, PHV_HOLE_START, PHV_IMAGE_START, 0);
	flush_range(root, user_end(), PHV_KERNEL_END, 0);
}

void tlb_age(struct vcpu *v, u64 now)
{
	struct proc *p = self.proc;

	/* The counter of another host CPU may have been ahead of this one. */
	if ((s64)(now - READ_ONCE(p->aged)) < (s64)shared->s.clock.tsc_hz ||
	    !heuristic(PHV_FLAG_NO_AGING))
		return;
	lock_take(&p->lock);
	if ((s64)(now - p->aged) >= (s64)shared->s.clock.tsc_hz)
		tlb_flush_user(v);
	lock_release(&p->lock);
}
