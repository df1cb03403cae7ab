/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Guest-physical addresses of what a layer shares with its hypervisor. */
#include "address.h"
#include "cpu.h"

#define MAX_LARGE 3 /* the highest level of which an entry may map memory */
#define LARGE (1ULL << 7)
#define PRESENT 1

/*
 * By a subtraction in the direct map, else by a walk of the loaded tables, which are in the direct
 * map. Shared memory lies in one page and does not move (docs/vmi.md, section 2).
 */
u64 linear_gpa(const void *pointer, u64 direct_map, u64 direct_map_size)
{
	u64 linear = (u64)pointer, table = cpu_cr3() & CR3_ADDRESS;
	u32 levels = cpu_cr4() & CR4_LA57 ? 5 : 4;

	if (linear - direct_map < direct_map_size)
		return linear - direct_map;
	for (u32 level = levels; level; level--) {
		u32 shift = 12 + 9 * (level - 1);
		u64 inside = (1ULL << shift) - 1;
		const u64 *entries = to_pointer(direct_map + table);
		u64 entry = READ_ONCE(entries[linear >> shift & 511]);

		if (!(entry & PRESENT))
			break;
		if (level == 1 || (level <= MAX_LARGE && entry & LARGE))
			return (entry & CR3_ADDRESS & ~inside) | (linear & inside);
		table = entry & CR3_ADDRESS;
	}
	/* Not reached for memory that the layer has just used. */
	return 0;
}
