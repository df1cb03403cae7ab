// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * What this process has mapped of the guest's memory, and how much it may.
 *
 * The record is a radix tree of the same shape as the guest's tables, in this process's own arena: one word for 4 KiB, or
 * for 2 MiB. It exists so that a flush can compare and keep (resync.c), instead of dropping everything. What runs out
 * first, pages for the tree, host tables or host mappings, ends in drop_all(): a TLB may always forget.
 */
#include "host.h"
#include "records.h"

#define ARENA_PAGES (VMI_PH_ARENA_SIZE / PAGE_SIZE)
#define CHUNK_PAGES (VMI_PH_POOL_CHUNK / PAGE_SIZE)
#define MOST_CHUNKS 124
#define MOST_PAGES (ARENA_PAGES + MOST_CHUNKS * CHUNK_PAGES)
/* Of the arena, beside the root. */
#define KERNEL_PAGES 64
#define USER_PAGES (ARENA_PAGES - 1 - KERNEL_PAGES)
/* What a process has besides the guest's mappings, and what one fill may add. */
#define MAPS_RESERVE 200
/* Whatever the host says, so many are tried. */
#define MAPS_LEAST 64

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
u64 records_widest = PAGE_SIZE;
/* Of pages and large pages, what this process has added to shared->tables; of its mappings, to shared->mappings. */
static u32 tables_counted, maps_counted;

static struct half *half_of(u64 va)
{
	return &halves[va >= VMI_PH_USER_END];
}

void records_count_mappings(u64 va, u32 more)
{
	half_of(va)->mappings += more;
	self.proc->user_mappings = halves[0].mappings;
	self.proc->s.mappings = halves[0].mappings + halves[1].mappings;
}

/*
 * The host's tables are memory that the monitor holds against a budget (watch.rs), which ends the machine. Before that comes
 * about for a guest that keeps to the rules, the process that wants more gives up what it has.
 */
bool records_tables_full(void)
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

	if (records_tables_full())
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
	records_tables_full();
	records_count_mappings(0, 0);
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

void records_drop_all(void)
{
	tlb_drop_user();
	records_widest = PAGE_SIZE;
	if (!halves[1].anything)
		return;
	unmap_range(shared->direct_map_end, VMI_PH_KERNEL_END);
	half_clear(&halves[1], VMI_PH_USER_END >> 39, 256);
}

u64 *record_next(u64 *va, u64 end, u64 *size)
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

	while ((word = record_next(&va, end, &size))) {
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
bool records_maps_room(void)
{
	u32 max = READ_ONCE(shared->s.max_maps);

	max = max > MAPS_RESERVE + MAPS_LEAST ? max - MAPS_RESERVE : MAPS_LEAST;
	if (halves[0].mappings + halves[1].mappings <= max &&
	    !machine_has_too_many(halves[0].mappings + halves[1].mappings))
		return true;
	halves[0].mappings = count_maps(VMI_PH_USER_START, VMI_PH_USER_END);
	halves[1].mappings = count_maps(VMI_PH_USER_END, VMI_PH_KERNEL_END);
	records_count_mappings(0, 0);
	if (halves[0].mappings + halves[1].mappings <= max - max / 4 &&
	    !machine_has_too_many(halves[0].mappings + halves[1].mappings))
		return true;
	records_drop_all();
	return false;
}

bool records_unmap(u64 start, u64 end)
{
	s64 r;

	if (!records_maps_room())
		return false;
	r = host2(munmap, start, end - start);
	if (r == -HOST_ENOMEM) {
		records_drop_all();
		return false;
	}
	if (r)
		fatal("process: munmap failed at", start);
	records_count_mappings(start, 1);
	return true;
}

u64 *record(u64 va, int level, bool make)
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

void record_mapped(u64 va, bool replaces)
{
	half_of(va)->anything = true;
	records_count_mappings(va, replaces ? 2 : 1);
}

void record_large(u64 va, s32 more)
{
	half_of(va)->large += more;
}
