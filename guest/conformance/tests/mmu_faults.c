// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Page faults and their error codes; accessed and dirty bits. */
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

/* Each level of the tables can refuse the access. */
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
		/* The user text is in the same table of level 4 only. */
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

/* CR2 holds the address to the byte, at any offset in the page. */
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

/* Absent translations are never cached: no flush is needed when one appears. */
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

/* A string store that faults in the middle resumes there. */
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
 * The bit is cleared without a flush, as kernels do to find out which pages are in use. The page
 * stays in use, and the space is sometimes loaded again with the same generation. The bit must be
 * set again, or a page in use would look idle for ever. It is cleared twice: a layer may compare
 * all of a space when it is loaded for the second time.
 */
TEST(accessed_ages, "memory.accessed.ages", 1, 0, MMU_SET_CR3)
{
	u64 gpa = identity_page(), va = USER_DATA, value = 0, end;
	u32 times;

	enter_space();
	for (times = 0; times < 2; times++) {
		try_access(KERNEL_READ, va, &value);
		space_set(&space, va, gpa | USER_RW, VMI_LEVEL_PT);
		CHECK_EQ(bits(va, 1), 0);
		end = now() + 5 * NS_PER_S;
		while (!bits(va, 1) && now() < end) {
			delay_ns(50 * NS_PER_MS);
			space_load(NULL);
			space_load(&space);
			try_access(KERNEL_READ, va, &value);
		}
		CHECK_EQ(bits(va, 1), PTE_A);
	}
	leave_space();
	free_page(gpa);
}

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

/* Near the lowest address that a program may use: a mapping there is seen in no other space. */
TEST(lowest, "mmu.set_cr3.lowest", 1, 0, MMU_SET_CR3)
{
	u64 gpa = identity_large_page(), va = 0xc000, round, i;

	for (round = 0; round < 12; round++) {
		space_create(&space);
		space_load(&space);
		for (i = 0; i < 16; i++)
			space_set(&space, va + i * PAGE_SIZE,
				  (gpa + i * PAGE_SIZE) | USER_RO | PTE_A, VMI_LEVEL_PT);
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
