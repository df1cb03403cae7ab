// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "paging.h"
#include "calls.h"
#include "layout.h"
#include "mm.h"
#include "site.h"

u64 *kernel_root;
u64 kernel_area;

static u64 *new_table(u32 level)
{
	u64 gpa = alloc_page();

	vmi.mmu_register_page_table(gpa, level);
	return to_linear(gpa);
}

u64 *kernel_pte(u64 va, u32 level)
{
	u64 *table = kernel_root;
	u32 at;

	for (at = VMI_LEVEL_PML4; at > level; at--) {
		u64 *entry = &table[va >> (3 + 9 * at) & 511];

		if (!(*entry & PTE_P))
			vmi.mmu_set_pte(entry, to_gpa(new_table(at - 1)) | PTE_P |
					PTE_W, at, 0);
		table = to_linear(*entry & PTE_ADDRESS);
	}
	return &table[va >> (3 + 9 * level) & 511];
}

static void map(u64 va, u64 gpa, u64 size, u32 level, u64 bits)
{
	u64 step = PAGE_SIZE << (9 * (level - 1));
	u64 offset;

	if (level > VMI_LEVEL_PT)
		bits |= PTE_PS;
	for (offset = 0; offset < size; offset += step)
		vmi.mmu_set_pte(kernel_pte(va + offset, level),
				(gpa + offset) | bits, level, va + offset);
}

static bool overlaps(u64 from, u64 to)
{
	const struct vmi_boot_info *info = &machine.info;
	const struct vmi_rom_header *h = &layer.rom.header;
	u32 i;

	for (i = 0; i < info->hole_count; i++)
		if (from < info->holes[i].end && to > info->holes[i].start)
			return true;
	if (layer.present && from < h->reserve_end && to > h->reserve_start)
		return true;
	if (machine.apic && from <= machine.apic && to > machine.apic)
		return true;
	return from < info->image + info->image_size && to > info->image;
}

void paging_init(void)
{
	const struct vmi_boot_info *info = &machine.info;
	u64 ram = 0;
	u32 i;

	for (i = 0; i < info->mem_count; i++)
		if (info->mem[i].kind == VMI_MEM_RAM)
			ram = MAX(ram, info->mem[i].gpa + info->mem[i].size);
	ram = ALIGN_UP(MIN(ram, info->direct_map_size), LARGE_SIZE);
	kernel_root = to_linear(alloc_page());
	map(info->direct_map, 0, ram, VMI_LEVEL_PD, PTE_P | PTE_W | PTE_NX);
	map(info->image, info->image_gpa, info->image_size, VMI_LEVEL_PT,
	    PTE_P | PTE_W);
	if (machine.apic)
		map(machine.apic, APIC_GPA, PAGE_SIZE, VMI_LEVEL_PT,
		    PTE_P | PTE_W | PTE_NX | PTE_PCD | PTE_PWT);
	if (machine.low_page)
		map(machine.low_page, machine.low_page, PAGE_SIZE, VMI_LEVEL_PT,
		    PTE_P | PTE_W);
	kernel_area = ALIGN_UP(info->direct_map + ram, GIB) + GIB;
	while (overlaps(kernel_area, kernel_area + KERNEL_AREA_SIZE))
		kernel_area += GIB;
	/* Address spaces copy root entries, so create the entry of the area now. */
	kernel_pte(kernel_area, VMI_LEVEL_PD);
	vmi.mmu_register_page_table(to_gpa(kernel_root),
				    VMI_LEVEL_PML4 | VMI_PT_KERNEL_ROOT);
	set_cr3(to_gpa(kernel_root), 1, 1);
}
