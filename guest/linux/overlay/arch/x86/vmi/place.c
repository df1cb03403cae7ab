// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where a layer that is not in its place is copied to: memory that is near all of the kernel's
 * sites, and executable. A small one has room in the image. A larger one gets memory of its own,
 * mapped below the image, where the kernel has nothing.
 *
 * And where it may have addresses for itself: where the kernel and programs have none.
 */
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/sizes.h>
#include <asm/page.h>
#include <asm/pgtable.h>
#include <asm/sections.h>
#include <asm/tlbflush.h>
#include <asm/vmi.h>
#include "vmi.h"

/* vmi_set_memory_nx() leaves it executable. */
static u8 image_space[SZ_256K] __page_aligned_bss;

/*
 * The first GiB of the kernel's map has one table. Before the image, which begins at 16 MiB or
 * later, its entries are empty.
 */
static void *__init map_below_image(u64 size)
{
	unsigned long start = ((unsigned long)_text & PMD_MASK) - size, i;
	pmd_t *entry = level2_kernel_pgt + pmd_index(start);
	phys_addr_t memory;

	if (start < __START_KERNEL_map)
		return NULL;
	for (i = 0; i < size / PMD_SIZE; i++)
		if (!pmd_none(entry[i]))
			return NULL;
	memory = memblock_phys_alloc(size, PMD_SIZE);
	for (i = 0; memory && i < size / PMD_SIZE; i++)
		set_pmd(&entry[i], __pmd((memory + i * PMD_SIZE) |
					 (__PAGE_KERNEL_LARGE_EXEC & __supported_pte_mask)));
	return memory ? (void *)start : NULL;
}

void *__ref vmi_layer_space(u64 size)
{
	if (size <= sizeof(image_space))
		return image_space;
	/* Before the kernel has its own page tables there is no other room. */
	return vmi_low ? NULL : map_below_image(round_up(size, PMD_SIZE));
}

bool __init vmi_layer_in_the_way(void)
{
	const struct vmi_rom_header *h = &vmi_layer.rom.header;

	if (!h->reserve_end)
		return false;
	/* Addresses that are not canonical, and those that Linux leaves to hypervisors. */
	return h->reserve_start < 1UL << __VIRTUAL_MASK_SHIFT ||
	       h->reserve_end > GUARD_HOLE_END_ADDR;
}
