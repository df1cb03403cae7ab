/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Host mappings in place of guest translations: faults and fills. */
#ifndef PROCESS_FILL_H
#define PROCESS_FILL_H

#include "common/faults.h"
#include "mm/walk.h"
#include "state/state.h"

/*
 * Handles a fault at va. Returns true after a fill; false with the error code for the guest
 * otherwise. access: PF_WRITE, PF_FETCH, PF_USER bits.
 */
bool tlb_fault(struct vcpu *v, u64 va, u32 access, u64 *error);

#if FAULT(DEFER_FORGOTTEN)
/* A page whose entry is new, of which the layer pretends not to know yet. */
extern u64 tlb_deferred_page;
#endif

/* Unmaps user-range pages that only the kernel may see, on the way to another process. */
void tlb_drop_supervisor(struct vcpu *v);
/* Unmaps them on the way to user mode. Also flushes what mmu.expect_space has kept. */
void tlb_kernel_done(struct vcpu *v);
/* Maps a page of device registers at va, read-only. Under the process's lock. */
void tlb_fill_device(struct vcpu *v, u64 va, const struct walk *w);
/* Maps what the tables say for count pages from va, without a fault. */
void tlb_fill(struct vcpu *v, u64 va, u32 count);
/*
 * Maps neighbouring pages of one region over others. word: the shadow entry of the first, which the
 * caller has set, as those of the others. False: everything else was dropped, and the entries may
 * be among that.
 */
bool tlb_map_run(u64 va, u64 size, u64 word);
/* The RAM region of an address. */
u32 region_of(u64 gpa);

#endif
