// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Many entries in one call: mmu.set_ptes and mmu.fill. */
#include "pages.h"
#include "test.h"

static struct space space;

static void enter_space(void)
{
	space_create(&space);
	space_load(&space);
}

static void leave_space(void)
{
	space_load(NULL);
	space_destroy(&space);
}

static void set_ptes(u64 level)
{
	u64 step = PAGE_SIZE << (9 * (level - 1)), table = alloc_page(), i;
	u64 *entries = to_linear(table), value = 0x40000000 * 8ull | USER_RW |
		     (level > 1 ? PTE_PS : 0);

	entries[9] = entries[20] = 0x1234;
	CHECK_RESULT(vmi.mmu_set_ptes(entries + 10, value, 10, level, USER_DATA), 0);
	CHECK_EQ(entries[9], 0x1234);
	CHECK_EQ(entries[20], 0x1234);
	for (i = 0; i < 10; i++)
		CHECK_EQ(entries[10 + i], value + i * step);
	CHECK_RESULT(vmi.mmu_set_ptes(entries + 511, value, 1, level, USER_DATA), 0);
	CHECK_EQ(entries[511], value);
	CHECK_RESULT(vmi.mmu_set_ptes(entries, value, 512, level, USER_DATA), 0);
	CHECK_EQ(entries[511], value + 511 * step);
	free_page(table);
}
TEST_OF(ptes_1, "mmu.set_ptes.level_1", set_ptes, 1, 1, 0, MMU_SET_PTES);
TEST_OF(ptes_2, "mmu.set_ptes.level_2", set_ptes, 2, 1, 0, MMU_SET_PTES);
TEST_OF(ptes_3, "mmu.set_ptes.level_3", set_ptes, 3, 1, 0, MMU_SET_PTES);

TEST(ptes_errors, "mmu.set_ptes.errors", 1, 0, MMU_SET_PTES)
{
	u64 table = alloc_page(), *entries = to_linear(table), i;

	CHECK_RESULT(vmi.mmu_set_ptes(entries, USER_RW, 0, 1, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_set_ptes(entries, USER_RW, 513, 1, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_set_ptes(entries + 511, USER_RW, 2, 1, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_set_ptes(entries + 1, USER_RW, 0xffffffff, 1, 0),
		     -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_set_ptes(entries, USER_RW, 1, 4, 0), -VMI_EINVAL);
	for (i = 0; i < 512; i++)
		CHECK_EQ(entries[i], 0);
	free_page(table);
}

TEST(ptes_used, "mmu.set_ptes.used", 1, 0, MMU_SET_PTES, MMU_FILL)
{
	u64 gpa = identity_large_page(), va = USER_DATA, i;
	u64 *entry;

	enter_space();
	for (i = 0; i < 512; i += 128) {
		entry = space_pte(&space, va + i * PAGE_SIZE, VMI_LEVEL_PT);
		CHECK_RESULT(vmi.mmu_set_ptes(entry, (gpa + i * PAGE_SIZE) | USER_RW,
					      128, VMI_LEVEL_PT | VMI_PTE_CURRENT,
					      va + i * PAGE_SIZE), 0);
	}
	expect_large_page(va, gpa);
	leave_space();
	free_large_page(gpa);
}

/* mmu.fill maps nothing that the entries do not map. */
TEST(fill, "mmu.fill.hint", 1, 0, MMU_FILL)
{
	u64 gpa = identity_large_page(), va = USER_DATA, i, *entry;

	enter_space();
	entry = space_pte(&space, va, VMI_LEVEL_PT);
	CHECK_RESULT(vmi.mmu_set_ptes(entry, gpa | USER_RW, 64,
				      VMI_LEVEL_PT | VMI_PTE_CURRENT, va), 0);
	space_set(&space, va + 3 * PAGE_SIZE, 0, VMI_LEVEL_PT);
	space_set(&space, va + 5 * PAGE_SIZE, (gpa + 5 * PAGE_SIZE) | USER_RO, 1);
	vmi.mmu_fill(va, entry, 64);
	for (i = 0; i < 64; i++)
		if (i != 3)
			expect_page_user(va + i * PAGE_SIZE, gpa + i * PAGE_SIZE);
	expect_fault(USER_READ, va + 3 * PAGE_SIZE, PF_U);
	expect_fault(USER_WRITE, va + 5 * PAGE_SIZE, PF_P | PF_W | PF_U);
	expect_fault(USER_READ, va + 64 * PAGE_SIZE, PF_U);
	/* A flush covers filled translations, too. */
	for (i = 0; i < 64; i++)
		space_set(&space, va + i * PAGE_SIZE,
			  (gpa + (i + 64) * PAGE_SIZE) | USER_RW, VMI_LEVEL_PT);
	CHECK_RESULT(vmi.mmu_invalidate_range(va, va + 64 * PAGE_SIZE), 0);
	vmi.mmu_fill(va, entry, 64);
	for (i = 0; i < 64; i++)
		expect_page_user(va + i * PAGE_SIZE, gpa + (i + 64) * PAGE_SIZE);
	leave_space();
	free_large_page(gpa);
}

/* mmu.fill after the change of a present entry: no flush is needed. */
TEST(fill_replaces, "mmu.fill.replaces", 1, 0, MMU_FILL)
{
	u64 gpa = identity_large_page(), va = USER_DATA, *entry;

	if (!(layer_features(VMI_SECTION_MMU) & VMI_MMU_FILL_REPLACES))
		test_skip("the layer does not offer it");
	enter_space();
	entry = space_pte(&space, va, VMI_LEVEL_PT);
	/*
	 * Another page, as after a copy on write. Then with A and D clear, so that it is
	 * not filled.
	 */
	space_set(&space, va, gpa | USER_RO, VMI_LEVEL_PT);
	expect_page_user(va, gpa);
	space_set(&space, va, (gpa + PAGE_SIZE) | USER_RW | PTE_A | PTE_D, VMI_LEVEL_PT);
	vmi.mmu_fill(va, entry, 1);
	expect_page_user(va, gpa + PAGE_SIZE);
	space_set(&space, va, (gpa + 2 * PAGE_SIZE) | USER_RW, VMI_LEVEL_PT);
	vmi.mmu_fill(va, entry, 1);
	expect_page_user(va, gpa + 2 * PAGE_SIZE);
	/* Fewer rights, then no page. */
	space_set(&space, va, (gpa + 2 * PAGE_SIZE) | USER_RO | PTE_A, VMI_LEVEL_PT);
	vmi.mmu_fill(va, entry, 1);
	expect_page_user(va, gpa + 2 * PAGE_SIZE);
	expect_fault(USER_WRITE, va, PF_P | PF_W | PF_U);
	space_set(&space, va, 0, VMI_LEVEL_PT);
	vmi.mmu_fill(va, entry, 1);
	expect_fault(USER_READ, va, PF_U);
	leave_space();
	free_large_page(gpa);
}
