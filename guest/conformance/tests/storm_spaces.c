// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Spaces that all vCPUs change, load and read. A vCPU that changes a space flushes all vCPUs that
 * have it loaded, in the order of a kernel: first the entry and the generation, then the list of
 * vCPUs, then interrupts. A reader may find the value before or after the change, but nothing
 * older. Unmapped pages are poisoned and checked before they become something else, often a page
 * table.
 */
#include "../kernel/lock.h"
#include "storm.h"

/* Above all others: readers keep interrupts off for a moment only. */
#define VECTOR_FLUSH	0xd2
#define SPACES_MAX	40
#define REGIONS		3	/* each has a page table of its own */
#define PER_REGION	8
#define SLOTS		(REGIONS * PER_REGION)
#define KEPT		8	/* pages between use and use */
#define MARKS		8	/* first of the words that vCPUs write to */
#define POISON		0x706f69736f6e21ull

/* Page and PTE_W. 0: not present. */
struct slot {
	u64 now, before, sequence;
};

struct shared {
	struct space space;
	u32 writer;		/* the vCPU that changes it; others wait with interrupts on */
	u32 gate, dead;		/* a load excludes destruction */
	u64 members;		/* vCPUs that have it loaded */
	struct slot slots[SLOTS];
};

/* From the vCPU that flushes to the others. */
struct request {
	struct shared *space;
	u64 start, end, left;
	u32 kind;
};

static struct shared spaces[SPACES_MAX];
static u32 space_count;
static struct shared *loaded[MAX_VCPUS];
static struct request requests[MAX_VCPUS];
static u64 kept[MAX_VCPUS][KEPT];

static u64 slot_va(u32 n)
{
	static const u64 regions[REGIONS] = { 0, LARGE_SIZE, GIB };

	return USER_DATA + regions[n / PER_REGION] + 16 * PAGE_SIZE + n % PER_REGION * PAGE_SIZE;
}

/* --- pages --- */

static u64 new_page(void)
{
	u64 gpa = identity_page(), *page = to_linear(gpa);

	memset(page + MARKS, 0, MAX_VCPUS * 8);
	return gpa;
}

static void check_poison(u64 gpa)
{
	const u64 *page = to_linear(gpa);
	u32 i;

	for (i = 0; i < 512; i++)
		if (READ_ONCE(page[i]) != POISON)
			FAIL("a free page was written to: 0x%llx at word %u", page[i], i);
	free_page(gpa);
}

/* After the flush: no translation of it may exist. */
static void retire(u64 gpa, u64 entry)
{
	u64 *page = to_linear(gpa), *place = &kept[this_vcpu()][storm_random(KEPT)];
	u32 i;

	for (i = 0; i < MAX_VCPUS; i++)
		if (page[MARKS + i] && !(entry & PTE_D))
			FAIL("a page was written to and is not dirty: 0x%llx", entry);
	for (i = 0; i < 512; i++)
		page[i] = POISON;
	if (*place)
		check_poison(*place);
	*place = gpa;
}

/* --- flushes --- */

static void flush_here(const struct request *r)
{
	struct shared *s = loaded[this_vcpu()];
	u64 va;

	if (s != r->space)
		return;
	switch (r->kind) {
	case 0:
		for (va = r->start; va < r->end; va += PAGE_SIZE)
			invalidate_page(va);
		break;
	case 1:
		CHECK_RESULT(vmi.mmu_invalidate_range(r->start, r->end), 0);
		break;
	case 2:
		CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
		break;
	case 3:
		CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_ALL), 0);
		break;
	case 4:
		set_cr3(s->space.root, s->space.context, atomic_load(&s->space.generation));
		break;
	default:
		set_cr3(s->space.root, s->space.context, 0);
	}
}

static void on_flush(struct regs *regs)
{
	u64 bit = 1ull << this_vcpu();
	u32 i;

	(void)regs;
	for (i = 0; i < machine.vcpus_online; i++) {
		if (!(atomic_load(&requests[i].left) & bit))
			continue;
		flush_here(&requests[i]);
		__atomic_fetch_and(&requests[i].left, ~bit, __ATOMIC_SEQ_CST);
	}
}

static void flush(struct shared *s, u64 start, u64 end)
{
	struct request *r = &requests[this_vcpu()];
	u64 me = 1ull << this_vcpu(), members, deadline;
	u32 i;

	*r = (struct request){ s, start, end, 0, storm_random(end - start > LARGE_SIZE ? 5 : 6) };
	if (r->kind == 0 && end - start > 64 * PAGE_SIZE)
		r->kind = 1;
	irq_disable();
	flush_here(r);
	irq_enable();
	members = atomic_load(&s->members) & ~me;
	atomic_store(&r->left, members);
	for (i = 0; i < machine.vcpus_online; i++)
		if (members >> i & 1)
			CHECK_RESULT(send_ipi(i, VECTOR_FLUSH), 0);
	deadline = now() + STORM_LOST;
	while (atomic_load(&r->left)) {
		pause();
		storm_beat("a flush");
		if (now() > deadline)
			FAIL("a flush is not answered by vCPUs %llx", r->left);
	}
}

/* --- changes --- */

/* Writes an entry and preserves the bits that the layer keeps in it. Returns the old value. */
static u64 exchange(struct shared *s, u32 n, u64 target)
{
	u64 *slot = space_pte(&s->space, slot_va(n), VMI_LEVEL_PT);
	u64 old = READ_ONCE(*slot), entry;

	do {
		entry = target ? target | PTE_P | PTE_U : 0;
		if ((old & PTE_ADDRESS) == (target & PTE_ADDRESS) && target)
			entry |= old & (PTE_A | PTE_D);
	} while (!__atomic_compare_exchange_n(slot, &old, entry, false, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST));
	return old;
}

/* Changes some slots. tables: also removes the page tables, which then become ordinary pages. */
static void change(struct shared *s, u32 first, u32 count, bool tables, bool clear)
{
	u64 old[SLOTS], value, gone[REGIONS], start = slot_va(first),
		end = slot_va(first + count - 1) + PAGE_SIZE;
	u32 i, n, gone_count = 0;
	bool need = tables;

	for (n = first; n < first + count; n++) {
		struct slot *slot = &s->slots[n];
		u64 page = slot->now & PTE_ADDRESS, w = slot->now & PTE_W;

		value = clear || (page && !storm_random(4)) ? 0 :
			!page || !storm_random(3) ? new_page() | (storm_random(3) ? PTE_W : 0) :
						    page | (w ? 0 : PTE_W);
		/* More rights than before need no flush. */
		need |= page && ((value & PTE_ADDRESS) != page || (w && !(value & PTE_W)));
		atomic_add(&slot->sequence, 1);
		atomic_store(&slot->now, value);
		old[n] = slot->before || value ? exchange(s, n, value) : 0;
	}
	if (tables) {
		for (n = first; n < first + count; n += PER_REGION) {
			u64 *entry = space_pte(&s->space, slot_va(n), VMI_LEVEL_PD),
				gpa = *entry & PTE_ADDRESS;

			if (!gpa)
				continue;
			vmi.mmu_set_pte(entry, 0, VMI_LEVEL_PD, slot_va(n));
			for (i = 0; s->space.tables[i].gpa != gpa; i++)
				;
			s->space.tables[i] = s->space.tables[--s->space.table_count];
			gone[gone_count++] = gpa;
		}
	}
	atomic_add(&s->space.generation, 1);
	if (need || !storm_random(4))
		flush(s, start, end);
	for (n = first; n < first + count; n++) {
		struct slot *slot = &s->slots[n];
		u64 page = slot->before & PTE_ADDRESS;

		atomic_store(&slot->before, slot->now);
		if (page && page != (slot->now & PTE_ADDRESS))
			retire(page, old[n]);
	}
	for (i = 0; i < gone_count; i++) {
		CHECK_RESULT(vmi.mmu_release_page_table(gone[i], VMI_LEVEL_PT), 0);
		memset(to_linear(gone[i]), 0, MARKS * 8 + MAX_VCPUS * 8);
		retire(gone[i], PTE_D);
	}
}

static void lock_writer(struct shared *s)
{
	while (atomic_swap(&s->writer, 1)) {
		pause();
		storm_beat("another's change");
	}
}

/* Frees all of it and makes a new space with other pages. */
static void renew(struct shared *s)
{
	struct spinlock *gate = (struct spinlock *)&s->gate;
	bool alone;

	irq_disable();
	spin_lock(gate);
	alone = !s->members;
	s->dead = alone;
	spin_unlock(gate);
	irq_enable();
	if (!alone)
		return;
	change(s, 0, SLOTS, true, true);
	space_destroy(&s->space);
	space_create(&s->space);
	irq_disable();
	spin_lock(gate);
	s->dead = 0;
	spin_unlock(gate);
	irq_enable();
}

static void change_some(void)
{
	struct shared *s = &spaces[storm_random(space_count)];
	u32 first = storm_random(SLOTS), most = PER_REGION - first % PER_REGION;

	lock_writer(s);
	switch (storm_random(12)) {
	case 0:
		change(s, first / PER_REGION * PER_REGION, PER_REGION, true, true);
		break;
	case 1:
		renew(s);
		break;
	default:
		change(s, first, 1 + storm_random(MIN(most, 4)), false, false);
	}
	atomic_store(&s->writer, 0);
}

/* --- loads and accesses --- */

static void leave(void)
{
	u32 me = this_vcpu();
	struct shared *old = loaded[me];

	if (!old)
		return;
	loaded[me] = NULL;
	space_load(NULL);
	__atomic_fetch_and(&old->members, ~(1ull << me), __ATOMIC_SEQ_CST);
}

static void enter(struct shared *s)
{
	struct spinlock *gate = (struct spinlock *)&s->gate;
	u32 me = this_vcpu();
	struct shared *old = loaded[me];
	bool lazy = !storm_random(4);

	if (old == s && storm_random(8))
		return;
	spin_lock(gate);
	if (s->dead) {
		spin_unlock(gate);
		return;
	}
	atomic_add(&s->members, old == s ? 0 : 1ull << me);
	spin_unlock(gate);
	if (lazy)
		CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_CPU), 0);
	loaded[me] = s;
	this_cpu()->space = &s->space;
	/* Generation 0 means none: the layer compares everything. */
	set_cr3(s->space.root, s->space.context,
		storm_random(8) ? atomic_load(&s->space.generation) : 0);
	if (lazy)
		CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_NONE), 0);
	if (old && old != s)
		__atomic_fetch_and(&old->members, ~(1ull << me), __ATOMIC_SEQ_CST);
}

static bool right(const u64 *allowed, u64 error, u64 value, bool write, bool user)
{
	u32 i;

	for (i = 0; i < 4; i++) {
		u64 page = allowed[i] & PTE_ADDRESS;
		bool can = page && (!write || (allowed[i] & PTE_W));
		u64 want = can ? NO_FAULT :
			(page ? PF_P : 0) | (write ? PF_W : 0) | (user ? PF_U : 0);

		if (error == want && (!can || write || value == identity(page)))
			return true;
	}
	return false;
}

/*
 * With interrupts off, except in user code: there more than one change may pass, and any value is
 * valid.
 */
static void access_one(struct shared *s)
{
	u32 n = storm_random(SLOTS), kind = storm_random(8);
	bool user = kind & 1, write = kind & 2;
	struct slot *slot = &s->slots[n];
	u64 allowed[4], sequence = atomic_load(&slot->sequence), error, value = this_vcpu() + 1,
		va = slot_va(n);

	allowed[0] = atomic_load(&slot->before);
	allowed[1] = atomic_load(&slot->now);
	error = try_access(write ? (user ? USER_WRITE : KERNEL_WRITE) :
				   (user ? USER_READ : KERNEL_READ),
			   write ? va + (MARKS + this_vcpu()) * 8 : va, &value);
	allowed[2] = atomic_load(&slot->before);
	allowed[3] = atomic_load(&slot->now);
	if (atomic_load(&slot->sequence) - sequence > 1)
		return;
	if (!right(allowed, error, value, write, user))
		FAIL("%s %s of slot %u: error %llx, word %llx; may be %llx %llx %llx %llx",
		     user ? "user" : "kernel",
		     write ? "write" : "read", n, error, value, allowed[0], allowed[1], allowed[2],
		     allowed[3]);
}

void storm_spaces_step(void)
{
	u32 i;

	if (!storm_random(4)) {
		change_some();
		return;
	}
	irq_disable();
	if (storm_random(3) || !loaded[this_vcpu()])
		enter(&spaces[storm_random(space_count)]);
	else if (!storm_random(8))
		leave();
	if (loaded[this_vcpu()])
		for (i = storm_random(6); i; i--)
			access_one(loaded[this_vcpu()]);
	irq_enable();
}

void storm_spaces_leave(void)
{
	irq_disable();
	leave();
	irq_enable();
}

void storm_spaces_create(void)
{
	u32 i;

	memset(loaded, 0, sizeof(loaded));
	memset(requests, 0, sizeof(requests));
	memset(kept, 0, sizeof(kept));
	memset(spaces, 0, sizeof(spaces));
	set_irq_handler(VECTOR_FLUSH, on_flush);
	space_count = MIN(machine.vcpus_online * 2 + 2, SPACES_MAX);
	for (i = 0; i < space_count; i++)
		space_create(&spaces[i].space);
}

void storm_spaces_destroy(void)
{
	u32 i, n;

	for (i = 0; i < space_count; i++) {
		CHECK_EQ(spaces[i].members, 0);
		irq_enable();
		change(&spaces[i], 0, SLOTS, true, true);
		irq_disable();
		space_destroy(&spaces[i].space);
	}
	for (i = 0; i < machine.vcpus_online; i++)
		for (n = 0; n < KEPT; n++)
			if (kept[i][n])
				check_poison(kept[i][n]);
}
