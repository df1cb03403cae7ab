/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Physical pages and kernel mappings. */
#ifndef KERNEL_MM_H
#define KERNEL_MM_H

#include "machine.h"
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

/* Before anything else: memory from the map, less what is in use. */
void mm_init(void);
/* After core.init: our own tables, registered and loaded. */
void mm_init_tables(void);

/* Guest-physical, zeroed. They panic when there is none left. */
u64 alloc_page(void);
void free_page(u64 gpa);
u64 alloc_large_page(void);		/* 2 MiB, aligned; not zeroed */
void free_large_page(u64 gpa);
void *alloc_contiguous(u64 size);	/* for good; zeroed; linear address */
u64 pages_in_use(void);

static inline void *to_linear(u64 gpa)
{
	return (void *)(machine.info.direct_map + gpa);
}

static inline u64 to_gpa(const void *linear)
{
	return (u64)linear - machine.info.direct_map;
}

/* The root that kernel addresses are translated with. */
extern u64 *kernel_root;

/* Linear addresses in the kernel half for tests: 64 MiB, unmapped, no holes. */
#define KERNEL_AREA_SIZE (64 * MIB)
extern u64 kernel_area;

/* The entry that maps va at this level, tables above it made as needed. */
u64 *kernel_pte(u64 va, u32 level);

#endif
