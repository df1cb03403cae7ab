// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Host mappings as the TLB of a space: fills. Flushes are in resync.c, what is mapped in records.c.
 *
 * All of it is under the process's lock, held over a whole fill (read the guest's entry, map) and a
 * whole flush (compare, unmap): so a fill can never map an entry that a finished flush was about. Only threads of
 * this process take that lock, and none takes it in a signal that interrupted the layer.
 *
 * Cost in host calls: a fill is one mmap, or two for a large page.
 */
#include "device.h"
#include "host.h"
#include "records.h"

#define WINDOW 16
/* Further mappings that one fault may make. */
#define AROUND 4

#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23

/* A 2 MiB record that is in the way of one for 4 KiB goes. */
static void split_large(u64 va)
{
	u64 *large = record(va, 2, false);

	if (large && (*large & T_LARGE)) {
		record_large(va, -1);
		*large = 0;
		records_unmap(va & LARGE_MASK, (va & LARGE_MASK) + LARGE_SIZE);
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
		records_drop_all();
	}
	record_mapped(va, replaces);
}

static void map(u64 va, u64 size, u64 gpa, u64 flags, bool populate, bool replaces)
{
	u64 prot = PROT_READ | (flags & T_WRITE ? PROT_WRITE : 0) | (flags & T_EXEC ? PROT_EXEC : 0);
	u32 slot = slot_of(gpa);

	map_file(va, size, prot, populate, slot, gpa - shared->s.slots[slot].gpa, replaces);
}

static void fill_large(struct vcpu *v, u64 va, const struct walk *w)
{
	u64 start = va & LARGE_MASK, gpa = w->gpa & LARGE_MASK, flags = record_flags(w);
	u64 near = va & ~(WINDOW * PAGE_SIZE - 1);
	u64 *large = record(va, 2, true);

	if (!large || records_tables_full())
		records_drop_all();
	map(start, LARGE_SIZE, gpa, flags, false, true);
	/* Where RAM is not huge the host faults the rest in by itself, without a signal. */
	host3(madvise, near, WINDOW * PAGE_SIZE,
	      flags & T_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	large = record(va, 2, true);
	if (!(*large & T_LARGE))
		record_large(va, 1);
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
	u64 low = index, high = index + 1, i, flags = record_flags(w), same = PTE_P | PTE_W | PTE_U | PTE_A | PTE_NX;
	u64 *table = w->slot - index, *records;
	bool replaces;

	same |= w->writable ? PTE_D : 0;
	va &= PAGE_MASK;
	split_large(va);
	records = record(va, 1, true);
	if (!records) {
		records_drop_all();
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
			records_unmap(va, va + PAGE_SIZE);
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

	records_maps_room();
	/* The first 2 MiB are not all the guest's; its pages there come one by one. */
	if (w->span >= LARGE_SIZE && large + LARGE_SIZE <= shared->ram_size && va >= LARGE_SIZE &&
	    (w->user || kernel_address(va)))
		fill_large(v, va, w);
	else
		fill_small(v, va, w);
	/* Behind the fill, which may have to forget everything. */
	if (w->span > LARGE_SIZE || (w->span == LARGE_SIZE && !large_record(va)))
		records_widest = w->span > records_widest ? w->span : records_widest;
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
	records_maps_room();
	split_large(va);
	word = record(va, 1, true);
	if (!word) {
		records_drop_all();
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
		if (word && *word == (w.gpa | record_flags(&w)))
			continue;
		/* One page that is only read is program text most often, of which more is wanted, as at a fault. */
		fill(v, va, &w, count == 1 && !(w.pte & PTE_D));
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
