/* SPDX-License-Identifier: GPL-2.0-only */
/* What sites_private.c keeps of an address space, and slots.c gives it. */
#ifndef ARCH_X86_VMI_SITES_H
#define ARCH_X86_VMI_SITES_H

#include <linux/mm_types.h>
#include <linux/refcount.h>
#include <linux/sizes.h>
#include "shape.h"
#include "text_map.h"
#include "../vmi.h"

#define AREA_SIZE SZ_64K
#define AREA_PAGES (AREA_SIZE / PAGE_SIZE)
#define AREAS_MAX 16

/* Slots near some text, mapped with everything else of the process's. */
struct area {
	unsigned long start;
	struct page *pages[AREA_PAGES];
	struct vmi_patch_area layer[AREA_PAGES];
	unsigned int count;
	bool gone;
};

struct site {
	unsigned long back;	/* return address */
	unsigned long start;	/* of what was replaced */
	unsigned long cave;
	unsigned long slot;
	u8 length;		/* bytes at start */
	u8 old[JUMP_SIZE], new[JUMP_SIZE];
	u8 cave_old[JUMP_SIZE], cave_new[JUMP_SIZE];
	u8 code[SHAPE_PREFIX_MAX + 2];
};

/*
 * Of an address space; shared by those that fork made of it until one adds to it. Changed with the mmap lock held for
 * writing, by the only one that has it.
 */
struct vmi_sites {
	refcount_t count;
	unsigned int areas, sites, room;
	struct area *area[AREAS_MAX];
	/* Pages below this may be mapped by others: no new slots there. */
	unsigned int first_own[AREAS_MAX];
	struct site *site;
};

/* Counts what came of a site. */
void sites_note(enum outcome outcome);

/*
 * Replaces the site that has trapped with these registers, in a text of the process's own (vmi_is_private_text). With the mmap lock held for writing.
 */
enum outcome site_private(struct vm_area_struct *vma, const struct pt_regs *regs);

/* Puts back what is replaced in a range. With the mmap lock held for writing. */
void sites_private_put_back(struct mm_struct *mm, unsigned long start, unsigned long end);

/*
 * Finds a slot for a site near its text, and has the layer fill it. -ENOSPC: there is none within reach; -ENOMEM; -EINVAL: the layer does not
 * take it. The caller has the mmap lock for writing, and sites are the address space's own.
 */
int slot_claim(struct mm_struct *mm, struct vmi_sites *sites, struct vm_area_struct *text,
	       struct vmi_syscall_site *site);

#endif
