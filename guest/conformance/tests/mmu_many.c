// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Ten thousands of translations, changed in the way that is worst for a layer that keeps them as
 * ranges: every second page. One page table is entered many times, so that they take little memory.
 */
#include "pages.h"
#include "test.h"

#define TABLE_PAGES 512
#define BITS (USER_RW | PTE_NX | PTE_A)

static struct space space;
static u64 memory, table, *entries;

static u64 address(u64 alias, u64 page)
{
	return USER_DATA + alias * LARGE_SIZE + page * PAGE_SIZE;
}

static u64 page_gpa(u64 page)
{
	return memory + page * PAGE_SIZE;
}

/* Maps 2 MiB at many places, and uses all of it. */
static void begin(u64 aliases, u64 bits)
{
	u64 i, *word;

	memory = alloc_large_page();
	table = alloc_page();
	entries = to_linear(table);
	for (i = 0; i < TABLE_PAGES; i++) {
		word = to_linear(page_gpa(i));
		*word = identity(page_gpa(i));
		entries[i] = page_gpa(i) | bits;
	}
	space_create(&space);
	CHECK_RESULT(vmi.mmu_register_page_table(table, VMI_LEVEL_PT), 0);
	for (i = 0; i < aliases; i++)
		space_set(&space, address(i, 0), table | PTE_P | PTE_W | PTE_U, VMI_LEVEL_PD);
	space_load(&space);
	/* Each page twice or more, an even number of times: their words cancel out. */
	CHECK_EQ(user_call(u_touch, USER_DATA, aliases * TABLE_PAGES), 0);
}

static void end(u64 aliases)
{
	u64 i;

	space_load(NULL);
	for (i = 0; i < aliases; i++)
		space_set(&space, address(i, 0), 0, VMI_LEVEL_PD);
	space_destroy(&space);
	CHECK_RESULT(vmi.mmu_release_page_table(table, VMI_LEVEL_PT), 0);
	free_page(table);
	free_large_page(memory);
}

/* The odd pages are unchanged at every address. */
static void expect_odd(u64 aliases)
{
	u64 i, page;

	for (i = 0; i < aliases; i += 13) {
		page = (i * 37 & (TABLE_PAGES - 1)) | 1;
		expect_page(address(i, page), page_gpa(page));
		expect_page_user(address(i, page), page_gpa(page));
	}
}

TEST(many_written, "mmu.many.written", 1, 0, MMU_SET_PTE)
{
	u64 aliases = 140, i, page;

	begin(aliases, BITS);
	for (i = 0; i < aliases; i++)
		for (page = 0; page < TABLE_PAGES; page += 2)
			*(volatile u64 *)address(i, page) = i << 32 | page;
	for (page = 0; page < TABLE_PAGES; page += 2) {
		CHECK_EQ(entries[page], page_gpa(page) | BITS | PTE_D);
		CHECK_EQ(*(u64 *)to_linear(page_gpa(page)), (aliases - 1) << 32 | page);
	}
	for (page = 1; page < TABLE_PAGES; page += 2)
		CHECK_EQ(entries[page], page_gpa(page) | BITS);
	expect_odd(aliases);
	end(aliases);
}

TEST(many_protected, "mmu.many.protected", 1, 0, MMU_SET_PTE, MMU_FLUSH_TLB)
{
	u64 aliases = 140, i, page;

	begin(aliases, BITS | PTE_D);
	for (page = 0; page < TABLE_PAGES; page += 2)
		vmi.mmu_set_pte(&entries[page], entries[page] & ~PTE_W, VMI_LEVEL_PT, 0);
	CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
	for (i = 0; i < aliases; i++) {
		page = i * 38 & (TABLE_PAGES - 2);
		expect_fault(KERNEL_WRITE, address(i, page), PF_P | PF_W);
		expect_page(address(i, page), page_gpa(page));
	}
	expect_odd(aliases);
	end(aliases);
}

TEST(many_unmapped, "mmu.many.unmapped", 1, 0, MMU_SET_PTE, MMU_FLUSH_TLB)
{
	u64 aliases = 270, i, page;

	begin(aliases, BITS | PTE_D);
	for (page = 0; page < TABLE_PAGES; page += 2)
		vmi.mmu_set_pte(&entries[page], 0, VMI_LEVEL_PT, 0);
	CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
	for (i = 0; i < aliases; i++)
		expect_fault(KERNEL_READ, address(i, i * 38 & (TABLE_PAGES - 2)), 0);
	expect_odd(aliases);
	end(aliases);
}

/*
 * Creates, uses and destroys spaces with many translations. The host's test checks what is left of
 * them (hold on the command line).
 */
TEST(many_released, "mmu.many.released", 1, 0, MMU_RELEASE_PAGE_TABLE)
{
	u64 aliases = 20, page, round;
	char word[8];

	if (!option("hold", word, sizeof(word)))
		test_skip("needs hold on the command line");
	for (round = 0; round < 3; round++) {
		begin(aliases, BITS | PTE_D);
		for (page = 0; page < TABLE_PAGES; page += 2)
			vmi.mmu_set_pte(&entries[page], 0, VMI_LEVEL_PT, 0);
		CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
		expect_odd(aliases);
		delay_ns(300 * NS_PER_MS);
		end(aliases);
	}
	delay_ns(NS_PER_S);
}

/*
 * Pages of the user range that only the kernel may access: afterwards user code can read neither
 * those that the kernel has used nor their neighbours.
 */
TEST(neighbours, "memory.fault.supervisor_neighbours", 1, 0, MMU_SET_PTE)
{
	u64 i;

	begin(2, BITS | PTE_D);
	for (i = 0; i < 32; i++)
		vmi.mmu_set_pte(&entries[i], entries[i] & ~PTE_U, VMI_LEVEL_PT | VMI_PTE_CURRENT,
				address(0, i));
	CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
	expect_page(address(0, 5), page_gpa(5));
	for (i = 0; i < 32; i++) {
		expect_fault(USER_READ, address(0, i), PF_P | PF_U);
		expect_page(address(1, i), page_gpa(i));
		expect_fault(USER_READ, address(1, i ^ 1), PF_P | PF_U);
	}
	expect_page_user(address(0, 32), page_gpa(32));
	end(2);
}

/* Adjacent pages that a layer may keep in different places: around the first GiB. */
TEST(around_gib, "memory.large.around_gib", 1, 0, MMU_SET_PTE)
{
	u64 low = alloc_page(), high = alloc_large_page(), first = GIB - 8 * PAGE_SIZE, i, gpa,
		*word;

	free_page(low);
	free_large_page(high);
	/*
	 * Nothing else uses the memory between what is allocated from the start and from the end.
	 */
	if (low > GIB - MIB || high < GIB + MIB)
		test_skip("there is less memory");
	space_create(&space);
	space_load(&space);
	for (i = 0; i < 16; i++) {
		gpa = first + i * PAGE_SIZE;
		word = to_linear(gpa);
		*word = identity(gpa);
		space_set(&space, USER_DATA + i * PAGE_SIZE, gpa | BITS | PTE_D, VMI_LEVEL_PT);
	}
	for (i = 0; i < 16; i++)
		expect_page_user(USER_DATA + (i ^ 9) * PAGE_SIZE, first + (i ^ 9) * PAGE_SIZE);
	for (i = 0; i < 16; i++) {
		*(volatile u64 *)(USER_DATA + i * PAGE_SIZE) = i;
		CHECK_EQ(*(u64 *)to_linear(first + i * PAGE_SIZE), i);
	}
	space_load(NULL);
	space_destroy(&space);
}

/*
 * The start of the user range, a part of which a layer may use for itself. A flush of one address
 * flushes the whole large page.
 */
TEST(large_at_start, "memory.large.first", 1, 0, MMU_SET_PTE)
{
	u64 gpa = alloc_large_page(), va = 128 * KIB;

	if (in_hole(va, LARGE_SIZE))
		test_skip("the user range has a hole there");
	*(u64 *)to_linear(gpa + va) = identity(gpa + va);
	*(u64 *)to_linear(gpa + LARGE_SIZE - PAGE_SIZE) = identity(gpa + LARGE_SIZE - PAGE_SIZE);
	space_create(&space);
	space_load(&space);
	space_set(&space, 0, gpa | USER_RW | PTE_PS | PTE_NX, VMI_LEVEL_PD);
	expect_page(va, gpa + va);
	expect_page_user(va, gpa + va);
	expect_page_user(LARGE_SIZE - PAGE_SIZE, gpa + LARGE_SIZE - PAGE_SIZE);
	space_set(&space, 0, 0, VMI_LEVEL_PD);
	invalidate_page(va);
	expect_fault(USER_READ, va, PF_U);
	expect_fault(USER_READ, LARGE_SIZE - PAGE_SIZE, PF_U);
	space_load(NULL);
	space_destroy(&space);
	free_large_page(gpa);
}
