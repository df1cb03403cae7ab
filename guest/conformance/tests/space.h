/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* User address spaces. */
#ifndef TESTS_SPACE_H
#define TESTS_SPACE_H

#include "../kernel/mm.h"
#include "../kernel/types.h"

#define SPACE_TABLES 64

struct space {
	u64 root;		/* guest-physical */
	u64 context, generation;
	u32 table_count;
	struct {
		u64 gpa;
		u32 level;
	} tables[SPACE_TABLES];
};

/* A new space with the user text mapped. */
void space_create(struct space *space);
/* Frees every table. The space must not be loaded. */
void space_destroy(struct space *space);
/* Loads it on this vCPU. NULL: the kernel's own space. */
void space_load(struct space *space);

/* The entry for va at a level. Makes the tables above it as needed. */
u64 *space_pte(struct space *space, u64 va, u32 level);
/* Writes the entry with mmu.set_pte, level 1 to 3. Does not flush. */
void space_set(struct space *space, u64 va, u64 value, u32 level);
void space_set_flags(struct space *space, u64 va, u64 value, u32 level, u32 flags);

#endif
