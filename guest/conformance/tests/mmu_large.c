// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Large pages. */
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

TEST(large, "memory.large.2m", 1, 0, MMU_SET_PTE)
{
	u64 a = identity_large_page(), b = identity_large_page(), va = USER_DATA;

	enter_space();
	space_set(&space, va, a | USER_RW | PTE_PS, VMI_LEVEL_PD);
	expect_large_page(va, a);
	CHECK(*space_pte(&space, va, VMI_LEVEL_PD) & PTE_A);
	space_set(&space, va, b | USER_RW | PTE_PS, VMI_LEVEL_PD);
	/* Invalidating one address invalidates the whole large translation. */
	invalidate_page(va + 77 * PAGE_SIZE);
	expect_large_page(va, b);
	space_set(&space, va, b | USER_RO | PTE_PS, VMI_LEVEL_PD);
	CHECK_RESULT(vmi.mmu_invalidate_range(va, va + LARGE_SIZE), 0);
	expect_fault(USER_WRITE, va + 99 * PAGE_SIZE, PF_P | PF_W | PF_U);
	space_set(&space, va, 0, VMI_LEVEL_PD);
	CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
	expect_fault(KERNEL_READ, va + 5 * PAGE_SIZE, 0);
	leave_space();
	free_large_page(a);
	free_large_page(b);
}

/* A large page becomes a table, and a table becomes a large page. */
TEST(large_split, "memory.large.split", 1, 0, MMU_SET_PTE, MMU_SET_PTES)
{
	u64 gpa = identity_large_page(), other = identity_page(), va = USER_DATA, table;

	enter_space();
	space_set(&space, va + LARGE_SIZE, other | USER_RW, VMI_LEVEL_PT);
	table = *space_pte(&space, va + LARGE_SIZE, VMI_LEVEL_PD) & PTE_ADDRESS;
	space_set(&space, va, gpa | USER_RW | PTE_PS, VMI_LEVEL_PD);
	expect_large_page(va, gpa);
	/* Maps the large page's memory by 4 KiB entries, except for one page. */
	CHECK_RESULT(vmi.mmu_set_ptes(to_linear(table), gpa | USER_RW, 512,
				      VMI_LEVEL_PT, va), 0);
	vmi.mmu_set_pte((u64 *)to_linear(table) + 5, other | USER_RW,
			VMI_LEVEL_PT, va + 5 * PAGE_SIZE);
	space_set(&space, va, table | USER_RW, VMI_LEVEL_PD);
	CHECK_RESULT(vmi.mmu_invalidate_range(va, va + LARGE_SIZE), 0);
	expect_large_page(va, gpa);
	expect_page(va + 5 * PAGE_SIZE, other);
	expect_page_user(va + 5 * PAGE_SIZE, other);
	space_set(&space, va, gpa | USER_RW | PTE_PS, VMI_LEVEL_PD);
	CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
	expect_large_page(va, gpa);
	expect_page(va + 5 * PAGE_SIZE, gpa + 5 * PAGE_SIZE);
	leave_space();
	free_large_page(gpa);
	free_page(other);
}

/*
 * Small pages become a large page of the same memory, which is then unmapped. A
 * flush of one of its addresses flushes all of it.
 */
TEST(became_large, "mmu.invalidate_page.became_large", 1, 0, MMU_INVALIDATE_PAGE)
{
	u64 gpa = identity_large_page(), va = USER_DATA, i;

	enter_space();
	for (i = 0; i < 32; i++)
		space_set(&space, va + i * PAGE_SIZE,
			  (gpa + i * PAGE_SIZE) | USER_RO | PTE_A, VMI_LEVEL_PT);
	for (i = 0; i < 32; i++)
		CHECK_EQ(try_access(USER_READ, va + i * PAGE_SIZE, (u64[]){ 0 }), NO_FAULT);
	space_set(&space, va, gpa | USER_RO | PTE_A | PTE_PS, VMI_LEVEL_PD);
	vmi.mmu_flush_tlb(VMI_FLUSH_USER);
	for (i = 0; i < 32; i++)
		CHECK_EQ(try_access(USER_READ, va + i * PAGE_SIZE, (u64[]){ 0 }), NO_FAULT);
	space_set(&space, va, 0, VMI_LEVEL_PD);
	invalidate_page(va);
	for (i = 0; i < 32; i++)
		expect_fault(USER_READ, va + i * PAGE_SIZE, PF_U);
	leave_space();
	free_large_page(gpa);
}
