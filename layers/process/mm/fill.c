// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Fills: host mappings as the TLB of a space. Flushes are in flush.c, the shadow of what is mapped
 * in shadow.c.
 *
 * The process's lock is held over a whole fill (read the guest's entry, map) and a whole flush
 * (compare, unmap), so no fill maps an old entry after a flush of it has finished. Only threads of
 * this process take the lock, and none takes it in a signal that interrupted the layer.
 *
 * A fill costs one mmap, or two host calls for a large page.
 */
#include "mm/fill.h"
#include "common/faults.h"
#include "host/call.h"
#include "host/fatal.h"
#include "host/lock.h"
#include "host/step.h"
#include "mm/flush.h"
#include "mm/shadow.h"
#include "mm/walk.h"
#include "state/state.h"

/* The pages around a fault that it may map. */
#define WINDOW 16
/* Those that are not written to, which are most often program text. */
#define WINDOW_FILE 128
/* Further mappings that one fault may make. */
#define AROUND 2
/* Runs of fewer pages than SHORT that one mmu.fill maps: at most SHORT_MOST of them. */
#define SHORT 4
#define SHORT_MOST 8
/*
 * Longer read-only runs are not populated: the host makes their tables on use, 16 pages at a time,
 * for what 8 pages cost here. It would fault in written pages one by one.
 */
#define POPULATE_MOST 8

/* Removes a 2 MiB shadow entry that is in the way of one for 4 KiB. */
static void split_large(u64 va)
{
	u64 *large = shadow_word(va, LARGE_SIZE, false);

	if (large && (*large & SHADOW_LARGE)) {
		shadow_count_large(va, -1);
		*large = 0;
		shadow_unmap(va & LARGE_MASK, (va & LARGE_MASK) + LARGE_SIZE);
	}
}

/* The monitor wrote the table, and the layer trusts it. */
u32 region_of(u64 gpa)
{
	u32 i, count = shared->s.region_count;

	for (i = 0; i < count && i < PHV_MAX_REGIONS; i++)
		if (gpa - shared->s.regions[i].gpa < shared->s.regions[i].size)
			return i;
	fatal("process: no RAM region for", gpa);
}

/*
 * Maps over what is there, all of it from one region. replaces: something may be there, so the host
 * may have to split a mapping in two places. If the host has no more mappings to give, everything
 * else is dropped first: shadow entries must be looked up again. False: that happened.
 */
static bool map_file(u64 va, u64 size, u64 prot, bool populate, u32 file, u64 offset, bool replaces)
{
	u32 tries;
	s64 r;

	for (tries = 0;; tries++) {
		r = host6(mmap, va, size, prot,
			  MAP_SHARED | MAP_FIXED | (populate ? MAP_POPULATE : 0),
			  PHV_FD_RAM + file, offset);
		if (r == (s64)va)
			break;
		if (r != -HOST_ENOMEM || tries)
			fatal("process: mmap failed at", va);
		shadow_drop_all();
	}
	shadow_mapped(va, replaces);
	return !tries;
}

static bool map(u64 va, u64 size, u64 gpa, u64 flags, bool populate, bool replaces)
{
	u32 region = region_of(gpa);

	return map_file(va, size, shadow_protection(flags), populate, region,
			gpa - shared->s.regions[region].gpa, replaces);
}

bool tlb_map_run(u64 va, u64 size, u64 word)
{
	if (!shadow_maps_room())
		return false;
	if (map(va, size, word & PTE_ADDR, word & ~PTE_ADDR, true, true))
		return true;
	shadow_set_run(va, (u32)(size / PAGE_SIZE), word);
	return false;
}

/* The bytes around an address that a fault may map, a power of 2. */
static u64 window(u64 pages)
{
	return (heuristic(PHV_FLAG_NO_AROUND) ? pages : 1) * PAGE_SIZE;
}

static void fill_large(struct vcpu *v, u64 va, const struct walk *w)
{
	u64 start = va & LARGE_MASK, gpa = w->gpa & LARGE_MASK, flags = shadow_flags(w);
	u64 near = va & ~(window(WINDOW) - 1);
	u64 *large = shadow_word(va, LARGE_SIZE, true);

	if (!large || shadow_tables_full())
		shadow_drop_all();
	map(start, LARGE_SIZE, gpa, flags, false, true);
	/*
	 * Where RAM has no huge pages, the host faults in the remainder by itself, without a
	 * signal.
	 */
	host3(madvise, near, window(WINDOW),
	      flags & SHADOW_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	large = shadow_word(va, LARGE_SIZE, true);
	if (!(*large & SHADOW_LARGE))
		shadow_count_large(va, 1);
	*large = gpa | flags | SHADOW_LARGE;
	v->s.fills += window(WINDOW) / PAGE_SIZE;
}

/*
 * Maps a run of pages around va with one mapping: entries of the same table between start and end
 * that are contiguous in one region and equal in all rights, and have the accessed bit, since a
 * page that was never touched must not get it. A user-range page that only the kernel may see is
 * mapped alone, because it is remembered alone (remember_supervisor). Nothing is mapped if the run
 * has fewer than least pages. Returns the run's end.
 */
static u64 fill_small(struct vcpu *v, u64 va, const struct walk *w, u64 start, u64 end, u64 least)
{
	u64 index = va >> 12 & 511, table_va = va & LARGE_MASK;
	u64 low = index, high = index + 1, flags = shadow_flags(w),
		same = PTE_P | PTE_W | PTE_U | PTE_A | PTE_NX;
	u64 *table = w->entry - index, *words;
	bool replaces;

	start = start < PHV_USER_START ? PHV_USER_START : start;
	same |= w->writable ? PTE_D : 0;
	va &= PAGE_MASK;
	split_large(va);
	words = shadow_word(va, PAGE_SIZE, true);
	if (!words) {
		shadow_drop_all();
		words = shadow_word(va, PAGE_SIZE, true);
	}
	replaces = *words != 0;
	if (w->span == PAGE_SIZE && (w->user || kernel_address(va))) {
		const struct phv_region *region = &shared->s.regions[region_of(w->gpa)];
		u64 pte = w->pte & (PTE_ADDR | same), before = (w->gpa - region->gpa) / PAGE_SIZE;
		u64 behind = (region->size + region->gpa - w->gpa) / PAGE_SIZE;
		u64 first = start > table_va ? (start - table_va) / PAGE_SIZE : 0;
		u64 last = end - table_va < LARGE_SIZE ? (end - table_va) / PAGE_SIZE : 512;

		first = index - first > before ? index - before : first;
		last = last - index > behind ? index + behind : last;
		/*
		 * The run ends where pages are already mapped that way: a growing run must not map
		 * them again with each page.
		 */
		words -= index;
		while (low > first &&
		       words[low - 1] != (w->gpa | flags) - (index - low + 1) * PAGE_SIZE &&
		       (READ_ONCE(table[low - 1]) & (PTE_ADDR | same)) ==
		       pte - (index - low + 1) * PAGE_SIZE)
			replaces |= words[--low] != 0;
		while (high < last &&
		       words[high] != (w->gpa | flags) + (high - index) * PAGE_SIZE &&
		       (READ_ONCE(table[high]) & (PTE_ADDR | same)) ==
		       pte + (high - index) * PAGE_SIZE)
			replaces |= words[high++] != 0;
	}
	if (high - low < least)
		return table_va + high * PAGE_SIZE;
	map(va - (index - low) * PAGE_SIZE, (high - low) * PAGE_SIZE,
	    w->gpa - (index - low) * PAGE_SIZE,
	    flags, (flags & SHADOW_WRITE) || high - low <= POPULATE_MOST, replaces);
	if (high - low > POPULATE_MOST && !(flags & SHADOW_WRITE) && !kernel_address(va)) {
		self.proc->text_va = va;
		self.proc->text_gpa = w->gpa;
	}
	shadow_set_run(va - (index - low) * PAGE_SIZE, (u32)(high - low),
		       (w->gpa - (index - low) * PAGE_SIZE) | flags);
	v->s.fills += high - low;
	return table_va + high * PAGE_SIZE;
}

static u64 fill_window(struct vcpu *v, u64 va, const struct walk *w)
{
	u64 size = window(w->pte & PTE_D ? WINDOW : WINDOW_FILE), start = va & ~(size - 1);

	return fill_small(v, va, w, start, start + size, 1);
}

/* Maps one more page if it was in use before. */
static bool fill_near(struct vcpu *v, u64 va)
{
	struct walk w;
	u64 *word;

	if (va < PHV_USER_START || !walk_guest(v, va, &w, false) || w.span != PAGE_SIZE ||
	    !w.user ||
	    !(w.pte & PTE_A) || w.gpa >= shared->ram_size)
		return false;
	word = shadow_word(va, PAGE_SIZE, false);
	if (!word || *word)
		return false;
	fill_window(v, va, &w);
	return true;
}

/*
 * Neighbours that were in use before are likely to be used again, and mapping one costs half of
 * what a fault costs. Only the nearest are mapped, since the others may never be touched.
 */
static void fill_around(struct vcpu *v, u64 va)
{
	u64 size = window(WINDOW), start = va & ~(size - 1), distance;
	u32 more = 0;

	va &= PAGE_MASK;
	for (distance = PAGE_SIZE; distance < size && more < AROUND; distance += PAGE_SIZE) {
		if (va + distance < start + size)
			more += fill_near(v, va + distance);
		if (va - distance - start < size && more < AROUND)
			more += fill_near(v, va - distance);
	}
}

static void drop_supervisor(struct vcpu *v)
{
	struct thread *t = thread_of(v);
	u64 *word, va;

	while (t->supervisor_count) {
		va = t->supervisor[--t->supervisor_count];
		word = shadow_word(va, PAGE_SIZE, false);
		if (word && *word && !(*word & SHADOW_USER)) {
			*word = 0;
			shadow_unmap(va, va + PAGE_SIZE);
		}
	}
}

static void remember_supervisor(struct vcpu *v, u64 va)
{
	struct thread *t = thread_of(v);

	if (t->supervisor_count == ARRAY_SIZE(t->supervisor))
		drop_supervisor(v);
	t->supervisor[t->supervisor_count++] = va & PAGE_MASK;
	force(v, FORCE_PAGES);
}

static bool is_large(u64 va)
{
	const u64 *word = shadow_word(va, LARGE_SIZE, false);

	return word && (*word & SHADOW_LARGE);
}

static void fill(struct vcpu *v, u64 va, const struct walk *w, bool around)
{
	u64 large = w->gpa & LARGE_MASK;

	shadow_maps_room();
	/* The first 2 MiB are not all the guest's: its pages there are mapped one by one. */
	if (w->span >= LARGE_SIZE && large + LARGE_SIZE <= shared->ram_size && va >= LARGE_SIZE &&
	    (w->user || kernel_address(va)))
		fill_large(v, va, w);
	else
		fill_window(v, va, w);
	/* After the fill, which may have dropped everything. */
	if (w->span > LARGE_SIZE || (w->span == LARGE_SIZE && !is_large(va)))
		shadow_widest = w->span > shadow_widest ? w->span : shadow_widest;
	if (around && w->user && w->span == PAGE_SIZE)
		fill_around(v, va);
	if (!w->user && !kernel_address(va))
		remember_supervisor(v, va);
	if (kernel_address(va) && !(w->pte & PTE_G))
		WRITE_ONCE(shared->kernel_local, 1);
}

void tlb_fill_device(struct vcpu *v, u64 va, const struct walk *w)
{
	u64 *word;

	va &= PAGE_MASK;
	shadow_maps_room();
	split_large(va);
	word = shadow_word(va, PAGE_SIZE, true);
	if (!word) {
		shadow_drop_all();
		word = shadow_word(va, PAGE_SIZE, true);
	}
	/* Writes must fault, whatever the guest's entry says: device.c carries them out. */
	map_file(va, PAGE_SIZE, PROT_READ, true, shared->s.region_count,
		 w->gpa - shared->s.device_gpa, *word != 0);
	shadow_set_run(va, 1, w->gpa | SHADOW_PRESENT | (w->user ? SHADOW_USER : 0));
	v->s.fills++;
}

/* Addresses that are mapped permanently, or do not belong to the guest. Nothing is filled there. */
static bool fixed_address(u64 va)
{
	return va < PHV_USER_START || (va >= PHV_IMAGE_START && va < PHV_HOLE_END) ||
	       (va >= shared->direct_map && va < shared->direct_map_end) || va >= PHV_KERNEL_END;
}

#if FAULT(DEFER_FORGOTTEN)
u64 tlb_deferred_page = 1;
#endif

bool tlb_fault(struct vcpu *v, u64 va, u32 access, u64 *error)
{
	struct proc *p = self.proc;
	struct walk w;
	u64 updated;
	bool done = false;

#if FAULT(DEFER_FORGOTTEN)
	*error = access;
	if ((va & PAGE_MASK) == tlb_deferred_page)
		return false;
#endif
	/*
	 * Absent translations are not cached: nothing is mapped for them, and no flush has to wait
	 * for them. So this takes no lock. It writes nothing either, since it could be reading a
	 * table that was just freed.
	 */
	*error = access;
	if (va >= 0x800000000000ULL || !walk_guest(v, va, &w, false))
		return false;
	lock_take(&p->lock);
	for (;;) {
		*error = access;
		if (va >= 0x800000000000ULL || !walk_guest(v, va, &w, true))
			break;
		*error |= PF_PRESENT;
		if (((access & PF_USER) && !w.user) || ((access & PF_WRITE) && !w.writable) ||
		    ((access & PF_FETCH) && !w.executable))
			break;
		if (fixed_address(va) || w.gpa >= shared->ram_size) {
			*error |= PF_RESERVED;
			break;
		}
		step();
		updated = w.pte | PTE_A | (access & PF_WRITE ? PTE_D : 0);
		if (updated != w.pte &&
		    !__atomic_compare_exchange_n(w.entry, &w.pte, updated, false, __ATOMIC_SEQ_CST,
						 __ATOMIC_RELAXED))
			continue;
		w.pte = updated;
		step();
		fill(v, va, &w, !kernel_address(va));
		step();
		done = true;
		break;
	}
	lock_release(&p->lock);
	return done;
}

/*
 * Whether a page may be mapped ahead of its use and is not mapped as it should be. If not, *next is
 * where to go on, most often after more pages that need nothing.
 */
static bool fill_wanted(struct vcpu *v, u64 va, struct walk *w, u64 *next)
{
	u64 *word, *pte;

	*next = va + PAGE_SIZE;
	if (kernel_address(va) || fixed_address(va) || !walk_guest(v, va, w, true))
		return false;
	if (!w->user || !(w->pte & PTE_A) || w->gpa >= shared->ram_size)
		return false;
	word = shadow_word(va, PAGE_SIZE, false);
	if (!word || *word != (w->gpa | shadow_flags(w)))
		return true;
	if (w->span == PAGE_SIZE)
		for (pte = w->entry; *next & (LARGE_SIZE - 1); *next += PAGE_SIZE)
			if (!shadow_agrees(*++word, READ_ONCE(*++pte), w))
				break;
	return false;
}

/*
 * Maps many entries, of which any may be used: in runs as long as they come, and not too many short
 * ones.
 */
static void fill_pieces(struct vcpu *v, u64 va, u64 end)
{
	u32 short_ones = 0, short_most = heuristic(PHV_FLAG_NO_SHORT_RUNS) ? SHORT_MOST : 0;
	u64 start = va, behind;
	struct walk w;

	while (va < end) {
		if (!fill_wanted(v, va, &w, &behind)) {
			va = behind;
			continue;
		}
		if (w.span != PAGE_SIZE) {
			fill(v, va, &w, false);
			va += PAGE_SIZE;
			continue;
		}
		shadow_maps_room();
		behind = fill_small(v, va, &w, start, end,
				    short_ones < short_most || (w.pte & PTE_D) ? 1 : SHORT);
		short_ones += behind - va < SHORT * PAGE_SIZE;
		va = behind;
	}
}

void tlb_fill(struct vcpu *v, u64 va, u32 count)
{
	struct proc *p = self.proc;
	struct walk w;
	u64 *word, next;

	va &= PAGE_MASK;
	lock_take(&p->lock);
#if FAULT(FILL_BEYOND)
	/* All of a long run is as its first page. */
	if (count > 512) {
		if (walk_guest(v, va, &w, true))
			map(va, 513 * PAGE_SIZE, w.gpa, shadow_flags(&w), false, true);
		count = 0;
	}
#endif
	if (count > 1) {
		fill_pieces(v, va, va + (u64)count * PAGE_SIZE);
	} else if (fill_wanted(v, va, &w, &next)) {
		/*
		 * A single read-only page is most often program text, whose neighbours are wanted
		 * too, as at a fault.
		 */
		fill(v, va, &w, !(w.pte & PTE_D));
	} else {
		/* VMI_MMU_FILL_REPLACES also holds where there is nothing to map ahead. */
		word = shadow_word(va, PAGE_SIZE, false);
		if (word && *word && !FAULT(FILL_KEEPS))
			tlb_flush_held(v, va, va + PAGE_SIZE);
	}
	lock_release(&p->lock);
}

/* Both run on the way out of the layer, where this thread holds no lock. */
void tlb_drop_supervisor(struct vcpu *v)
{
	if (!thread_of(v)->supervisor_count)
		return;
	lock_take(&self.proc->lock);
	drop_supervisor(v);
	lock_release(&self.proc->lock);
}

void tlb_kernel_done(struct vcpu *v)
{
	struct proc *p = self.proc;

	tlb_drop_supervisor(v);
	if (!READ_ONCE(p->needs_resync) || FAULT(EXPECTED_NEVER_RESYNCED))
		return;
	lock_take(&p->lock);
	if (p->needs_resync)
		tlb_flush_user(v);
	lock_release(&p->lock);
}
