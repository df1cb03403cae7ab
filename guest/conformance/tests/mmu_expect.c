// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * mmu.expect_space: a space may start with another space's translations, and user code sees none of
 * them.
 */
#include "harness.h"
#include "pages.h"
#include "test.h"

#define PAGES		24
#define HINT	0x1234500067

/* Changes to some of the pages. The others are the same in both spaces. */
#define ABSENT		3
#define DIFFERENT	5
#define WRITABLE	7
#define UNUSED		9
#define KERNEL_ONLY	11
#define NO_EXECUTE	13
#define WRITTEN		(PAGES - 1)

static struct space space, other;
static u64 pages[PAGES], fresh;

static void need(void)
{
	if (!vmi.mmu_expect_space)
		test_skip("the layer is older");
}

/* A page that the kernel promises not to read. */
static u64 bottom(void)
{
	u64 va;

	for (va = 0x10000000; in_hole(va, va + 2 * MIB); va += 16 * MIB)
		;
	CHECK_OP(va + 2 * MIB, <=, VMI_EXPECT_END);
	return va;
}

static void pages_get(void)
{
	u32 i;

	fresh = identity_page();
	for (i = 0; i < PAGES; i++)
		pages[i] = identity_page();
}

static void pages_put(void)
{
	u32 i;

	free_page(fresh);
	for (i = 0; i < PAGES; i++)
		free_page(pages[i]);
}

static void set(struct space *s, u32 i, u64 value)
{
	space_set(s, bottom() + i * PAGE_SIZE, value, VMI_LEVEL_PT);
}

/* A space that had all pages and is destroyed. */
static void one_before(u64 hint)
{
	u32 i;

	space_create(&space);
	CHECK_RESULT(vmi.mmu_expect_space(space.root, hint), 0);
	space_load(&space);
	for (i = 0; i < WRITTEN; i++)
		set(&space, i, pages[i] | USER_RO | PTE_A);
	set(&space, WRITTEN, pages[WRITTEN] | USER_RW | PTE_A | PTE_D);
	for (i = 0; i < PAGES; i++)
		expect_page_user(bottom() + i * PAGE_SIZE, pages[i]);
	space_load(NULL);
	space_destroy(&space);
}

static u64 wanted(u32 i)
{
	switch (i) {
	case ABSENT:
		return 0;
	case DIFFERENT:
		return fresh | USER_RO | PTE_A;
	case WRITABLE:
		return pages[i] | USER_RW | PTE_A | PTE_D;
	case UNUSED:
		return pages[i] | USER_RO;
	case KERNEL_ONLY:
		return pages[i] | PTE_P | PTE_A;
	case NO_EXECUTE:
		return pages[i] | USER_RO | PTE_A | PTE_NX;
	}
	return pages[i] | USER_RO | PTE_A;
}

static void check_as_wanted(void)
{
	u64 va = bottom(), value = 0,
		*used = space_pte(&other, va + UNUSED * PAGE_SIZE, VMI_LEVEL_PT);
	u32 i;

	expect_fault(USER_READ, va + ABSENT * PAGE_SIZE, PF_U);
	expect_fault(KERNEL_READ, va + ABSENT * PAGE_SIZE, 0);
	expect_fault(USER_READ, va + KERNEL_ONLY * PAGE_SIZE, PF_P | PF_U);
	expect_fault(USER_EXECUTE, va + NO_EXECUTE * PAGE_SIZE, PF_P | PF_U | PF_I);
	expect_fault(USER_WRITE, va + DIFFERENT * PAGE_SIZE, PF_P | PF_W | PF_U);
	expect_fault(USER_WRITE, va + WRITTEN * PAGE_SIZE, PF_P | PF_W | PF_U);
	for (i = 0; i < PAGES; i++)
		if (i == KERNEL_ONLY)
			expect_page(va + i * PAGE_SIZE, pages[i]);
		else if (i != ABSENT)
			expect_page_user(va + i * PAGE_SIZE, i == DIFFERENT ? fresh : pages[i]);
	CHECK(READ_ONCE(*used) & PTE_A);
	value = identity(pages[WRITABLE]);
	CHECK_EQ(try_access(USER_WRITE, va + WRITABLE * PAGE_SIZE, &value), NO_FAULT);
}

enum settle {
	BY_USER_MODE, BY_FLUSH, BY_LOAD, BY_FILL,
};

/* The kernel builds the tables after it has loaded the space, and may write to its pages. */
static void expected(u64 how)
{
	u64 va = bottom(), value, round;
	u32 i;

	need();
	pages_get();
	for (round = 0; round < 12; round++) {
		one_before(HINT);
		space_create(&other);
		CHECK_RESULT(vmi.mmu_expect_space(other.root, HINT), 0);
		space_load(&other);
		expect_fault(KERNEL_WRITE, va + DIFFERENT * PAGE_SIZE, PF_W);
		expect_fault(KERNEL_WRITE, va + WRITTEN * PAGE_SIZE, PF_W);
		for (i = 0; i < PAGES; i++)
			set(&other, i, wanted(i));
		expect_fault(KERNEL_WRITE, va + ABSENT * PAGE_SIZE, PF_W);
		value = identity(pages[WRITABLE]);
		CHECK_EQ(try_access(KERNEL_WRITE, va + WRITABLE * PAGE_SIZE, &value), NO_FAULT);
		if (how == BY_FLUSH)
			CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
		if (how == BY_FILL)
			vmi.mmu_fill(va, space_pte(&other, va, VMI_LEVEL_PT), PAGES);
		if (how == BY_LOAD) {
			space_load(NULL);
			space_load(&other);
		}
		if (how == BY_FLUSH || how == BY_LOAD)
			expect_fault(KERNEL_READ, va + ABSENT * PAGE_SIZE, 0);
		check_as_wanted();
		space_load(NULL);
		space_destroy(&other);
	}
	pages_put();
}
TEST_OF(expect_user, "mmu.expect_space.user_mode", expected, BY_USER_MODE, 1, 0, MMU_EXPECT_SPACE);
TEST_OF(expect_flush, "mmu.expect_space.flush", expected, BY_FLUSH, 1, 0, MMU_EXPECT_SPACE);
TEST_OF(expect_load, "mmu.expect_space.load", expected, BY_LOAD, 1, 0, MMU_EXPECT_SPACE);
TEST_OF(expect_fill, "mmu.expect_space.fill", expected, BY_FILL, 1, 0, MMU_EXPECT_SPACE);

/*
 * Before user code runs in the space, another space is loaded that has pages where the expected
 * space has none. rights: of those pages.
 */
static void other_alike(u64 rights)
{
	u64 va = bottom(), value, round;
	struct space between;
	u32 i;

	need();
	pages_get();
	for (round = 0; round < 12; round++) {
		one_before(HINT);
		space_create(&between);
		for (i = 0; i < PAGES; i++)
			space_set(&between, va + i * PAGE_SIZE, pages[i] | rights, VMI_LEVEL_PT);
		space_create(&other);
		CHECK_RESULT(vmi.mmu_expect_space(other.root, HINT), 0);
		space_load(&other);
		space_load(&between);
		space_load(&other);
		for (i = 0; i < PAGES; i++) {
			value = identity(pages[i]);
			expect_fault(KERNEL_READ, va + i * PAGE_SIZE, 0);
			expect_fault(USER_READ, va + i * PAGE_SIZE, PF_U);
			CHECK_EQ(try_access(USER_WRITE, va + i * PAGE_SIZE, &value), PF_W | PF_U);
		}
		space_load(NULL);
		space_destroy(&other);
		space_destroy(&between);
	}
	pages_put();
}
TEST_OF(expect_alike, "mmu.expect_space.other_alike", other_alike, USER_RO | PTE_A, 1, 0,
	MMU_EXPECT_SPACE);
TEST_OF(expect_alike_writable, "mmu.expect_space.other_alike_writable", other_alike,
	USER_RW | PTE_A | PTE_D | PTE_NX, 1, 0, MMU_EXPECT_SPACE);

/* Without a hint for this space, absent pages are absent for the kernel, too. */
TEST(expect_another, "mmu.expect_space.another", 1, 0, MMU_EXPECT_SPACE)
{
	u64 round, i;

	need();
	CHECK_RESULT(vmi.mmu_expect_space(0x1001, 1), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_expect_space(1ull << 63 | 1, 0), -VMI_EINVAL);
	pages_get();
	for (round = 0; round < 12; round++) {
		one_before(HINT);
		space_create(&other);
		CHECK_RESULT(vmi.mmu_expect_space(round & 1 ? other.root : 0x1000,
						  round & 1 ? 0 : HINT), 0);
		space_load(&other);
		for (i = 0; i < PAGES; i++)
			expect_fault(KERNEL_READ, bottom() + i * PAGE_SIZE, 0);
		for (i = 0; i < PAGES; i++)
			set(&other, i, wanted(i));
		check_as_wanted();
		space_load(NULL);
		space_destroy(&other);
	}
	pages_put();
}
