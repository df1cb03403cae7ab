/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Guest page tables. */
#ifndef PROCESS_WALK_H
#define PROCESS_WALK_H

#include "state/state.h"

#define PTE_P 0x1ULL
#define PTE_W 0x2ULL
#define PTE_U 0x4ULL
#define PTE_A 0x20ULL
#define PTE_D 0x40ULL
#define PTE_PS 0x80ULL
#define PTE_G 0x100ULL
#define PTE_NX 0x8000000000000000ULL
#define PTE_ADDR 0x000ffffffffff000ULL

#define PF_PRESENT 1
#define PF_WRITE 2
#define PF_USER 4
#define PF_RESERVED 8
#define PF_FETCH 16

/* The result of a walk. */
struct walk {
	u64 *entry;		/* the leaf entry */
	u64 pte;		/* its value */
	u64 gpa;		/* of the 4 KiB page that contains the address */
	u64 span;		/* bytes that the leaf maps */
	bool writable, user, executable;	/* all levels combined */
	bool above_writable, above_user, above_executable;	/* all levels but the leaf's */
};

/*
 * Walks the tables for va from the root that serves it. False: not present. accessed: sets accessed
 * bits on the way.
 */
bool walk_guest(const struct vcpu *v, u64 va, struct walk *w, bool accessed);
/* walk_guest() in a space that the vCPU need not have loaded. */
bool walk_space(u64 cr3, u64 va, struct walk *w, bool accessed);
/* walk_guest() from a given root. */
bool walk_tables(u64 root, u64 va, struct walk *w, bool accessed);

#endif
