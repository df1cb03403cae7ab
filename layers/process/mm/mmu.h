/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Guest page tables, and the host mappings that stand for their translations. */
#ifndef PROCESS_MMU_H
#define PROCESS_MMU_H

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

/* Result of a walk of the guest's tables. */
struct walk {
	u64 *slot;		/* the leaf entry */
	u64 pte;		/* its value */
	u64 gpa;		/* of the page that contains the address, 4 KiB */
	u64 span;		/* bytes that the leaf maps */
	bool writable, user, executable;	/* all levels together */
	bool above_writable, above_user, above_executable;	/* all levels but the leaf's */
};

/* Walks for va from the root that it belongs to. False: not present. Sets accessed bits on the way if asked. */
bool walk_guest(const struct vcpu *v, u64 va, struct walk *w, bool accessed);
/* The same from a root. */
bool walk_tables(u64 root, u64 va, struct walk *w, bool accessed);

/*
 * A fault at va: fills and returns true, or false with the error code for the guest.
 * access: PF_WRITE, PF_FETCH, PF_USER bits.
 */
bool tlb_fault(struct vcpu *v, u64 va, u32 access, u64 *error);

/* Makes the host mappings of start to end - 1 agree with the guest's tables, or go. */
void tlb_resync(struct vcpu *v, u64 start, u64 end);
/* The same for who has the process's lock. */
void tlb_resync_held(struct vcpu *v, u64 start, u64 end);
void tlb_resync_user(struct vcpu *v);
/*
 * The same for a space's new generation, which the process is good for afterwards: only the range where the generation is the next one,
 * everything where others are missing, nothing where it is past.
 */
void tlb_flush_space(struct vcpu *v, u64 generation, u64 start, u64 end);
/* The same for what all spaces share; processes that are loaded later compare all of it (space.c). */
void tlb_flush_kernel(struct vcpu *v, u64 start, u64 end);
void tlb_resync_kernel(struct vcpu *v);
/*
 * Kernels clear accessed bits without a flush, to see which pages are in use. A page that stays mapped would look unused for ever;
 * so now and then everything is compared: at most once a second, on behalf of a vCPU that has the space loaded. now: TSC.
 */
void tlb_age(struct vcpu *v, u64 now);
/* Drops the user range; what the kernel maps stays. */
void tlb_drop_user(void);
/*
 * The same for a space that this process did not have, except that what is in its tables as it was mapped for the one before stays: most
 * often that is the text of a program that forks again and again. Of a space that is expected to become like the one before, what is only
 * read stays until tlb_kernel_done().
 */
void tlb_take_over(struct vcpu *v);
/* Unmaps pages of the user range that only the kernel may see, on the way to another process. */
void tlb_drop_supervisor(struct vcpu *v);
/* The same on the way to user mode; and what has been kept on the kernel's promise (mmu.expect_space) becomes what the tables say. */
void tlb_kernel_done(struct vcpu *v);
/* Shows a page of device registers at va, read-only. Under the process's lock. */
void tlb_fill_device(struct vcpu *v, u64 va, const struct walk *w);
/* Maps what the tables say for count pages from va, without a fault. */
void tlb_fill(struct vcpu *v, u64 va, u32 count);

#endif
