// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Bounds and repetitions of calls of section mmu; PCIDs and the number of levels. */
#include "pages.h"
#include "test.h"

#define CR4_LA57	(1ull << 12)
#define CR4_PCIDE	(1ull << 17)

static struct space space;

static u64 *entry_of(u64 va)
{
	return space_pte(&space, va, VMI_LEVEL_PT);
}

/* Runs that are empty, leave the table or are the kernel's: no effect. */
TEST(fill_bounds, "mmu.fill.bounds", 1, 0, MMU_FILL)
{
	u64 gpa = identity_page(), va = USER_DATA & ~(LARGE_SIZE - 1), last = va + 511 * PAGE_SIZE;

	space_create(&space);
	space_load(&space);
	space_set(&space, va, gpa | USER_RW, VMI_LEVEL_PT);
	space_set(&space, last, gpa | USER_RO, VMI_LEVEL_PT);
	space_set(&space, last + PAGE_SIZE, gpa | USER_RO, VMI_LEVEL_PT);
	vmi.mmu_fill(va, entry_of(va), 0);
	vmi.mmu_fill(va, entry_of(va), 513);
	vmi.mmu_fill(va, entry_of(va), 0xffffffff);
	vmi.mmu_fill(last, entry_of(last), 2);
	vmi.mmu_fill(last, entry_of(last), 0x80000000);
	vmi.mmu_fill(kernel_area, kernel_pte(kernel_area, VMI_LEVEL_PT), 1);
	vmi.mmu_fill(kernel_area, kernel_pte(kernel_area, VMI_LEVEL_PT), 512);
	vmi.mmu_fill((u64)to_linear(gpa), entry_of(va), 1);
	expect_page_user(va, gpa);
	expect_page_user(last, gpa);
	expect_page_user(last + PAGE_SIZE, gpa);
	expect_fault(USER_WRITE, last, PF_P | PF_W | PF_U);
	expect_fault(USER_READ, va + PAGE_SIZE, PF_U);
	expect_fault(KERNEL_READ, kernel_area, 0);
	CHECK_EQ(*(u64 *)to_linear(gpa), identity(gpa));
	space_load(NULL);
	space_destroy(&space);
	free_page(gpa);
}

/* A page may be registered more than once, also at another level, and one release ends it. */
TEST(register_twice, "mmu.register_page_table.twice", 1, 0, MMU_REGISTER_PAGE_TABLE,
     MMU_RELEASE_PAGE_TABLE)
{
	u64 gpa = alloc_page();
	u32 level;

	for (level = VMI_LEVEL_PT; level <= VMI_LEVEL_PML4; level++) {
		/* Never registered, or released already. */
		CHECK_RESULT(vmi.mmu_release_page_table(gpa, level), 0);
		CHECK_RESULT(vmi.mmu_register_page_table(gpa, level), 0);
		CHECK_RESULT(vmi.mmu_register_page_table(gpa, level), 0);
		CHECK_RESULT(vmi.mmu_release_page_table(gpa, level), 0);
		CHECK_RESULT(vmi.mmu_release_page_table(gpa, level), 0);
	}
	free_page(gpa);
	/* A root that is in use is registered again: nothing happens to its space. */
	gpa = identity_page();
	space_create(&space);
	space_set(&space, USER_DATA, gpa | USER_RW, VMI_LEVEL_PT);
	space_load(&space);
	expect_page_user(USER_DATA, gpa);
	CHECK_RESULT(vmi.mmu_register_page_table(space.root, VMI_LEVEL_PML4), 0);
	expect_page_user(USER_DATA, gpa);
	space_load(NULL);
	space_destroy(&space);
	free_page(gpa);
}

/* Where privilege does not work, the layer shows nothing that would change CR3 or the tables. */
static bool layer_shows_all(void)
{
	return !layer.present || !(layer.rom.header.flags & VMI_HEADER_PARAVIRT);
}

TEST(pcid, "cpu.cpuid.pcid", 1, 0, CPU_CPUID, CPU_GET_CR4)
{
	CHECK(layer_shows_all() || !(cpuid(1, 0).ecx & 1u << 17));
	/* INVPCID */
	CHECK(layer_shows_all() || cpuid(0, 0).eax < 7 || !(cpuid(7, 0).ebx & 1u << 10));
	CHECK(!(get_cr4() & CR4_PCIDE));
}

TEST(levels, "cpu.cpuid.levels", 1, 0, CPU_CPUID, CPU_GET_CR4)
{
	CHECK(layer_shows_all() || cpuid(0, 0).eax < 7 || !(cpuid(7, 0).ecx & 1u << 16));
	CHECK(!(get_cr4() & CR4_LA57));
}
