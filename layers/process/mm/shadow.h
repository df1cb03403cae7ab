/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The shadow: what this process has mapped of the guest's memory. All functions need the process's
 * lock. A pointer to an entry is valid until the next call that may drop everything; those say so.
 */
#ifndef PROCESS_RECORDS_H
#define PROCESS_RECORDS_H

#include "host/call.h"
#include "mm/walk.h"

/* An entry is a guest-physical address and these bits. 0: nothing is mapped. */
#define SHADOW_PRESENT 1ULL
#define SHADOW_WRITE 2ULL
#define SHADOW_EXEC 4ULL
#define SHADOW_USER 8ULL
#define SHADOW_LARGE 0x80ULL

/*
 * What to map for the result of a walk: writable only if dirty, so that the first write sets the
 * bit.
 */
static inline u64 shadow_flags(const struct walk *w)
{
	return SHADOW_PRESENT | (w->writable && (w->pte & PTE_D) ? SHADOW_WRITE : 0) |
	       (w->executable ? SHADOW_EXEC : 0) | (w->user ? SHADOW_USER : 0);
}

/* The protection of a host mapping with these bits. */
static inline u64 shadow_protection(u64 flags)
{
	return PROT_READ | (flags & SHADOW_WRITE ? PROT_WRITE : 0) |
	       (flags & SHADOW_EXEC ? PROT_EXEC : 0);
}

/*
 * Whether a flush would keep a 4 KiB entry, by the guest's entry and the result of the walk above
 * it.
 */
static inline bool shadow_agrees(u64 have, u64 pte, const struct walk *above)
{
	u64 want = SHADOW_PRESENT |
		(above->above_writable && (pte & PTE_W) && (pte & PTE_D) ? SHADOW_WRITE : 0) |
		   (above->above_executable && !(pte & PTE_NX) ? SHADOW_EXEC : 0) |
		   (above->above_user && (pte & PTE_U) ? SHADOW_USER : 0);

	return (pte & (PTE_P | PTE_A)) == (PTE_P | PTE_A) && have == ((pte & PTE_ADDR) | want);
}

/*
 * The size of the largest guest page that is mapped in smaller pieces. A flush of any address of
 * such a page is a flush of all of it.
 */
extern u64 shadow_widest;

/*
 * The entry for the 4 KiB or the 2 MiB at va. The caller may read it or set it to 0;
 * shadow_set_run() sets entries of 4 KiB. NULL if it does not exist and is not to be made, or if
 * there is no room. Entries of 4 KiB in the same 2 MiB lie in a row.
 */
u64 *shadow_word(u64 va, u64 size, bool make);
/* Where shadow_next() was: the entries of 2 MiB, and which groups of them may be in use. */
struct shadow_leaf {
	u64 *words, *groups;
};
/*
 * The first entry in use at or after *va and below end, or NULL. Sets *va to its start and *size to
 * what it covers. *leaf is zero at first; a later call that continues after that entry gets what
 * the last one left. It is valid as long as entries are.
 */
u64 *shadow_next(u64 *va, u64 end, u64 *size, struct shadow_leaf *leaf);
/*
 * Sets the entries of pages that were mapped: neighbours in memory and in the file, within 2 MiB,
 * for which shadow_word() has made room. word: the entry of the first page.
 */
void shadow_set_run(u64 va, u32 pages, u64 word);
/* Something was mapped at va. replaces: perhaps in the middle of another mapping. */
void shadow_mapped(u64 va, bool replaces);
/* Adds to the number of 2 MiB entries; more may be negative. */
void shadow_count_large(u64 va, s32 more);

/* A host call may have added this many mappings. */
void shadow_count_mappings(u64 va, u32 more);
/* Sets proc.user_mappings to the real number. */
void shadow_recount_user(void);
/* Whether there is no room for more host tables. Reports their number to the monitor. */
bool shadow_tables_full(void);
/* Makes room for the mappings of one fill or flush. False: everything was dropped for it. */
bool shadow_maps_room(void);
/* Unmaps a range, whose entries the caller clears. False: everything was dropped. */
bool shadow_unmap(u64 start, u64 end);
/* Drops everything, user and kernel: the cost of running out of arena or of host mappings. */
void shadow_drop_all(void);
/* Drops the user range. Mappings of the kernel's range stay. */
void tlb_drop_user(void);
/* Drops everything, and returns the shadow's memory to the host. */
void shadow_trim(void);

#endif
