/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The kernel's own page tables. */
#ifndef KERNEL_PAGING_H
#define KERNEL_PAGING_H

#include "types.h"

#define PTE_P		(1ull << 0)
#define PTE_W		(1ull << 1)
#define PTE_U		(1ull << 2)
#define PTE_PWT		(1ull << 3)
#define PTE_PCD		(1ull << 4)
#define PTE_A		(1ull << 5)
#define PTE_D		(1ull << 6)
#define PTE_PS		(1ull << 7)
#define PTE_G		(1ull << 8)
#define PTE_NX		(1ull << 63)
#define PTE_ADDRESS	0x000ffffffffff000ull

/* Makes the tables, registers them with the layer and loads them. After core.init. */
void paging_init(void);

/* The root that translates kernel addresses. */
extern u64 *kernel_root;

/* Linear addresses in the kernel half for tests: 64 MiB, unmapped, no holes. */
#define KERNEL_AREA_SIZE (64 * MIB)
extern u64 kernel_area;

/* The entry that maps va at this level. Makes the tables above it as needed. */
u64 *kernel_pte(u64 va, u32 level);

#endif
