/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Physical pages. */
#ifndef KERNEL_MM_H
#define KERNEL_MM_H

#include "machine.h"
#include "types.h"

/* Takes over the memory map. Must run before the first allocation. */
void mm_init(void);

/*
 * Guest-physical addresses of zeroed pages. Allocations panic when memory runs
 * out.
 */
u64 alloc_page(void);
void free_page(u64 gpa);
u64 alloc_large_page(void);		/* 2 MiB, aligned; not zeroed */
void free_large_page(u64 gpa);
void *alloc_contiguous(u64 size);	/* never freed; zeroed; linear address */
u64 pages_in_use(void);

static inline void *to_linear(u64 gpa)
{
	return (void *)(machine.info.direct_map + gpa);
}

static inline u64 to_gpa(const void *linear)
{
	return (u64)linear - machine.info.direct_map;
}

#endif
