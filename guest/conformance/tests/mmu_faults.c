// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Page faults and their error codes; accessed and dirty bits; large pages. */
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

struct permission {
	u64 bits;
	u64 errors[ACCESS_COUNT];	/* by access */
};

#define ABSENT { 0, PF_W, PF_I, PF_U, PF_U | PF_W, PF_U | PF_I }

static const struct permission permissions[] = {
	{ 0, ABSENT },
	{ PTE_W | PTE_U, ABSENT },
	{ USER_RW, { NO_FAULT, NO_FAULT, NO_FAULT, NO_FAULT, NO_FAULT, NO_FAULT } },
	{ USER_RO, { NO_FAULT, PF_P | PF_W, NO_FAULT,
		     NO_FAULT, PF_P | PF_W | PF_U, NO_FAULT } },
	{ USER_RW | PTE_NX, { NO_FAULT, NO_FAULT, PF_P | PF_I,
			      NO_FAULT, NO_FAULT, PF_P | PF_U | PF_I } },
	{ USER_RO | PTE_NX, { NO_FAULT, PF_P | PF_W, PF_P | PF_I,
			      NO_FAULT, PF_P | PF_W | PF_U, PF_P | PF_U | PF_I } },
	{ PTE_P | PTE_W, { NO_FAULT, NO_FAULT, NO_FAULT,
			   PF_P | PF_U, PF_P | PF_U | PF_W, PF_P | PF_U | PF_I } },
	{ PTE_P, { NO_FAULT, PF_P | PF_W, NO_FAULT,
		   PF_P | PF_U, PF_P | PF_U | PF_W, PF_P | PF_U | PF_I } },
};

/* One access under each set of permissions. */
static void permission(u64 access)
{
	u64 gpa = identity_page(), va = USER_DATA, value, error;
	u8 *page = to_linear(gpa);
	u32 i;

	enter_space();
	for (i = 0; i < ARRAY_SIZE(permissions); i++) {
		page[0] = 0x0f;		/* syscall */
		page[1] = 0x05;
		space_set(&space, va, gpa | permissions[i].bits, VMI_LEVEL_PT);
		invalidate_page(va);
		value = *(u64 *)page;
		error = try_access(access, va, &value);
		if (error != permissions[i].errors[access])
			FAIL("entry bits 0x%llx: error 0x%llx, want 0x%llx",
			     permissions[i].bits, error,
			     permissions[i].errors[access]);
	}
	leave_space();
	free_page(gpa);
}
#define PERMISSION(access, name) \
	TEST_OF(permission_##access, "memory.fault." name, permission, access, \
		1, 0, MMU_SET_PTE, MMU_INVALIDATE_PAGE)
PERMISSION(KERNEL_READ, "kernel_read");
PERMISSION(KERNEL_WRITE, "kernel_write");
PERMISSION(USER_READ, "user_read");
PERMISSION(USER_WRITE, "user_write");
PERMISSION(USER_EXECUTE, "user_execute");

/* Each level of the tables can say no. */
TEST(fault_levels, "memory.fault.upper_levels", 1, 0, MMU_SET_PTE)
{
	u64 gpa = identity_page(), va = USER_DATA, level;

	enter_space();
	space_set(&space, va, gpa | USER_RW, VMI_LEVEL_PT);
	expect_page(va, gpa);
	for (level = VMI_LEVEL_PD; level <= VMI_LEVEL_PDPT; level++) {
		u64 entry = *space_pte(&space, va, level) & ~(PTE_A | PTE_D);

		space_set(&space, va, entry & ~PTE_W, level);
		CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
		expect_page(va, gpa);
		expect_fault(KERNEL_WRITE, va, PF_P | PF_W);
		expect_fault(USER_WRITE, va, PF_P | PF_W | PF_U);
		space_set(&space, va, entry & ~PTE_U, level);
		CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
		expect_page(va, gpa);
		/* The user text lies in the same last table of level 4 only. */
		if (level < VMI_LEVEL_PDPT)
			expect_fault(USER_READ, va, PF_P | PF_U);
		space_set(&space, va, entry & ~PTE_P, level);
		CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
		expect_fault(KERNEL_READ, va, 0);
		space_set(&space, va, entry, level);
		expect_page(va, gpa);
		expect_page_user(va, gpa);
	}
	leave_space();
	free_page(gpa);
}

/* A fault has its address to the byte, wherever in the page. */
TEST(fault_address, "memory.fault.address", 1, 0, CPU_GET_CR2)
{
	static const u64 offsets[] = { 0, 1, 8, 0x7ff, 0xff8 };
	u32 i;

	enter_space();
	for (i = 0; i < ARRAY_SIZE(offsets); i++) {
		expect_fault(KERNEL_READ, USER_DATA + offsets[i], 0);
		CHECK_EQ(get_cr2(), USER_DATA + offsets[i]);
		expect_fault(USER_WRITE, USER_DATA + offsets[i], PF_U | PF_W);
		CHECK_EQ(get_cr2(), USER_DATA + offsets[i]);
	}
	leave_space();
}

/* What is not present is never cached: no flush when it appears. */
TEST(not_present, "memory.fault.not_present_uncached", 1, 0, MMU_SET_PTE)
{
	u64 a = identity_page(), b = identity_page(), i;

	enter_space();
	for (i = 0; i < 100; i++) {
		u64 va = USER_DATA + i * 3 * PAGE_SIZE, gpa = i & 1 ? a : b;

		expect_fault(i & 1 ? KERNEL_READ : USER_READ, va, i & 1 ? 0 : PF_U);
		if (i & 2)
			space_set(&space, va, gpa | USER_RW, VMI_LEVEL_PT);
		else
			WRITE_ONCE(*space_pte(&space, va, VMI_LEVEL_PT),
				   gpa | USER_RW);
		expect_page(va, gpa);
		expect_page_user(va, gpa);
	}
	leave_space();
	free_page(a);
	free_page(b);
}

/* A string store that faults in its middle is resumed there. */
TEST(fault_restart, "memory.fault.restart", 1, 0, CPU_IRET)
{
	u64 gpa[4], va = USER_DATA, i, faults = 0;
	struct user_context context;

	for (i = 0; i < 4; i++)
		gpa[i] = alloc_page();
	enter_space();
	user_init(&context, u_stos);
	context.in.rdi = va + 100;
	context.in.rsi = 3 * PAGE_SIZE;
	for (;;) {
		user_run(&context);
		if (context.out.vector == VECTOR_SYSCALL)
			break;
		CHECK_EQ(context.out.vector, VECTOR_PF);
		i = (context.cr2 - va) / PAGE_SIZE;
		CHECK_OP(i, <, 4);
		CHECK_OP(++faults, <=, 4);
		space_set(&space, va + i * PAGE_SIZE, gpa[i] | USER_RW, VMI_LEVEL_PT);
		context.in = context.out;
		context.in.vector = 0;
	}
	CHECK_EQ(faults, 4);
	CHECK_EQ(context.out.rax, va + 100 + 3 * PAGE_SIZE);
	for (i = 0; i < 4 * PAGE_SIZE; i++) {
		u8 *byte = (u8 *)to_linear(gpa[i / PAGE_SIZE]) + i % PAGE_SIZE;

		CHECK_EQ(*byte, i >= 100 && i < 100 + 3 * PAGE_SIZE ? 0x5a : 0);
	}
	leave_space();
	for (i = 0; i < 4; i++)
		free_page(gpa[i]);
}

/* --- accessed and dirty bits --- */

static u64 bits(u64 va, u32 level)
{
	return READ_ONCE(*space_pte(&space, va, level)) & (PTE_A | PTE_D);
}

static void clear_bits(u64 va, u64 gpa)
{
	space_set(&space, va, gpa | USER_RW, VMI_LEVEL_PT);
	invalidate_page(va);
}

static void accessed(u64 user)
{
	u64 gpa = identity_page(), va = USER_DATA, value = 0;
	u32 i;

	enter_space();
	for (i = 0; i < 20; i++) {
		clear_bits(va, gpa);
		try_access(user ? USER_READ : KERNEL_READ, va, &value);
		CHECK_EQ(bits(va, 1), PTE_A);
		/* The first write after it finds the page clean. */
		try_access(user ? USER_WRITE : KERNEL_WRITE, va, &value);
		CHECK_EQ(bits(va, 1), PTE_A | PTE_D);
		clear_bits(va, gpa);
		CHECK_EQ(bits(va, 1), 0);
		try_access(user ? USER_WRITE : KERNEL_WRITE, va, &value);
		CHECK_EQ(bits(va, 1), PTE_A | PTE_D);
	}
	CHECK(*space_pte(&space, va, VMI_LEVEL_PD) & PTE_A);
	CHECK(*space_pte(&space, va, VMI_LEVEL_PDPT) & PTE_A);
	leave_space();
	free_page(gpa);
}
TEST_OF(accessed_kernel, "memory.accessed.kernel", accessed, 0, 1, 0,
	MMU_INVALIDATE_PAGE);
TEST_OF(accessed_user, "memory.accessed.user", accessed, 1, 1, 0, MMU_INVALIDATE_PAGE);

/*
 * The bit is cleared without a flush, as kernels do to see which pages are in use. The page is used on, the space is loaded
 * now and then at the same generation: the bit must come back, or a page in use would look idle for ever.
 */
TEST(accessed_ages, "memory.accessed.ages", 1, 0, MMU_SET_CR3)
{
	u64 gpa = identity_page(), va = USER_DATA, value = 0, end = now() + 5 * NS_PER_S;

	enter_space();
	try_access(KERNEL_READ, va, &value);
	space_set(&space, va, gpa | USER_RW, VMI_LEVEL_PT);
	CHECK_EQ(bits(va, 1), 0);
	while (!bits(va, 1) && now() < end) {
		delay_ns(50 * NS_PER_MS);
		space_load(NULL);
		space_load(&space);
		try_access(KERNEL_READ, va, &value);
	}
	CHECK_EQ(bits(va, 1), PTE_A);
	leave_space();
	free_page(gpa);
}

/* A refused access sets nothing. */
TEST(accessed_refused, "memory.accessed.refused", 1, 0, MMU_SET_PTE)
{
	u64 gpa = identity_page(), va = USER_DATA;

	enter_space();
	space_set(&space, va, gpa | USER_RO, VMI_LEVEL_PT);
	invalidate_page(va);
	expect_fault(USER_WRITE, va, PF_P | PF_W | PF_U);
	CHECK_EQ(bits(va, 1) & PTE_D, 0);
	expect_page_user(va, gpa);
	expect_fault(KERNEL_WRITE, va, PF_P | PF_W);
	CHECK_EQ(bits(va, 1) & PTE_D, 0);
	leave_space();
	free_page(gpa);
}

/* --- large pages --- */

static u64 large_word(u64 gpa, u64 offset)
{
	return identity(gpa + (offset & ~(PAGE_SIZE - 1)));
}

static u64 large_page(void)
{
	u64 gpa = alloc_large_page(), offset;

	for (offset = 0; offset < LARGE_SIZE; offset += PAGE_SIZE)
		*(u64 *)to_linear(gpa + offset) = large_word(gpa, offset);
	return gpa;
}

static void expect_large(u64 va, u64 gpa)
{
	u64 offset;

	for (offset = 0; offset < LARGE_SIZE; offset += 37 * PAGE_SIZE) {
		expect_page(va + offset, gpa + offset);
		expect_page_user(va + offset, gpa + offset);
	}
}

TEST(large, "memory.large.2m", 1, 0, MMU_SET_PTE)
{
	u64 a = large_page(), b = large_page(), va = USER_DATA;

	enter_space();
	space_set(&space, va, a | USER_RW | PTE_PS, VMI_LEVEL_PD);
	expect_large(va, a);
	CHECK(bits(va, VMI_LEVEL_PD) & PTE_A);
	space_set(&space, va, b | USER_RW | PTE_PS, VMI_LEVEL_PD);
	/* One address is enough for all of a large translation. */
	invalidate_page(va + 77 * PAGE_SIZE);
	expect_large(va, b);
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

/* A large page becomes a table and the other way round. */
TEST(large_split, "memory.large.split", 1, 0, MMU_SET_PTE, MMU_SET_PTES)
{
	u64 gpa = large_page(), other = identity_page(), va = USER_DATA, table;

	enter_space();
	space_set(&space, va + LARGE_SIZE, other | USER_RW, VMI_LEVEL_PT);
	table = *space_pte(&space, va + LARGE_SIZE, VMI_LEVEL_PD) & PTE_ADDRESS;
	space_set(&space, va, gpa | USER_RW | PTE_PS, VMI_LEVEL_PD);
	expect_large(va, gpa);
	/* The same memory by 4 KiB entries, but for one page. */
	CHECK_RESULT(vmi.mmu_set_ptes(to_linear(table), gpa | USER_RW, 512,
				      VMI_LEVEL_PT, va), 0);
	vmi.mmu_set_pte((u64 *)to_linear(table) + 5, other | USER_RW,
			VMI_LEVEL_PT, va + 5 * PAGE_SIZE);
	space_set(&space, va, table | USER_RW, VMI_LEVEL_PD);
	CHECK_RESULT(vmi.mmu_invalidate_range(va, va + LARGE_SIZE), 0);
	expect_large(va, gpa);
	expect_page(va + 5 * PAGE_SIZE, other);
	expect_page_user(va + 5 * PAGE_SIZE, other);
	space_set(&space, va, gpa | USER_RW | PTE_PS, VMI_LEVEL_PD);
	CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
	expect_large(va, gpa);
	expect_page(va + 5 * PAGE_SIZE, gpa + 5 * PAGE_SIZE);
	leave_space();
	free_large_page(gpa);
	free_page(other);
}

/* --- many entries at once --- */

static void set_ptes(u64 level)
{
	u64 step = PAGE_SIZE << (9 * (level - 1)), table = alloc_page(), i;
	u64 *slots = to_linear(table), value = 0x40000000 * 8ull | USER_RW |
		     (level > 1 ? PTE_PS : 0);

	slots[9] = slots[20] = 0x1234;
	CHECK_RESULT(vmi.mmu_set_ptes(slots + 10, value, 10, level, USER_DATA), 0);
	CHECK_EQ(slots[9], 0x1234);
	CHECK_EQ(slots[20], 0x1234);
	for (i = 0; i < 10; i++)
		CHECK_EQ(slots[10 + i], value + i * step);
	CHECK_RESULT(vmi.mmu_set_ptes(slots + 511, value, 1, level, USER_DATA), 0);
	CHECK_EQ(slots[511], value);
	CHECK_RESULT(vmi.mmu_set_ptes(slots, value, 512, level, USER_DATA), 0);
	CHECK_EQ(slots[511], value + 511 * step);
	free_page(table);
}
TEST_OF(ptes_1, "mmu.set_ptes.level_1", set_ptes, 1, 1, 0, MMU_SET_PTES);
TEST_OF(ptes_2, "mmu.set_ptes.level_2", set_ptes, 2, 1, 0, MMU_SET_PTES);
TEST_OF(ptes_3, "mmu.set_ptes.level_3", set_ptes, 3, 1, 0, MMU_SET_PTES);

TEST(ptes_errors, "mmu.set_ptes.errors", 1, 0, MMU_SET_PTES)
{
	u64 table = alloc_page(), *slots = to_linear(table), i;

	CHECK_RESULT(vmi.mmu_set_ptes(slots, USER_RW, 0, 1, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_set_ptes(slots, USER_RW, 513, 1, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_set_ptes(slots + 511, USER_RW, 2, 1, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_set_ptes(slots + 1, USER_RW, 0xffffffff, 1, 0),
		     -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_set_ptes(slots, USER_RW, 1, 4, 0), -VMI_EINVAL);
	for (i = 0; i < 512; i++)
		CHECK_EQ(slots[i], 0);
	free_page(table);
}

TEST(ptes_used, "mmu.set_ptes.used", 1, 0, MMU_SET_PTES, MMU_FILL)
{
	u64 gpa = large_page(), va = USER_DATA, i;
	u64 *slot;

	enter_space();
	for (i = 0; i < 512; i += 128) {
		slot = space_pte(&space, va + i * PAGE_SIZE, VMI_LEVEL_PT);
		CHECK_RESULT(vmi.mmu_set_ptes(slot, (gpa + i * PAGE_SIZE) | USER_RW,
					      128, VMI_LEVEL_PT | VMI_PTE_CURRENT,
					      va + i * PAGE_SIZE), 0);
	}
	expect_large(va, gpa);
	leave_space();
	free_large_page(gpa);
}

/* mmu.fill makes nothing available that the entries do not say. */
TEST(fill, "mmu.fill.hint", 1, 0, MMU_FILL)
{
	u64 gpa = large_page(), va = USER_DATA, i, *slot;

	enter_space();
	slot = space_pte(&space, va, VMI_LEVEL_PT);
	CHECK_RESULT(vmi.mmu_set_ptes(slot, gpa | USER_RW, 64,
				      VMI_LEVEL_PT | VMI_PTE_CURRENT, va), 0);
	space_set(&space, va + 3 * PAGE_SIZE, 0, VMI_LEVEL_PT);
	space_set(&space, va + 5 * PAGE_SIZE, (gpa + 5 * PAGE_SIZE) | USER_RO, 1);
	vmi.mmu_fill(va, slot, 64);
	for (i = 0; i < 64; i++)
		if (i != 3)
			expect_page_user(va + i * PAGE_SIZE, gpa + i * PAGE_SIZE);
	expect_fault(USER_READ, va + 3 * PAGE_SIZE, PF_U);
	expect_fault(USER_WRITE, va + 5 * PAGE_SIZE, PF_P | PF_W | PF_U);
	expect_fault(USER_READ, va + 64 * PAGE_SIZE, PF_U);
	/* Filled translations are flushed like others. */
	for (i = 0; i < 64; i++)
		space_set(&space, va + i * PAGE_SIZE,
			  (gpa + (i + 64) * PAGE_SIZE) | USER_RW, VMI_LEVEL_PT);
	CHECK_RESULT(vmi.mmu_invalidate_range(va, va + 64 * PAGE_SIZE), 0);
	vmi.mmu_fill(va, slot, 64);
	for (i = 0; i < 64; i++)
		expect_page_user(va + i * PAGE_SIZE, gpa + (i + 64) * PAGE_SIZE);
	leave_space();
	free_large_page(gpa);
}

/* An entry that was in use becomes another one: nothing else has to be said. */
TEST(fill_replaces, "mmu.fill.replaces", 1, 0, MMU_FILL)
{
	u64 gpa = large_page(), va = USER_DATA, *slot;

	if (!(layer_features(VMI_SECTION_MMU) & VMI_MMU_FILL_REPLACES))
		test_skip("the layer does not offer it");
	enter_space();
	slot = space_pte(&space, va, VMI_LEVEL_PT);
	/* Another page, as after a copy on write; and with the bits of use clear, so that it is not made ready. */
	space_set(&space, va, gpa | USER_RO, VMI_LEVEL_PT);
	expect_page_user(va, gpa);
	space_set(&space, va, (gpa + PAGE_SIZE) | USER_RW | PTE_A | PTE_D, VMI_LEVEL_PT);
	vmi.mmu_fill(va, slot, 1);
	expect_page_user(va, gpa + PAGE_SIZE);
	space_set(&space, va, (gpa + 2 * PAGE_SIZE) | USER_RW, VMI_LEVEL_PT);
	vmi.mmu_fill(va, slot, 1);
	expect_page_user(va, gpa + 2 * PAGE_SIZE);
	/* Less. */
	space_set(&space, va, (gpa + 2 * PAGE_SIZE) | USER_RO | PTE_A, VMI_LEVEL_PT);
	vmi.mmu_fill(va, slot, 1);
	expect_page_user(va, gpa + 2 * PAGE_SIZE);
	expect_fault(USER_WRITE, va, PF_P | PF_W | PF_U);
	space_set(&space, va, 0, VMI_LEVEL_PT);
	vmi.mmu_fill(va, slot, 1);
	expect_fault(USER_READ, va, PF_U);
	leave_space();
	free_large_page(gpa);
}

/* Small pages become a large one of the same memory, which then goes: a flush of one of its addresses is one of all. */
TEST(became_large, "mmu.invalidate_page.became_large", 1, 0, MMU_INVALIDATE_PAGE)
{
	u64 gpa = large_page(), va = USER_DATA, i;

	space_create(&space);
	space_load(&space);
	for (i = 0; i < 32; i++)
		space_set(&space, va + i * PAGE_SIZE, (gpa + i * PAGE_SIZE) | USER_RO | PTE_A, VMI_LEVEL_PT);
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
	space_load(NULL);
	space_destroy(&space);
	free_large_page(gpa);
}

/* Around the lowest address that programs may have anywhere: no other space sees anything of it. */
TEST(lowest, "mmu.set_cr3.lowest", 1, 0, MMU_SET_CR3)
{
	u64 gpa = large_page(), va = 0xc000, round, i;

	for (round = 0; round < 12; round++) {
		space_create(&space);
		space_load(&space);
		for (i = 0; i < 16; i++)
			space_set(&space, va + i * PAGE_SIZE, (gpa + i * PAGE_SIZE) | USER_RO | PTE_A, VMI_LEVEL_PT);
		CHECK_EQ(try_access(USER_READ, 0x11000, (u64[]){ 0 }), NO_FAULT);
		space_load(NULL);
		space_destroy(&space);
		for (i = 0; i < 8; i++) {
			space_create(&space);
			space_load(&space);
			expect_fault(USER_READ, va + 2 * PAGE_SIZE, PF_U);
			space_load(NULL);
			space_destroy(&space);
		}
	}
	free_large_page(gpa);
}
