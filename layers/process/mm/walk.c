// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Reading the guest's page tables. The guest can write them at any time: each entry is read once,
 * and an address is checked before it is followed.
 */
#include "mm/walk.h"
#include "state/state.h"

static u64 *table_at(u64 entry)
{
	return guest_ram(entry & PTE_ADDR);
}

/* Sets the accessed bit of an entry if it still is what was read. False: it changed. */
static bool set_accessed(u64 *at, u64 *value)
{
	u64 old = *value;

	if (old & PTE_A)
		return true;
	if (!__atomic_compare_exchange_n(at, &old, old | PTE_A, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return false;
	*value |= PTE_A;
	return true;
}

bool walk_guest(const struct vcpu *v, u64 va, struct walk *w, bool accessed)
{
	return walk_space(v->cr3, va, w, accessed);
}

bool walk_space(u64 cr3, u64 va, struct walk *w, bool accessed)
{
	u64 root = cr3;

	if (kernel_address(va) && READ_ONCE(shared->kernel_root))
		root = READ_ONCE(shared->kernel_root);
	return walk_tables(root, va, w, accessed);
}

bool walk_tables(u64 root, u64 va, struct walk *w, bool accessed)
{
	u64 *table, entry, *at;
	int level;

again:
	table = table_at(root);
	w->writable = w->user = w->executable = true;
	for (level = 4; level > 0; level--) {
		int shift = 12 + 9 * (level - 1);

		if (!table)
			return false;
		at = &table[va >> shift & 511];
		entry = READ_ONCE(*at);
		if (!(entry & PTE_P))
			return false;
		w->above_writable = w->writable;
		w->above_user = w->user;
		w->above_executable = w->executable;
		/*
		 * The leaf's accessed bit is set with the dirty bit, once the access is known to be
		 * allowed.
		 */
		w->writable &= (entry & PTE_W) != 0;
		w->user &= (entry & PTE_U) != 0;
		w->executable &= !(entry & PTE_NX);
		if (level == 1 || (level <= 3 && (entry & PTE_PS))) {
			u64 span = 1ULL << shift;
			u64 base = entry & PTE_ADDR & ~(span - 1);

			w->entry = at;
			w->pte = entry;
			w->span = span;
			w->gpa = base | (va & (span - 1) & PAGE_MASK);
			return true;
		}
		if (accessed && !set_accessed(at, &entry))
			goto again;
		table = table_at(entry);
	}
	return false;
}
