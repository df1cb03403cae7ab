/* SPDX-License-Identifier: GPL-2.0-only */
/* What an address space keeps of the sites that are replaced in its own copy of its text. */
#ifndef ARCH_X86_VMI_USERTEXT_MM_H
#define ARCH_X86_VMI_USERTEXT_MM_H

#include <linux/mm_types.h>
#include <linux/refcount.h>
#include <linux/sizes.h>
#include "../vmi.h"
#include "shape.h"

#define AREA_SIZE SZ_64K
#define AREA_PAGES (AREA_SIZE / PAGE_SIZE)
#define AREAS_MAX 16

/* A special mapping near some text, with stubs. */
struct area {
	unsigned long start;
	struct page *pages[AREA_PAGES];
	struct vmi_patch_area layer[AREA_PAGES];
	unsigned int count;
	bool gone;		/* the process has unmapped or moved it */
};

struct site {
	unsigned long back;	/* return address of the system call */
	unsigned long start;	/* of the bytes that were replaced */
	unsigned long cave;	/* of a second jump, or 0 */
	unsigned long stub;
	u8 length;		/* bytes at start */
	u8 old[JUMP_SIZE], new[JUMP_SIZE];
	u8 cave_old[JUMP_SIZE], cave_new[JUMP_SIZE];
	u8 code[SHAPE_PREFIX_MAX + 2];
};

/*
 * fork shares it between parent and child until one of them adds to it. The holder of the only
 * reference changes it, with the mmap lock held for writing.
 */
struct vmi_sites {
	refcount_t count;
	unsigned int areas, sites, room;
	struct area *area[AREAS_MAX];
	/* Other processes may map the pages below this index: they get no new stubs. */
	unsigned int first_own[AREAS_MAX];
	struct site *site;
};

#endif
