// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "patch_area.h"
#include "harness.h"
#include "test.h"

#define AREA_SIZE	(2 * PAGE_SIZE)

struct space area_space;
struct vmi_patch_area area_stubs;
u64 area_gpa;
static u64 text_gpa;

bool area_offered(void)
{
	return layer_features(VMI_SECTION_PATCH) & VMI_PATCH_SLOTS;
}

bool area_entries_offered(void)
{
	return layer_features(VMI_SECTION_PATCH) & VMI_PATCH_ENTRIES;
}

void area_need_stubs(void)
{
	if (!area_offered())
		test_skip("the layer offers no slots");
}

void area_prepare(void)
{
	u64 va, i;

	space_create(&area_space);
	text_gpa = alloc_page();
	space_set(&area_space, USER_DATA, text_gpa | PTE_P | PTE_U, VMI_LEVEL_PT);
	/* The area: two executable user pages below 2 GiB, where the layer wants them. */
	for (va = 0x20000000 | VMI_PATCH_BYTE << 16; in_hole(va, va + AREA_SIZE); va += 16 * MIB)
		if (va > 0x70000000)
			test_skip("no user addresses below 2 GiB");
	area_stubs = (struct vmi_patch_area){ .user = va, .size = AREA_SIZE };
	area_gpa = to_gpa(alloc_contiguous(AREA_SIZE));
	for (i = 0; i < AREA_SIZE; i += PAGE_SIZE)
		space_set(&area_space, va + i, (area_gpa + i) | PTE_P | PTE_U, VMI_LEVEL_PT);
	area_stubs.kernel = (u64)to_linear(area_gpa);
	space_load(&area_space);
}

void area_clean_up(void)
{
	space_load(NULL);
	space_destroy(&area_space);
	free_page(text_gpa);
}

u8 *area_page(void)
{
	return to_linear(text_gpa);
}

u8 *area_text(void)
{
	return area_page() + (AREA_SITE - USER_DATA);
}

void area_write_program(u8 *text, u32 number)
{
	static const u8 rest[] = { 0x0f, 0x05, 0x0f, 0x05 };

	text[0] = 0xb8;
	memcpy(text + 1, &number, 4);
	memcpy(text + 5, rest, sizeof(rest));
}

struct vmi_syscall_site area_site_at(u64 va, const u8 *text, u32 length)
{
	struct vmi_syscall_site site = {
		.addr = va, .length = length, .syscall_offset = 5,
	};

	memcpy(site.code, text, length);
	return site;
}

void area_apply(const struct vmi_syscall_site *site, u8 *to)
{
	CHECK_OP(site->patch_length, >, 0);
	CHECK_OP(site->patch_length, <=, 7);
	memcpy(to, site->patch, site->patch_length);
	/* The vCPU may have run the old text, but an iret lies in between anyway. */
	invalidate_page(USER_DATA);
}

void area_run(u64 va, u32 number)
{
	struct user_context context;
	u64 seed = number + 1, *words = (u64 *)&context.in;
	u32 i;

	user_init(&context, u_nop);
	for (i = 0; i < REGS_VECTOR / 8; i++)
		words[i] = random64(&seed);
	context.in.rip = va;
	user_run(&context);
	CHECK_EQ(context.out.vector, VECTOR_SYSCALL);
	CHECK_EQ(context.out.rax, number);
	CHECK_EQ(context.out.rip, va + 7);
	CHECK_EQ(context.out.rcx, va + 7);
	CHECK_EQ(context.out.r11, context.in.rflags);
	CHECK_EQ(context.out.rsp, context.in.rsp);
	CHECK_EQ(context.out.rbx, context.in.rbx);
	CHECK_EQ(context.out.rdi, context.in.rdi);
	CHECK_EQ(context.out.rsi, context.in.rsi);
	CHECK_EQ(context.out.rdx, context.in.rdx);
	CHECK_EQ(context.out.r8, context.in.r8);
	CHECK_EQ(context.out.r9, context.in.r9);
	CHECK_EQ(context.out.r10, context.in.r10);
	CHECK_EQ(context.out.r12, context.in.r12);
	CHECK_EQ(context.out.r15, context.in.r15);
	CHECK_EQ(context.out.rbp, context.in.rbp);
	CHECK(!context.irqs_on);
}
