// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Physical memory: the largest RAM range that is not in use is handed out from
 * its start (small pages) and from its end (2 MiB pages); freed pages go to
 * lists. And the kernel's own page tables.
 */
#include "mm.h"
#include "console.h"
#include "layer.h"
#include "lock.h"
#include "site.h"

#define LOW_PAGE	0x8000		/* conventional memory, free after boot */
#define APIC_GPA	0xfee00000

u64 *kernel_root;
u64 kernel_area;

static struct spinlock lock;
static u64 next, end;			/* what was never handed out */
static u64 free_pages, free_large;	/* lists, linked through the first word */
static u64 in_use;

static void consider(u64 from, u64 to)
{
	from = ALIGN_UP(from, PAGE_SIZE);
	to = ALIGN_DOWN(to, PAGE_SIZE);
	if (to > from && to - from > end - next) {
		next = from;
		end = to;
	}
}

void mm_init(void)
{
	const struct vmi_boot_info *info = &machine.info;
	u64 image = info->image_gpa, image_to = image + info->image_size;
	u32 i;

	for (i = 0; i < info->mem_count; i++) {
		u64 from = info->mem[i].gpa, to = from + info->mem[i].size;

		if (info->mem[i].kind != VMI_MEM_RAM)
			continue;
		to = MIN(to, info->direct_map_size);
		/* The boot code's tables, and what firmware left, are below 2 MiB. */
		from = MAX(from, 2 * MIB);
		if (info->initrd_size)
			to = MIN(to, MAX(from, info->initrd_gpa));
		if (from < image_to && to > image) {
			consider(from, image);
			consider(image_to, to);
		} else {
			consider(from, to);
		}
	}
	if (end - next < 16 * MIB)
		panic("too little memory: %llu KiB", (end - next) / KIB);
	if (machine.pvh) {
		machine.low_page = LOW_PAGE;
		machine.apic = info->direct_map + APIC_GPA;
	}
}

static u64 pop(u64 *list)
{
	u64 gpa = *list;

	if (gpa)
		*list = *(u64 *)to_linear(gpa);
	return gpa;
}

static void push(u64 *list, u64 gpa)
{
	*(u64 *)to_linear(gpa) = *list;
	*list = gpa;
}

u64 alloc_page(void)
{
	u64 gpa;

	spin_lock(&lock);
	gpa = pop(&free_pages);
	if (!gpa && next < end) {
		gpa = next;
		next += PAGE_SIZE;
	}
	in_use++;
	spin_unlock(&lock);
	if (!gpa)
		panic("out of memory");
	memset(to_linear(gpa), 0, PAGE_SIZE);
	return gpa;
}

void free_page(u64 gpa)
{
	spin_lock(&lock);
	push(&free_pages, gpa);
	in_use--;
	spin_unlock(&lock);
}

u64 alloc_large_page(void)
{
	u64 gpa;

	spin_lock(&lock);
	gpa = pop(&free_large);
	if (!gpa) {
		end = ALIGN_DOWN(end, LARGE_SIZE);
		if (end - next >= LARGE_SIZE)
			gpa = end -= LARGE_SIZE;
	}
	in_use += LARGE_SIZE / PAGE_SIZE;
	spin_unlock(&lock);
	if (!gpa)
		panic("out of large pages");
	return gpa;
}

void free_large_page(u64 gpa)
{
	spin_lock(&lock);
	push(&free_large, gpa);
	in_use -= LARGE_SIZE / PAGE_SIZE;
	spin_unlock(&lock);
}

void *alloc_contiguous(u64 size)
{
	u64 gpa;

	size = ALIGN_UP(size, PAGE_SIZE);
	spin_lock(&lock);
	gpa = next;
	next += size;
	spin_unlock(&lock);
	if (gpa + size > end)
		panic("out of memory");
	return memset(to_linear(gpa), 0, size);
}

u64 pages_in_use(void)
{
	return in_use;
}

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
		u64 *slot = &table[va >> (3 + 9 * at) & 511];

		if (!(*slot & PTE_P))
			vmi.mmu_set_pte(slot, to_gpa(new_table(at - 1)) | PTE_P |
					PTE_W, at, 0);
		table = to_linear(*slot & PTE_ADDRESS);
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

void mm_init_tables(void)
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
	/* Spaces copy root entries: the one for the area must be there by then. */
	kernel_pte(kernel_area, VMI_LEVEL_PD);
	vmi.mmu_register_page_table(to_gpa(kernel_root),
				    VMI_LEVEL_PML4 | VMI_PT_KERNEL_ROOT);
	set_cr3(to_gpa(kernel_root), 1, 1);
}
