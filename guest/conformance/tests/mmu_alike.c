// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Spaces that have pages of an older one, or others at the same addresses. */
#include "harness.h"
#include "pages.h"
#include "test.h"

static struct space space, other;

#define ALIKE 20

static void alike_create(struct space *s, const u64 *pages)
{
	u64 i;

	space_create(s);
	/* With A and D set, like entries that fork copies. */
	for (i = 0; i < ALIKE; i++)
		space_set(s, USER_DATA + i * PAGE_SIZE, pages[i] | USER_RO | PTE_A, VMI_LEVEL_PT);
	space_set(s, USER_DATA + ALIKE * PAGE_SIZE, pages[ALIKE] | USER_RW | PTE_A | PTE_D,
		  VMI_LEVEL_PT);
}

/*
 * A new space that shares most pages with an older one, at the same addresses. A layer may keep
 * translations of those, but of nothing else.
 */
TEST(set_cr3_alike, "mmu.set_cr3.alike", 1, 0, MMU_SET_CR3)
{
	u64 pages[ALIKE + 1], fresh = identity_page(), va, i, round, *used;

	for (i = 0; i <= ALIKE; i++)
		pages[i] = identity_page();
	for (round = 0; round < 12; round++) {
		alike_create(&space, pages);
		/* Known since the last round. */
		va = USER_DATA;
		space_load(&space);
		for (i = 0; i <= ALIKE; i++)
			expect_page_user(va + i * PAGE_SIZE, pages[i]);
		space_load(NULL);
		space_destroy(&space);

		alike_create(&other, pages);
		space_set(&other, va + 3 * PAGE_SIZE, 0, VMI_LEVEL_PT);
		space_set(&other, va + 5 * PAGE_SIZE, fresh | USER_RO | PTE_A, VMI_LEVEL_PT);
		space_set(&other, va + 7 * PAGE_SIZE, pages[7] | USER_RW | PTE_A | PTE_D,
			  VMI_LEVEL_PT);
		space_set(&other, va + 9 * PAGE_SIZE, pages[9] | USER_RO, VMI_LEVEL_PT);
		space_set(&other, va + 11 * PAGE_SIZE, pages[11] | PTE_P | PTE_A, VMI_LEVEL_PT);
		space_set(&other, va + 13 * PAGE_SIZE, pages[13] | USER_RO | PTE_A | PTE_NX,
			  VMI_LEVEL_PT);
		space_set(&other, va + ALIKE * PAGE_SIZE, pages[ALIKE] | USER_RO | PTE_A,
			  VMI_LEVEL_PT);
		space_load(&other);
		used = space_pte(&other, va + 9 * PAGE_SIZE, VMI_LEVEL_PT);
		expect_fault(USER_READ, va + 3 * PAGE_SIZE, PF_U);
		expect_fault(USER_READ, va + 11 * PAGE_SIZE, PF_P | PF_U);
		expect_fault(USER_EXECUTE, va + 13 * PAGE_SIZE, PF_P | PF_U | PF_I);
		expect_fault(USER_WRITE, va + ALIKE * PAGE_SIZE, PF_P | PF_W | PF_U);
		for (i = 0; i <= ALIKE; i++)
			if (i == 11)
				expect_page(va + i * PAGE_SIZE, pages[i]);
			else if (i != 3)
				expect_page_user(va + i * PAGE_SIZE, i == 5 ? fresh : pages[i]);
		CHECK(READ_ONCE(*used) & PTE_A);
		expect_fault(USER_WRITE, va + 5 * PAGE_SIZE, PF_P | PF_W | PF_U);
		CHECK_EQ(try_access(USER_WRITE, va + 7 * PAGE_SIZE, (u64[]){ identity(pages[7]) }),
			 NO_FAULT);
		space_load(NULL);
		space_destroy(&other);
	}
	for (i = 0; i <= ALIKE; i++)
		free_page(pages[i]);
	free_page(fresh);
}

#define REPLACED 64
#define COMMON 16

/*
 * The page at an index of a space. The first kind has one page for each. The second has neighbours,
 * then pages in reverse, then some of them.
 */
static u64 replaced_pte(const u64 *pages, u64 i, bool second)
{
	if (!second)
		return pages[i] | USER_RW | PTE_A | PTE_D;
	if (i < REPLACED / 2)
		return pages[i + REPLACED / 2] | PTE_A | (i & 8 ? USER_RO : USER_RW | PTE_D);
	return i % 3 ? pages[REPLACED - 1 - i] | USER_RO | PTE_A : 0;
}

static void use_replaced(const u64 *pages, const u64 *common, bool second)
{
	u64 va = USER_DATA, text = va - COMMON * PAGE_SIZE, i, pte;

	space_create(&space);
	for (i = 0; i < COMMON; i++)
		space_set(&space, text + i * PAGE_SIZE, common[i] | USER_RO | PTE_A, VMI_LEVEL_PT);
	for (i = 0; i < REPLACED; i++)
		space_set(&space, va + i * PAGE_SIZE, replaced_pte(pages, i, second), VMI_LEVEL_PT);
	space_load(&space);
	for (i = 0; i < COMMON; i++)
		expect_page_user(text + i * PAGE_SIZE, common[i]);
	for (i = 0; i < REPLACED; i++) {
		pte = replaced_pte(pages, i, second);
		if (!pte) {
			expect_fault(USER_READ, va + i * PAGE_SIZE, PF_U);
			continue;
		}
		if (!(pte & PTE_W))
			expect_fault(USER_WRITE, va + i * PAGE_SIZE, PF_P | PF_W | PF_U);
		expect_page_user(va + i * PAGE_SIZE, pte & PTE_ADDRESS);
	}
	space_load(NULL);
	space_destroy(&space);
}

/*
 * A new space has other pages at the same addresses, more than a layer may map ahead, and some in
 * common with the last one, as a process and its child have their text.
 */
TEST(set_cr3_replaced, "mmu.set_cr3.replaced", 1, 0, MMU_SET_CR3)
{
	u64 pages[REPLACED], common[COMMON], i;

	for (i = 0; i < COMMON; i++)
		common[i] = identity_page();
	for (i = 0; i < REPLACED; i++)
		pages[i] = identity_page();
	for (i = 0; i < 13; i++)
		use_replaced(pages, common, i % 3 == 1);
	for (i = 0; i < REPLACED; i++)
		free_page(pages[i]);
	for (i = 0; i < COMMON; i++)
		free_page(common[i]);
}
