// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The shadow: what this process has mapped of the guest's memory, and how much it may map.
 *
 * The shadow is a radix tree in the process's own arena, with one word for 4 KiB or for 2 MiB. With
 * it a flush can compare and keep (flush.c) instead of dropping everything. When the tree, the
 * host's tables or the host's mappings run out of room, shadow_drop_all() drops everything: a TLB
 * may always forget.
 *
 * A process uses a few places that are far apart. So only the last level is a page, like the host's
 * table, and the levels above it have few entries each: an isolated page takes 5 KiB of host memory
 * instead of 12.
 */
#include "mm/shadow.h"
#include "host/call.h"
#include "host/fatal.h"
#include "mm/walk.h"
#include "state/state.h"

#define ARENA_PAGES (PHV_ARENA_SIZE / PAGE_SIZE)
#define CHUNK_PAGES (PHV_POOL_CHUNK / PAGE_SIZE)
#define MOST_CHUNKS 124
#define MOST_TABLES (ARENA_PAGES + MOST_CHUNKS * CHUNK_PAGES)
/* The parts of the arena, beside the page of the root. */
#define KERNEL_ROOM (64 * PAGE_SIZE)
#define USER_ROOM (PHV_ARENA_SIZE - PAGE_SIZE - KERNEL_ROOM)
/* What a process has besides the guest's mappings, and what one fill may add. */
#define MAPS_RESERVE 200
/* The least number of mappings to try, whatever the host says. */
#define MAPS_LEAST 64

/*
 * The lowest address bit of each level's index, and of the level above the last. The host's tables
 * begin at levels PTE, PMD and PUD: each node there stands for one of them.
 */
static const u8 shifts[] = { 12, 21, 26, 30, 35, 39, 47 };
#define ROOT 5
#define ENTRIES(level) (1U << (shifts[(level) + 1] - shifts[level]))
/*
 * After its entries a node of level 1 has a word for each: which groups of eight entries of the
 * table below may be in use (GROUP).
 */
#define WORDS(level) (ENTRIES(level) * ((level) == 1 ? 2 : 1))
/* The address of a node has none of the bits of an entry. */
#define NODE_SIZE(level)				\
	(WORDS(level) * sizeof(u64) < 2 * SHADOW_LARGE ?	\
	 2 * SHADOW_LARGE : WORDS(level) * sizeof(u64))
#define INDEX(level, va) ((va) >> shifts[level] & (ENTRIES(level) - 1))
#define GROUP(va) ((va) >> 15 & 63)

/*
 * The user range is separate from the rest, since it goes with each space and the rest outlives
 * them. Page 0 of the arena is the root's. The nodes of the user range follow it, and those of the
 * kernel begin further up. Both take from the shadow pool when their part is full.
 */
static struct half {
	u32 room;	/* bytes that its nodes take */
	u32 tables;	/* host tables for them */
	u32 mappings;	/* share of proc.mappings */
	/* large pages: for each the host makes a table of small ones, without a node here */
	s32 large;
	bool anything;	/* whether anything is mapped */
	u32 chunk_count;
	/* pieces of the pool that it has, once its part of the arena is full */
	u16 chunks[MOST_CHUNKS];
} halves[2];
u64 shadow_widest = PAGE_SIZE;
/*
 * What this process has added to shared->tables, counted in tables and large pages, and to
 * shared->mappings.
 */
static u32 tables_counted, maps_counted;

static struct half *half_of(u64 va)
{
	return &halves[va >= user_end()];
}

void shadow_count_mappings(u64 va, u32 more)
{
	half_of(va)->mappings += more;
	self.proc->user_mappings = halves[0].mappings;
	self.proc->s.mappings = halves[0].mappings + halves[1].mappings;
}

/*
 * The host's tables count against a budget of the monitor, which ends the machine when it is
 * exceeded. A well-behaved guest must not get there: the process that wants more drops what it has.
 */
bool shadow_tables_full(void)
{
	u32 now = 1 + halves[0].tables + halves[1].tables +
		(u32)(halves[0].large + halves[1].large);
	u64 all;

	if (now >= tables_counted + 16 || now < tables_counted) {
		__atomic_fetch_add(&shared->tables, (s32)(now - tables_counted), __ATOMIC_RELAXED);
		tables_counted = now;
	}
	self.proc->user_tables = halves[0].tables + (u32)halves[0].large;
	all = READ_ONCE(shared->tables);
	return now >= MOST_TABLES ||
	       (now > 256 && all * PAGE_SIZE > (32ULL << 20) + shared->ram_size / 16);
}

/* Whether the machine has too many mappings: each is a structure in the host's kernel. */
static bool machine_has_too_many(u32 now)
{
	if (now >= maps_counted + 64 || now < maps_counted) {
		__atomic_fetch_add(&shared->mappings, (s32)(now - maps_counted), __ATOMIC_RELAXED);
		maps_counted = now;
	}
	return now > PHV_MAPS_SURE && READ_ONCE(shared->mappings) > shared->s.maps_all;
}

static bool chunk_take(struct half *h)
{
	u32 i, bit, count = shared->s.pool_chunks;

	for (i = 0; i < count / 64 && i < ARRAY_SIZE(shared->pool) && h->chunk_count < MOST_CHUNKS;
	     i++) {
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

		__atomic_fetch_and(&shared->pool[chunk / 64], ~(1ULL << (chunk & 63)),
				   __ATOMIC_RELAXED);
	}
}

static u64 *root(void)
{
	return to_pointer(PHV_ARENA);
}

/*
 * The address of a byte of a half's room, and how many bytes follow in one piece. Takes from the
 * pool if necessary.
 */
static u8 *room_at(struct half *h, u32 at, u32 *follow)
{
	u32 own = h == &halves[0] ? USER_ROOM : KERNEL_ROOM;

	if (at < own) {
		*follow = own - at;
		return to_pointer(PHV_ARENA + PAGE_SIZE + (h == &halves[0] ? 0 : USER_ROOM) + at);
	}
	at -= own;
	*follow = PHV_POOL_CHUNK - at % PHV_POOL_CHUNK;
	if (at / PHV_POOL_CHUNK >= h->chunk_count && !chunk_take(h))
		return NULL;
	return to_pointer(PHV_POOL + (u64)h->chunks[at / PHV_POOL_CHUNK] * PHV_POOL_CHUNK +
			  at % PHV_POOL_CHUNK);
}

/* An empty node. A node that has a host table is counted with it. */
static u64 *node_new(struct half *h, int level)
{
	u32 size = (u32)NODE_SIZE(level), follow, i;
	u64 *node;

	if (shadow_tables_full())
		return NULL;
	node = (u64 *)room_at(h, h->room, &follow);
	if (node && follow < size) {
		h->room += follow;
		node = (u64 *)room_at(h, h->room, &follow);
	}
	if (!node)
		return NULL;
	h->room += size;
	h->tables += shifts[level + 1] == 21 || shifts[level + 1] == 30 || shifts[level + 1] == 39;
	for (i = 0; i < WORDS(level); i++)
		node[i] = 0;
	return node;
}

/*
 * Unmaps a whole range of the guest. No host mapping crosses its ends, so this splits none and
 * cannot fail for want of one.
 */
static void unmap_range(u64 start, u64 end)
{
	if (start < end && host2(munmap, start, end - start))
		fatal("process: munmap failed at", start);
}

static void half_clear(struct half *h, u64 first, u64 last)
{
	u64 i;

	for (i = first; i < last; i++)
		root()[i] = 0;
	chunks_give(h);
	*h = (struct half){ 0 };
	shadow_tables_full();
	shadow_count_mappings(0, 0);
	machine_has_too_many(self.proc->s.mappings);
}

void tlb_drop_user(void)
{
	if (!halves[0].anything)
		return;
	/* A program at a random address has nothing in the root's first entry. */
	if (root()[0])
		unmap_range(PHV_USER_START, PHV_IMAGE_START);
	unmap_range(PHV_HOLE_END, user_end());
	self.proc->text_va = 0;
	half_clear(&halves[0], 0, user_end() >> 39);
}

void shadow_drop_all(void)
{
	tlb_drop_user();
	shadow_widest = PAGE_SIZE;
	if (!halves[1].anything)
		return;
	unmap_range(shared->direct_map_end, PHV_KERNEL_END);
	half_clear(&halves[1], user_end() >> 39, 256);
}

void shadow_trim(void)
{
	shadow_drop_all();
	/* The root is all zeros now, so no node is reachable. Failure does no harm. */
	host3(madvise, PHV_ARENA, PHV_ARENA_SIZE, MADV_DONTNEED);
}

/*
 * In the table that holds *va: the first entry in use at or after it; or NULL, and *va moves past
 * the table.
 */
static u64 *next_in_leaf(u64 *va, const struct shadow_leaf *leaf)
{
	u64 base = *va & LARGE_MASK, groups, *entry;
	u32 index = INDEX(0, *va), group;

	while (index < ENTRIES(0)) {
		groups = *leaf->groups >> (index / 8);
		if (!groups)
			break;
		group = index / 8 + (u32)__builtin_ctzll(groups);
		if (group > index / 8)
			index = group * 8;
		entry = &leaf->words[index];
		do {
			if (*entry++) {
				*va = base + index * PAGE_SIZE;
				return entry - 1;
			}
		} while (++index & 7);
		/* The whole group was searched, unless *va was in its middle. */
		if (*va <= base + group * 8 * PAGE_SIZE)
			*leaf->groups &= ~(1ULL << group);
	}
	*va = base + LARGE_SIZE;
	return NULL;
}

/*
 * In a node that holds *va: the first entry in use at or after it, and *va moves to its start; or
 * NULL, and *va moves past the node.
 */
static u64 *next_in_node(u64 *va, u64 *node, int level)
{
	u64 base = *va & ~((1ULL << shifts[level + 1]) - 1);
	u32 index = INDEX(level, *va);

	if (node[index])
		return &node[index];
	do
		index++;
	while (index < ENTRIES(level) && !node[index]);
	*va = base + ((u64)index << shifts[level]);
	return index < ENTRIES(level) ? &node[index] : NULL;
}

u64 *shadow_next(u64 *va, u64 end, u64 *size, struct shadow_leaf *leaf)
{
	while (*va < end) {
		u64 *node = root(), *entry = NULL;
		int level;

		/* Otherwise continue in the table where the last call was. */
		if (!leaf->words || !(*va & (LARGE_SIZE - 1))) {
			leaf->words = NULL;
			for (level = ROOT; level > 0; level--) {
				entry = next_in_node(va, node, level);
				if (!entry || *va >= end)
					break;
				if (*entry & SHADOW_LARGE) {
					*size = 1ULL << shifts[level];
					*va &= ~(*size - 1);
					return entry;
				}
				node = to_pointer(*entry);
			}
			if (level)
				continue;
			*leaf = (struct shadow_leaf){ node, entry + ENTRIES(1) };
		}
		*size = PAGE_SIZE;
		entry = next_in_leaf(va, leaf);
		if (entry)
			return *va < end ? entry : NULL;
	}
	return NULL;
}

/*
 * An upper bound of the host mappings for a half's entries: the host merges neighbours with equal
 * rights that are contiguous in the file.
 */
static u32 count_maps(u64 va, u64 end)
{
	u64 size, behind = 0, gpa = 0, rights = 0, *word;
	struct shadow_leaf leaf = { 0 };
	u32 count = 0;

	while ((word = shadow_next(&va, end, &size, &leaf))) {
		if (va != behind || (*word & PTE_ADDR) != gpa ||
		    (*word & (SHADOW_WRITE | SHADOW_EXEC)) != rights)
			count++;
		behind = va + size;
		gpa = (*word & PTE_ADDR) + size;
		rights = *word & (SHADOW_WRITE | SHADOW_EXEC);
		va = behind;
	}
	return count;
}

void shadow_recount_user(void)
{
	halves[0].mappings = count_maps(PHV_USER_START, user_end());
	shadow_count_mappings(0, 0);
}

/*
 * The host limits the mappings of a process, and an operation that would exceed the limit fails
 * half-way. proc.mappings is never too low: an operation in the middle of a mapping adds two. Near
 * the limit the mappings are counted again, and if there are really that many, all of them are
 * dropped. False: that happened.
 */
bool shadow_maps_room(void)
{
	u32 max = READ_ONCE(shared->s.max_maps);

	max = max > MAPS_RESERVE + MAPS_LEAST ? max - MAPS_RESERVE : MAPS_LEAST;
	if (halves[0].mappings + halves[1].mappings <= max &&
	    !machine_has_too_many(halves[0].mappings + halves[1].mappings))
		return true;
	halves[0].mappings = count_maps(PHV_USER_START, user_end());
	halves[1].mappings = count_maps(user_end(), PHV_KERNEL_END);
	shadow_count_mappings(0, 0);
	if (halves[0].mappings + halves[1].mappings <= max - max / 4 &&
	    !machine_has_too_many(halves[0].mappings + halves[1].mappings))
		return true;
	shadow_drop_all();
	return false;
}

bool shadow_unmap(u64 start, u64 end)
{
	s64 r;

	if (!shadow_maps_room())
		return false;
	r = host2(munmap, start, end - start);
	if (r == -HOST_ENOMEM) {
		shadow_drop_all();
		return false;
	}
	if (r)
		fatal("process: munmap failed at", start);
	shadow_count_mappings(start, 1);
	return true;
}

u64 *shadow_word(u64 va, u64 size, bool make)
{
	u64 *node = root(), *entry;
	int level, last = size == LARGE_SIZE;

	for (level = ROOT; level > last; level--) {
		entry = &node[INDEX(level, va)];
		if (*entry & SHADOW_LARGE)
			return NULL;
		if (!*entry) {
			u64 *more = make ? node_new(half_of(va), level - 1) : NULL;

			if (!more)
				return NULL;
			*entry = (u64)more;
			if (level == 1)
				entry[ENTRIES(1)] = 0;
		}
		node = to_pointer(*entry);
	}
	return &node[INDEX(level, va)];
}

void shadow_set_run(u64 va, u32 pages, u64 word)
{
	/* Making the mapping may have dropped everything. */
	u64 *words = shadow_word(va, PAGE_SIZE, true), *above = shadow_word(va, LARGE_SIZE, false);
	u32 i;

	if (!words || !above)
		fatal("process: no record of", va);
	for (i = 0; i < pages; i++)
		words[i] = word + i * PAGE_SIZE;
	above[ENTRIES(1)] |= (~0ULL >> (63 - GROUP(va + (pages - 1) * PAGE_SIZE))) &
		(~0ULL << GROUP(va));
}

void shadow_mapped(u64 va, bool replaces)
{
	half_of(va)->anything = true;
	shadow_count_mappings(va, replaces ? 2 : 1);
}

void shadow_count_large(u64 va, s32 more)
{
	half_of(va)->large += more;
}
