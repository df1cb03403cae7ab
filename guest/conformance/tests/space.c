// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "space.h"
#include "user_mode.h"
#include "test.h"

/* A number that no other space gets. 1 is the kernel's own. */
static u64 last_context = 1;
static u64 user_text_gpa, user_text_size;

u64 user_base;

bool in_hole(u64 from, u64 to)
{
	const struct vmi_boot_info *info = &machine.info;
	const struct vmi_rom_header *h = &layer.rom.header;
	u32 i;

	for (i = 0; i < info->hole_count; i++)
		if (from < info->holes[i].end && to > info->holes[i].start)
			return true;
	if (from < info->image + info->image_size && to > info->image)
		return true;
	return layer.present && from < h->reserve_end && to > h->reserve_start;
}

/* The user text is copied once, and every space maps the copy. */
static void init(void)
{
	user_base = 0x1000000000;
	while (in_hole(user_base, user_base + USER_SIZE))
		user_base += GIB;
	if (user_base + USER_SIZE > machine.info.user_end)
		panic("no room for user programs");
	user_text_size = user_text_end - user_text_start;
	user_text_gpa = to_gpa(alloc_contiguous(user_text_size));
	memcpy(to_linear(user_text_gpa), user_text_start, user_text_size);
}

static u64 new_table(struct space *space, u32 level)
{
	u64 gpa = alloc_page();

	CHECK(space->table_count < SPACE_TABLES);
	space->tables[space->table_count].gpa = gpa;
	space->tables[space->table_count++].level = level;
	return gpa;
}

void space_create(struct space *space)
{
	u64 *root, offset;
	u32 i;

	if (!user_base)
		init();
	memset(space, 0, sizeof(*space));
	space->root = new_table(space, VMI_LEVEL_PML4);
	space->context = atomic_add(&last_context, 1);
	space->generation = 1;
	root = to_linear(space->root);
	/* The layer handles kernel addresses in the lower half. */
	for (i = 256; i < 512; i++)
		root[i] = kernel_root[i];
	CHECK_RESULT(vmi.mmu_register_page_table(space->root, VMI_LEVEL_PML4), 0);
	for (offset = 0; offset < user_text_size; offset += PAGE_SIZE)
		space_set(space, USER_TEXT + offset,
			  (user_text_gpa + offset) | PTE_P | PTE_U, VMI_LEVEL_PT);
	space_set(space, USER_STACK, alloc_page() | PTE_P | PTE_W | PTE_U | PTE_NX,
		  VMI_LEVEL_PT);
}

void space_destroy(struct space *space)
{
	u32 i;

	free_page(*space_pte(space, USER_STACK, VMI_LEVEL_PT) & PTE_ADDRESS);
	for (i = space->table_count; i--;) {
		CHECK_RESULT(vmi.mmu_release_page_table(space->tables[i].gpa,
							space->tables[i].level), 0);
		free_page(space->tables[i].gpa);
	}
	space->table_count = 0;
}

void space_load(struct space *space)
{
	this_cpu()->space = space;
	if (space)
		set_cr3(space->root, space->context, space->generation);
	else
		set_cr3(to_gpa(kernel_root), 1, 1);
}

u64 *space_pte(struct space *space, u64 va, u32 level)
{
	u64 *table = to_linear(space->root);
	u32 at, current;

	for (at = VMI_LEVEL_PML4; at > level; at--) {
		u64 *slot = &table[va >> (3 + 9 * at) & 511];

		if (!(*slot & PTE_P)) {
			u64 gpa = new_table(space, at - 1);

			CHECK_RESULT(vmi.mmu_register_page_table(gpa, at - 1), 0);
			current = this_cpu()->space == space ? VMI_PTE_CURRENT : 0;
			vmi.mmu_set_pte(slot, gpa | PTE_P | PTE_W | PTE_U,
					at | current, va);
		}
		table = to_linear(*slot & PTE_ADDRESS);
	}
	return &table[va >> (3 + 9 * level) & 511];
}

void space_set_flags(struct space *space, u64 va, u64 value, u32 level, u32 flags)
{
	u64 *slot = space_pte(space, va, level);

	if (this_cpu()->space == space)
		flags |= VMI_PTE_CURRENT;
	vmi.mmu_set_pte(slot, value, level | flags, va);
}

void space_set(struct space *space, u64 va, u64 value, u32 level)
{
	space_set_flags(space, va, value, level, 0);
}
