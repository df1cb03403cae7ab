/* SPDX-License-Identifier: GPL-2.0-only */
/* The VMI's part of mm_context_t. */
#ifndef _ASM_X86_VMI_MM_H
#define _ASM_X86_VMI_MM_H

#include <linux/bits.h>
#include <linux/stddef.h>
#include <linux/types.h>
#include <asm/vmi_cost.h>

struct vmi_sites;

/* Bits of the filter of hot pages: a power of two, many times the number of these pages. */
#define VMI_HOT_FILTER_BITS 1024

/*
 * What fork has copied for a process that has not run yet (arch/x86/vmi/fork.c). The parent writes
 * it during fork, the child reads it once before it returns to user mode. No lock: nothing else
 * uses the child's mm in between.
 */
struct vmi_fork_pages {
	/*
	 * Copied pages. Places are reserved for hot ones, for those between them, and for the page
	 * at the stack pointer.
	 */
	unsigned long address[VMI_FORK_PAGES + VMI_FORK_HOT_PAGES + VMI_FORK_CHILD_PAGES +
			      VMI_FORK_BETWEEN_PAGES + 1];
	/*
	 * First of the pages that the dynamic linker has made constant: the child reads them first.
	 */
	unsigned long constants;
	unsigned int constant_pages;
	unsigned int count;
	/* Those among them that are in no reserved place, and those between others. */
	unsigned int plain, between;
	/* Pages of the mappings of files whose entries were copied. */
	unsigned int file_pages;
	bool pending;
};

/*
 * Pages on which a process with one thread, or one of its children, faulted because fork had shared
 * them. The thread writes it without a lock, and so may one child at a time: it is a guess, and an
 * address that one of them overwrites is learnt again. A child inherits it.
 */
struct vmi_hot_pages {
	/*
	 * Addresses: of the process's own writes, then of its children's. The lower bits count the
	 * forks that have copied the page.
	 */
	unsigned long page[VMI_FORK_HOT_PAGES + VMI_FORK_CHILD_PAGES];
	/* The lower bits of their page numbers: fork sees many pages, of which few are hot. */
	unsigned long filter[VMI_HOT_FILTER_BITS / BITS_PER_LONG];
	/* The next places to use. */
	unsigned int next, next_of_child;
	/* Pages that this process has made hot in its parent. */
	unsigned int told;
};

/* Pages that a process has written one after the other. See arch/x86/vmi/copy.c. */
struct vmi_row {
	unsigned long shared;	/* address of the last written page that fork may have shared */
	unsigned long next;	/* address of the first page that is not copied yet */
	unsigned int ahead;	/* pages that the last fault wanted to copy; 0: no row */
};

struct vmi_mm {
	struct vmi_fork_pages fork;
	struct vmi_hot_pages hot;
	struct vmi_row row;
	/* Sites that are replaced in the process's own copy of its text (usertext/), or NULL. */
	struct vmi_sites *sites;
	/*
	 * Pages that were prepared since exec: of small anonymous mappings, and of libraries. A
	 * child inherits the numbers. The holder of the mmap lock for writing changes the first;
	 * the second is a guess that two threads may both change.
	 */
	unsigned short anon_pages, library_pages;
};

/* A new mm, which may be a copy of its parent's. */
static inline void vmi_mm_init(struct vmi_mm *vmi)
{
	vmi->fork.pending = false;
	vmi->fork.count = 0;
	vmi->fork.plain = 0;
	vmi->fork.between = 0;
	vmi->fork.constant_pages = 0;
	vmi->fork.file_pages = 0;
	vmi->hot.told = 0;
	vmi->sites = NULL;
}

#endif
