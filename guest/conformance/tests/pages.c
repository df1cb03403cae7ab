// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "pages.h"
#include "test.h"

void k_read(void *va), k_write(void *va), k_jump(void *va);
extern char k_read_at[], k_write_at[];

u64 identity_page(void)
{
	u64 gpa = alloc_page(), *page = to_linear(gpa);
	u32 i;

	for (i = 0; i < 512; i++)
		page[i] = identity(gpa);
	return gpa;
}

u64 identity_large_page(void)
{
	u64 gpa = alloc_large_page(), offset;

	for (offset = 0; offset < LARGE_SIZE; offset += PAGE_SIZE)
		*(u64 *)to_linear(gpa + offset) = identity(gpa + offset);
	return gpa;
}

struct request {
	u64 va, value;
};

static void read_value(void *argument)
{
	struct request *request = argument;

	request->value = *(volatile u64 *)request->va;
}

static void write_value(void *argument)
{
	struct request *request = argument;

	*(volatile u64 *)request->va = request->value;
}

static u64 kernel_access(enum access access, u64 va, u64 *value)
{
	struct request request = { va, *value };
	struct catch catch;
	bool faulted;

	if (access == KERNEL_READ)
		faulted = catch_trap(&catch, read_value, &request);
	else if (access == KERNEL_WRITE)
		faulted = catch_trap(&catch, write_value, &request);
	else
		faulted = catch_trap(&catch, k_jump, (void *)va);
	*value = request.value;
	if (!faulted)
		return NO_FAULT;
	if (catch.vector != VECTOR_PF)
		FAIL("vector %lld at 0x%llx", catch.vector, va);
	CHECK_EQ(catch.cr2, va);
	CHECK_EQ(catch.regs.cs, KERNEL_CS);
	if (access == KERNEL_EXECUTE)
		CHECK_EQ(catch.regs.rip, va);
	return catch.regs.error;
}

static u64 user_access(enum access access, u64 va, u64 *value)
{
	const char *label = access == USER_READ ? u_load :
			    access == USER_WRITE ? u_store : u_execute;
	struct user_context context;
	u32 vector = user_try(&context, label, va, *value);

	*value = context.out.rax;
	if (!vector)
		return NO_FAULT;
	if (vector != VECTOR_PF + 1)
		FAIL("vector %u in user mode at 0x%llx", vector - 1, va);
	CHECK_EQ(context.cr2, va);
	CHECK_EQ(context.out.cs, USER_CS);
	CHECK_EQ(context.out.rip, access == USER_EXECUTE ? va : USER_ADDRESS(label));
	return context.out.error;
}

u64 try_access(enum access access, u64 va, u64 *value)
{
	return access < USER_READ ? kernel_access(access, va, value) :
	       user_access(access, va, value);
}

static void expect(enum access access, u64 va, u64 gpa)
{
	u64 value = 0, error = try_access(access, va, &value);

	if (error != NO_FAULT)
		FAIL("page fault at 0x%llx, error 0x%llx; want page 0x%llx", va,
		     error, gpa);
	if (value != identity(gpa))
		FAIL("page 0x%llx at 0x%llx, want 0x%llx", identity(value), va, gpa);
}

void expect_page(u64 va, u64 gpa)
{
	expect(KERNEL_READ, va, gpa);
}

void expect_page_user(u64 va, u64 gpa)
{
	expect(USER_READ, va, gpa);
}

void expect_large_page(u64 va, u64 gpa)
{
	u64 offset;

	for (offset = 0; offset < LARGE_SIZE; offset += 37 * PAGE_SIZE) {
		expect_page(va + offset, gpa + offset);
		expect_page_user(va + offset, gpa + offset);
	}
}

void expect_fault(enum access access, u64 va, u64 error)
{
	u64 value = 0, got = try_access(access, va, &value);

	if (got != error)
		FAIL("access %u at 0x%llx: error 0x%llx, want 0x%llx", access, va,
		     got, error);
}
