// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Host mappings as the TLB of a space.
 *
 * The record of what is mapped is a radix tree of the same shape as the guest's tables, in this process's own
 * arena: one word for 4 KiB, or for 2 MiB. It exists so that a flush can compare and keep (tlb_resync), instead of dropping
 * everything. All of it is under the process's lock, held over a whole fill (read the guest's entry, map) and a
 * whole flush (compare, unmap): so a fill can never map an entry that a finished flush was about. Only threads of
 * this process take that lock, and none takes it in a signal that interrupted the layer.
 *
 * Cost in host calls: a fill is one mmap, or two for a large page; a flush is one munmap or mprotect for each run that
 * changed, none if nothing did.
 */
#include "device.h"
#include "host.h"
#include "mmu.h"

#define T_PRESENT 1ULL
#define T_WRITE 2ULL
#define T_EXEC 4ULL
#define T_USER 8ULL
#define T_LARGE 0x80ULL
#define ARENA_PAGES (VMI_PH_ARENA_SIZE / PAGE_SIZE)
#define CHUNK_PAGES (VMI_PH_POOL_CHUNK / PAGE_SIZE)
#define MOST_CHUNKS 124
#define MOST_PAGES (ARENA_PAGES + MOST_CHUNKS * CHUNK_PAGES)
/* Of the arena, beside the root. */
#define KERNEL_PAGES 64
#define USER_PAGES (ARENA_PAGES - 1 - KERNEL_PAGES)
#define WINDOW 16
/* Further mappings that one fault may make. */
#define AROUND 4
/* What a process has besides the guest's mappings, and what one fill may add. */
#define MAPS_RESERVE 200
/* Whatever the host says, so many are tried. */
#define MAPS_LEAST 64

#define HOST_ENOMEM 12

#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23

/*
 * The user range and the rest, since the former goes with each space and the latter outlives them. Page 0 of the arena
 * is the root, the user range's tables follow it, the kernel's come from the arena's end downwards; then both take from the pool.
 */
static struct half {
	u32 pages;	/* of the arena */
	u32 mappings;	/* share of proc.mappings */
	s32 large;	/* large pages: the host makes a table of small ones for each, which has no page of the arena beside it */
	bool anything;	/* is mapped */
	u32 chunk_count;
	u16 chunks[MOST_CHUNKS];	/* of the pool, where the arena's part is used up */
} halves[2];
/* Of the guest's pages that are mapped in smaller pieces, the size of the largest: a flush of any address of such a page is one of all. */
static u64 widest = PAGE_SIZE;
/* Of pages and large pages, what this process has added to shared->tables; of its mappings, to shared->mappings. */
static u32 tables_counted, maps_counted;

static struct half *half_of(u64 va)
{
	return &halves[va >= VMI_PH_USER_END];
}

static void count_mappings(u64 va, u32 more)
{
	half_of(va)->mappings += more;
	self.proc->user_mappings = halves[0].mappings;
	self.proc->s.mappings = halves[0].mappings + halves[1].mappings;
}

/*
 * The host's tables are memory that the monitor holds against a budget (watch.rs), which ends the machine. Before that comes
 * about for a guest that keeps to the rules, the process that wants more gives up what it has.
 */
static bool tables_full(void)
{
	u32 now = 1 + halves[0].pages + halves[1].pages + (u32)(halves[0].large + halves[1].large);
	u64 all;

	if (now >= tables_counted + 16 || now < tables_counted) {
		__atomic_fetch_add(&shared->tables, (s32)(now - tables_counted), __ATOMIC_RELAXED);
		tables_counted = now;
	}
	self.proc->user_tables = halves[0].pages + (u32)halves[0].large;
	all = READ_ONCE(shared->tables);
	return now >= MOST_PAGES || (now > 256 && all * PAGE_SIZE > (32ULL << 20) + shared->ram_size / 16);
}

/* The same for mappings: for the host each is a structure of its own. */
static bool machine_has_too_many(u32 now)
{
	if (now >= maps_counted + 64 || now < maps_counted) {
		__atomic_fetch_add(&shared->mappings, (s32)(now - maps_counted), __ATOMIC_RELAXED);
		maps_counted = now;
	}
	return now > VMI_PH_MAPS_SURE && READ_ONCE(shared->mappings) > shared->s.maps_all;
}

static bool chunk_take(struct half *h)
{
	u32 i, bit, count = shared->s.pool_chunks;

	for (i = 0; i < count / 64 && i < ARRAY_SIZE(shared->pool) && h->chunk_count < MOST_CHUNKS; i++) {
		u64 word = READ_ONCE(shared->pool[i]);

		while (~word) {
			bit = (u32)__builtin_ctzll(~word);
			word = __atomic_fetch_or(&shared->pool[i], 1ULL << bit, __ATOMIC_RELAXED);
			if (word >> bit & 1)
				continue;
			h->chunks[h->chunk_count++] = (u16)(i * 64 + bit);
			return true;
		}
	}
	return false;
}

static void chunks_give(struct half *h)
{
	while (h->chunk_count) {
		u32 chunk = h->chunks[--h->chunk_count];

		__atomic_fetch_and(&shared->pool[chunk / 64], ~(1ULL << (chunk & 63)), __ATOMIC_RELAXED);
	}
}

static u64 *root(void)
{
	return to_pointer(VMI_PH_ARENA);
}

static u64 *arena_page(struct half *h)
{
	u32 own = h == &halves[0] ? USER_PAGES : KERNEL_PAGES, n = h->pages;
	u64 *page, i;

	if (tables_full())
		return NULL;
	if (n < own)
		page = to_pointer(VMI_PH_ARENA + (h == &halves[0] ? 1 + n : ARENA_PAGES - 1 - n) * PAGE_SIZE);
	else if ((n - own) / CHUNK_PAGES < h->chunk_count || chunk_take(h))
		page = to_pointer(VMI_PH_POOL + h->chunks[(n - own) / CHUNK_PAGES] * VMI_PH_POOL_CHUNK +
				  (n - own) % CHUNK_PAGES * PAGE_SIZE);
	else
		return NULL;
	h->pages++;
	for (i = 0; i < 512; i++)
		page[i] = 0;
	return page;
}

/* A whole range of the guest's: no host mapping reaches over its ends, so that this splits none and cannot fail for want of one. */
static void unmap_range(u64 start, u64 end)
{
	if (start < end && host2(munmap, start, end - start))
		fatal("process: munmap failed at", start);
}

static void half_clear(struct half *h, u64 first_slot, u64 last_slot)
{
	u64 i;

	for (i = first_slot; i < last_slot; i++)
		root()[i] = 0;
	chunks_give(h);
	*h = (struct half){ 0 };
	tables_full();
	count_mappings(0, 0);
	machine_has_too_many(self.proc->s.mappings);
}

void tlb_drop_user(void)
{
	if (!halves[0].anything)
		return;
	unmap_range(VMI_PH_USER_START, VMI_PH_IMAGE_START);
	unmap_range(VMI_PH_HOLE_END, VMI_PH_USER_END);
	half_clear(&halves[0], 0, VMI_PH_USER_END >> 39);
}

/* Forgets everything, user and kernel: the price of running out of arena or of host mappings. */
static void drop_all(void)
{
	tlb_drop_user();
	widest = PAGE_SIZE;
	if (!halves[1].anything)
		return;
	unmap_range(shared->direct_map_end, VMI_PH_KERNEL_END);
	half_clear(&halves[1], VMI_PH_USER_END >> 39, 256);
}

/* The first record at or behind *va and below end, or NULL. *va becomes where it begins, *size what it covers. */
static u64 *next_record(u64 *va, u64 end, u64 *size)
{
	while (*va < end) {
		u64 *table = root(), *slot;
		int level;

		for (level = 4; level > 1; level--) {
			int shift = 12 + 9 * (level - 1);

			*size = 1ULL << shift;
			slot = &table[*va >> shift & 511];
			if (*slot & T_LARGE) {
				*va &= ~(*size - 1);
				return slot;
			}
			if (!*slot)
				break;
			table = to_pointer(*slot);
		}
		if (level > 1) {
			*va = (*va & ~(*size - 1)) + *size;
			continue;
		}
		*size = PAGE_SIZE;
		do {
			slot = &table[*va >> 12 & 511];
			if (*slot)
				return slot;
			*va += PAGE_SIZE;
		} while (*va < end && (*va & (LARGE_SIZE - 1)));
	}
	return NULL;
}

/* Host mappings that a half's records stand for, at most: the host makes one of neighbours that are alike and go on in the file. */
static u32 count_maps(u64 va, u64 end)
{
	u64 size, behind = 0, gpa = 0, rights = 0, *word;
	u32 count = 0;

	while ((word = next_record(&va, end, &size))) {
		if (va != behind || (*word & PTE_ADDR) != gpa || (*word & (T_WRITE | T_EXEC)) != rights)
			count++;
		behind = va + size;
		gpa = (*word & PTE_ADDR) + size;
		rights = *word & (T_WRITE | T_EXEC);
		va = behind;
	}
	return count;
}

/*
 * The host limits the mappings of a process, and an operation that would exceed the limit fails in the middle. proc.mappings is never
 * too low: an operation in the middle of a mapping adds two. When it comes near the limit it is counted anew, and if there are
 * really as many, all of them go. False: that has happened.
 */
static bool maps_room(void)
{
	u32 max = READ_ONCE(shared->s.max_maps);

	max = max > MAPS_RESERVE + MAPS_LEAST ? max - MAPS_RESERVE : MAPS_LEAST;
	if (halves[0].mappings + halves[1].mappings <= max &&
	    !machine_has_too_many(halves[0].mappings + halves[1].mappings))
		return true;
	halves[0].mappings = count_maps(VMI_PH_USER_START, VMI_PH_USER_END);
	halves[1].mappings = count_maps(VMI_PH_USER_END, VMI_PH_KERNEL_END);
	count_mappings(0, 0);
	if (halves[0].mappings + halves[1].mappings <= max - max / 4 &&
	    !machine_has_too_many(halves[0].mappings + halves[1].mappings))
		return true;
	drop_all();
	return false;
}

/* Takes something out. False: everything went. */
static bool unmap(u64 start, u64 end)
{
	s64 r;

	if (!maps_room())
		return false;
	r = host2(munmap, start, end - start);
	if (r == -HOST_ENOMEM) {
		drop_all();
		return false;
	}
	if (r)
		fatal("process: munmap failed at", start);
	count_mappings(start, 1);
	return true;
}

/* The word of the tree for va at a level (1: 4 KiB, 2: 2 MiB); NULL if absent and not to be made, or no room. */
static u64 *record(u64 va, int level, bool make)
{
	u64 *table = root(), *slot;
	int l;

	for (l = 4; l > level; l--) {
		slot = &table[va >> (12 + 9 * (l - 1)) & 511];
		if (*slot & T_LARGE)
			return NULL;
		if (!*slot) {
			u64 *page = make ? arena_page(half_of(va)) : NULL;

			if (!page)
				return NULL;
			*slot = (u64)page;
		}
		table = to_pointer(*slot);
	}
	return &table[va >> (12 + 9 * (level - 1)) & 511];
}

/* A 2 MiB record that is in the way of one for 4 KiB goes. */
static void split_large(u64 va)
{
	u64 *large = record(va, 2, false);

	if (large && (*large & T_LARGE)) {
		half_of(va)->large--;
		*large = 0;
		unmap(va & LARGE_MASK, (va & LARGE_MASK) + LARGE_SIZE);
	}
}

/* The RAM slot that an address lies in; ours to trust, the monitor's to make. */
static u32 slot_of(u64 gpa)
{
	u32 i, count = shared->s.slot_count;

	for (i = 0; i < count && i < VMI_PH_MAX_SLOTS; i++)
		if (gpa - shared->s.slots[i].gpa < shared->s.slots[i].size)
			return i;
	fatal("process: no RAM slot for", gpa);
}

/*
 * Replaces what is there; all of it in one slot. replaces: something may be there, so that the host may have to split a mapping in two
 * places. Where the host has no more mappings to give, everything else goes first: records must be looked up again.
 */
static void map_file(u64 va, u64 size, u64 prot, bool populate, u32 file, u64 offset, bool replaces)
{
	u32 tries;
	s64 r;

	for (tries = 0;; tries++) {
		r = host6(mmap, va, size, prot, MAP_SHARED | MAP_FIXED | (populate ? MAP_POPULATE : 0),
			  VMI_PH_FD_RAM + file, offset);
		if (r == (s64)va)
			break;
		if (r != -HOST_ENOMEM || tries)
			fatal("process: mmap failed at", va);
		drop_all();
	}
	half_of(va)->anything = true;
	count_mappings(va, replaces ? 2 : 1);
}

static void map(u64 va, u64 size, u64 gpa, u64 flags, bool populate, bool replaces)
{
	u64 prot = PROT_READ | (flags & T_WRITE ? PROT_WRITE : 0) | (flags & T_EXEC ? PROT_EXEC : 0);
	u32 slot = slot_of(gpa);

	map_file(va, size, prot, populate, slot, gpa - shared->s.slots[slot].gpa, replaces);
}

static u64 flags_of(const struct walk *w)
{
	return T_PRESENT | (w->writable && (w->pte & PTE_D) ? T_WRITE : 0) |
	       (w->executable ? T_EXEC : 0) | (w->user ? T_USER : 0);
}

static void fill_large(struct vcpu *v, u64 va, const struct walk *w)
{
	u64 start = va & LARGE_MASK, gpa = w->gpa & LARGE_MASK, flags = flags_of(w);
	u64 near = va & ~(WINDOW * PAGE_SIZE - 1);
	u64 *large = record(va, 2, true);

	if (!large || tables_full())
		drop_all();
	map(start, LARGE_SIZE, gpa, flags, false, true);
	/* Where RAM is not huge the host faults the rest in by itself, without a signal. */
	host3(madvise, near, WINDOW * PAGE_SIZE,
	      flags & T_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	large = record(va, 2, true);
	if (!(*large & T_LARGE))
		half_of(va)->large++;
	*large = gpa | flags | T_LARGE;
	v->s.fills += WINDOW;
}

/*
 * A run of pages around va that one mapping can cover: entries of the same table, physically contiguous in one slot, alike in
 * everything, and accessed before, since a page that nobody touched must not get its bit. A page of the user range that only
 * the kernel may see comes alone: it is remembered alone (remember_supervisor).
 */
static void fill_small(struct vcpu *v, u64 va, const struct walk *w)
{
	u64 index = va >> 12 & 511, first = index & ~(u64)(WINDOW - 1);
	u64 low = index, high = index + 1, i, flags = flags_of(w), same = PTE_P | PTE_W | PTE_U | PTE_A | PTE_NX;
	u64 *table = w->slot - index, *records;
	bool replaces;

	same |= w->writable ? PTE_D : 0;
	va &= PAGE_MASK;
	split_large(va);
	records = record(va, 1, true);
	if (!records) {
		drop_all();
		records = record(va, 1, true);
	}
	replaces = *records != 0;
	if (w->span == PAGE_SIZE && (w->user || kernel_address(va))) {
		const struct vmi_ph_slot *slot = &shared->s.slots[slot_of(w->gpa)];
		u64 pte = w->pte & (PTE_ADDR | same), before = (w->gpa - slot->gpa) / PAGE_SIZE;
		u64 behind = (slot->size + slot->gpa - w->gpa) / PAGE_SIZE, last = first + WINDOW;

		first = index - first > before ? index - before : first;
		last = last - index > behind ? index + behind : last;
		/* Up to what is mapped already: that must not be mapped again with each page of a growing run. */
		records -= index;
		while (low > first && !records[low - 1] &&
		       (READ_ONCE(table[low - 1]) & (PTE_ADDR | same)) == pte - (index - low + 1) * PAGE_SIZE)
			low--;
		while (high < last && !records[high] &&
		       (READ_ONCE(table[high]) & (PTE_ADDR | same)) == pte + (high - index) * PAGE_SIZE)
			high++;
	}
	map(va - (index - low) * PAGE_SIZE, (high - low) * PAGE_SIZE, w->gpa - (index - low) * PAGE_SIZE,
	    flags, true, replaces);
	for (i = low; i < high; i++)
		*record(va + (i - index) * PAGE_SIZE, 1, true) = (w->gpa + (i - index) * PAGE_SIZE) | flags;
	v->s.fills += high - low;
}

/*
 * More of the same window, page by page: what was in use before is likely to be used again, and a mapping costs half of what a
 * fault costs. A few only, since the rest may never be touched.
 */
static void fill_around(struct vcpu *v, u64 va)
{
	u64 at = va & ~(WINDOW * PAGE_SIZE - 1), end = at + WINDOW * PAGE_SIZE, *word;
	struct walk w;
	u32 more = 0;

	for (; at < end && more < AROUND; at += PAGE_SIZE) {
		if (at == (va & PAGE_MASK) || at < VMI_PH_USER_START || !walk_guest(v, at, &w, false) || w.span != PAGE_SIZE ||
		    !w.user || !(w.pte & PTE_A) || w.gpa >= shared->ram_size)
			continue;
		word = record(at, 1, false);
		if (!word || *word)
			continue;
		fill_small(v, at, &w);
		more++;
	}
}

static void drop_supervisor(struct vcpu *v)
{
	struct thread *t = thread_of(v);
	u64 *word, va;

	while (t->supervisor_count) {
		va = t->supervisor[--t->supervisor_count];
		word = record(va, 1, false);
		if (word && *word && !(*word & T_USER)) {
			*word = 0;
			unmap(va, va + PAGE_SIZE);
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

static bool large_record(u64 va)
{
	const u64 *word = record(va, 2, false);

	return word && (*word & T_LARGE);
}

static void fill(struct vcpu *v, u64 va, const struct walk *w, bool around)
{
	u64 large = w->gpa & LARGE_MASK;

	maps_room();
	/* The first 2 MiB are not all the guest's; its pages there come one by one. */
	if (w->span >= LARGE_SIZE && large + LARGE_SIZE <= shared->ram_size && va >= LARGE_SIZE &&
	    (w->user || kernel_address(va)))
		fill_large(v, va, w);
	else
		fill_small(v, va, w);
	/* Behind the fill, which may have to forget everything. */
	if (w->span > LARGE_SIZE || (w->span == LARGE_SIZE && !large_record(va)))
		widest = w->span > widest ? w->span : widest;
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
	maps_room();
	split_large(va);
	word = record(va, 1, true);
	if (!word) {
		drop_all();
		word = record(va, 1, true);
	}
	/* Writes must fault, whatever the guest's entry says: they are carried out (device.c). */
	map_file(va, PAGE_SIZE, PROT_READ, true, shared->s.slot_count, w->gpa - shared->s.device_gpa, *word != 0);
	*record(va, 1, true) = w->gpa | T_PRESENT | (w->user ? T_USER : 0);
	v->s.fills++;
}

/* Addresses that are mapped for good, or are not the guest's: nothing is ever filled there. */
static bool fixed_address(u64 va)
{
	return va < VMI_PH_USER_START || (va >= VMI_PH_IMAGE_START && va < VMI_PH_HOLE_END) ||
	       (va >= VMI_PH_DIRECT_MAP && va < shared->direct_map_end) || va >= VMI_PH_KERNEL_END;
}

bool tlb_fault(struct vcpu *v, u64 va, u32 access, u64 *error)
{
	struct proc *p = self.proc;
	struct walk w;
	u64 updated;
	bool done = false;

	/*
	 * What is not there is not cached, so that nothing is mapped for it and no flush needs to wait: this takes no lock, and writes
	 * nothing, since a table that has just been freed could be read here.
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
		    !__atomic_compare_exchange_n(w.slot, &w.pte, updated, false, __ATOMIC_SEQ_CST,
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

void tlb_fill(struct vcpu *v, u64 va, u32 count)
{
	struct proc *p = self.proc;
	struct walk w;
	u64 *word, end = va + (u64)count * PAGE_SIZE;

	lock_take(&p->lock);
	for (va &= PAGE_MASK; va < end; va += PAGE_SIZE) {
		if (kernel_address(va) || fixed_address(va) || !walk_guest(v, va, &w, true))
			continue;
		if (!w.user || !(w.pte & PTE_A) || w.gpa >= shared->ram_size)
			continue;
		word = record(va, 1, false);
		if (word && *word == (w.gpa | flags_of(&w)))
			continue;
		fill(v, va, &w, false);
	}
	lock_release(&p->lock);
}

/* A run of pages with the same fate, so that one host call does for all. */
struct run {
	u64 start, end;
	u64 protect;	/* what they are to allow; 0: unmap them */
	u64 reach;	/* behind end, up to here it may be about more without harm */
};

/* False: everything went, which is in agreement with any tables. */
static bool run_end(struct run *r)
{
	u64 start = r->start, end = r->end;
	s64 result;

	if (start == end)
		return true;
	r->start = r->end = 0;
	step();
	if (!r->protect)
		return unmap(start, end);
	if (!maps_room())
		return false;
	/* Pages of a run have equal rights: resync_word protects none that can be executed. */
	result = host3(mprotect, start, end - start, r->protect);
	if (result == -HOST_ENOMEM) {
		drop_all();
		return false;
	}
	if (result)
		fatal("process: mprotect failed at", start);
	count_mappings(start, 2);
	return true;
}

/* Between two records there is something that is mapped for good. */
static bool apart(u64 a, u64 b)
{
	return (a < VMI_PH_HOLE_END && b >= VMI_PH_HOLE_END) || (a < shared->direct_map_end && b >= shared->direct_map_end);
}

/* Nothing is mapped between two records that follow each other, so what is to be unmapped may have gaps. */
static bool run_add(struct run *r, u64 va, u64 size, u64 protect)
{
	if (r->start != r->end && (r->protect != protect || (protect ? r->reach != va : apart(r->start, va))) && !run_end(r))
		return false;
	if (r->start == r->end)
		r->start = va;
	r->end = r->reach = va + size;
	r->protect = protect;
	return true;
}

/* A record that stays as it is: the run is at its end, but for pages that it would leave as they are. */
static bool run_keep(struct run *r, u64 va, u64 size, u64 have)
{
	if (r->start != r->end && r->protect == PROT_READ && r->reach == va && have == (T_PRESENT | T_USER)) {
		r->reach = va + size;
		return true;
	}
	return run_end(r);
}

/* All pages of 2 MiB have the same tables above them, and most often a leaf table: what one walk found for the next. */
struct leaves {
	u64 base;
	u64 *table;	/* NULL: not known */
	struct walk above;
};

static bool walk_leaf(struct vcpu *v, u64 va, struct walk *w, struct leaves *l)
{
	if (!l->table || l->base != (va & LARGE_MASK)) {
		bool found = walk_guest(v, va, w, false);

		l->base = va & LARGE_MASK;
		l->table = found && w->span == PAGE_SIZE ? w->slot - (va >> 12 & 511) : NULL;
		l->above = *w;
		return found;
	}
	w->slot = l->table + (va >> 12 & 511);
	w->pte = READ_ONCE(*w->slot);
	w->span = PAGE_SIZE;
	w->gpa = w->pte & PTE_ADDR;
	w->writable = l->above.above_writable && (w->pte & PTE_W);
	w->user = l->above.above_user && (w->pte & PTE_U);
	w->executable = l->above.above_executable && !(w->pte & PTE_NX);
	return (w->pte & PTE_P) != 0;
}

/* Compares one record with the guest's tables. False: see run_end. */
static bool resync_word(struct vcpu *v, u64 va, u64 size, u64 *word, struct run *r, struct leaves *l)
{
	struct walk w;
	u64 have = *word, want, gpa = have & PTE_ADDR;
	bool same;

	same = walk_leaf(v, va, &w, l) && (w.pte & PTE_A) && w.gpa == gpa && w.span >= size;
	want = same ? flags_of(&w) : 0;
	have &= T_PRESENT | T_WRITE | T_EXEC | T_USER;
	/* Less or more may be written. More of what can be executed too is left to faults: that is hardly ever what a program asks for. */
	if (same && (have ^ want) == T_WRITE && !(have & T_EXEC)) {
		*word ^= T_WRITE;
		return run_add(r, va, size, want & T_WRITE ? PROT_READ | PROT_WRITE : PROT_READ);
	}
	if (same && (have & ~want) == 0 && !((have ^ want) & T_USER))
		return run_keep(r, va, size, have);
	if (size == LARGE_SIZE)
		half_of(va)->large--;
	*word = 0;
	return run_add(r, va, size, 0);
}

static void resync(struct vcpu *v, u64 start, u64 end)
{
	struct leaves leaves = { 0 };
	struct run r = { 0 };
	u64 va = start & ~(widest - 1), size, *word;

	end = (end + widest - 1) & ~(widest - 1);
	for (; (word = next_record(&va, end, &size)); va += size)
		if (!resync_word(v, va, size, word, &r, &leaves))
			return;
	run_end(&r);
}

void tlb_resync(struct vcpu *v, u64 start, u64 end)
{
	step();
	lock_take(&self.proc->lock);
	step();
	resync(v, start, end > VMI_PH_KERNEL_END ? VMI_PH_KERNEL_END : end);
	lock_release(&self.proc->lock);
	v->s.flushes++;
}

void tlb_flush_space(struct vcpu *v, u64 generation, u64 start, u64 end)
{
	struct proc *p = self.proc;

	lock_take(&p->lock);
	step();
	if (!generation || generation > p->s.generation) {
		/* What lies between this process's generation and this one, flushes would have said that have not come here. */
		if (p->s.generation && generation == p->s.generation + 1)
			resync(v, start, end > VMI_PH_USER_END ? VMI_PH_USER_END : end);
		else
			tlb_resync_user(v);
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
	resync(v, start, end > VMI_PH_KERNEL_END ? VMI_PH_KERNEL_END : end);
	/* Others that came in between have flushed something else. */
	if (p->kernel_generation + 1 == now || (start <= VMI_PH_HOLE_START && end >= VMI_PH_KERNEL_END))
		p->kernel_generation = now;
	lock_release(&p->lock);
	v->s.flushes++;
}

void tlb_resync_user(struct vcpu *v)
{
	resync(v, VMI_PH_USER_START, VMI_PH_USER_END);
	v->s.resyncs++;
}

void tlb_resync_kernel(struct vcpu *v)
{
	resync(v, VMI_PH_HOLE_START, VMI_PH_IMAGE_START);
	resync(v, VMI_PH_USER_END, VMI_PH_KERNEL_END);
}

void tlb_age(struct vcpu *v, u64 now)
{
	struct proc *p = self.proc;

	if (now - READ_ONCE(p->aged) < shared->s.clock.tsc_hz)
		return;
	lock_take(&p->lock);
	if (now - p->aged >= shared->s.clock.tsc_hz) {
		p->aged = now;
		tlb_resync_user(v);
	}
	lock_release(&p->lock);
}

void tlb_drop_supervisor(struct vcpu *v)
{
	if (!thread_of(v)->supervisor_count)
		return;
	/* On the way out of the layer, where this thread holds no lock. */
	lock_take(&self.proc->lock);
	drop_supervisor(v);
	lock_release(&self.proc->lock);
}
