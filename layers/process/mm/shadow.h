/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * What this process has mapped of the guest's memory (shadow.c). Everything here is called under the process's lock. A pointer to a
 * record is good until the next call that may forget everything: those that say so below.
 */
#ifndef PROCESS_RECORDS_H
#define PROCESS_RECORDS_H

#include "mm/walk.h"

/* A record: a guest physical address, and these. 0: nothing is mapped. */
#define SHADOW_PRESENT 1ULL
#define SHADOW_WRITE 2ULL
#define SHADOW_EXEC 4ULL
#define SHADOW_USER 8ULL
#define SHADOW_LARGE 0x80ULL

/* What is to be mapped for a walk's result: writable only if dirty, so that the first write sets the bit. */
static inline u64 shadow_flags(const struct walk *w)
{
	return SHADOW_PRESENT | (w->writable && (w->pte & PTE_D) ? SHADOW_WRITE : 0) |
	       (w->executable ? SHADOW_EXEC : 0) | (w->user ? SHADOW_USER : 0);
}

/* Is this record of 4 KiB what a flush would leave, by the entry, and by what a walk found above it? */
static inline bool shadow_agrees(u64 have, u64 pte, const struct walk *above)
{
	u64 want = SHADOW_PRESENT | (above->above_writable && (pte & PTE_W) && (pte & PTE_D) ? SHADOW_WRITE : 0) |
		   (above->above_executable && !(pte & PTE_NX) ? SHADOW_EXEC : 0) |
		   (above->above_user && (pte & PTE_U) ? SHADOW_USER : 0);

	return (pte & (PTE_P | PTE_A)) == (PTE_P | PTE_A) && have == ((pte & PTE_ADDR) | want);
}

/* Of the guest's pages that are mapped in smaller pieces, the size of the largest: a flush of any address of such a page is one of all. */
extern u64 shadow_widest;

/* The word of the tree, to be looked at or changed to zero (else shadow_set_run() is for 4 KiB), for the 4 KiB or the 2 MiB at va; NULL if absent and not to be made, or no room. Those of 2 MiB lie in a row. */
u64 *shadow_word(u64 va, u64 size, bool make);
/* Where shadow_next() has been: the records of 2 MiB, and which of them there may be. */
struct shadow_leaf {
	u64 *words, *groups;
};
/*
 * The first record at or behind *va and below end, or NULL. *va becomes where it begins, *size what it covers. *leaf is zero at first, and what
 * the last call left there where *va goes on behind that record; it is good as long as records are.
 */
u64 *shadow_next(u64 *va, u64 end, u64 *size, struct shadow_leaf *leaf);
/* Records pages that have been mapped: neighbours, here and in the file, within 2 MiB, for which shadow_word() has made room. word: the first one's. */
void shadow_set_run(u64 va, u32 pages, u64 word);
/* Something has been mapped at va; replaces: perhaps in the middle of something. */
void shadow_mapped(u64 va, bool replaces);
/* So many more records of 2 MiB, or fewer. */
void shadow_count_large(u64 va, s32 more);

/* A host call may have made so many mappings more than there were. */
void shadow_count_mappings(u64 va, u32 more);
/* proc.user_mappings becomes what it really is. */
void shadow_recount_user(void);
/* Is there no more room for host tables? Tells the monitor how many there are. */
bool shadow_tables_full(void);
/* Room for the mappings that one fill or flush makes. False: everything has been forgotten to make it. */
bool shadow_maps_room(void);
/* Takes something out; the caller clears its records. False: everything has been forgotten. */
bool shadow_unmap(u64 start, u64 end);
/* Forgets everything, user and kernel: the price of running out of arena or of host mappings. */
void shadow_drop_all(void);
/* Drops the user range; what the kernel maps stays. */
void tlb_drop_user(void);
/* That, and the memory of the records goes back to the host. */
void shadow_trim(void);

#endif
