// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Rewritten system-call sites in user text. The layer makes call stubs (slots in the interface),
 * the kernel writes the text.
 */
#include "patch_area.h"
#include "test.h"

TEST(patch_absent, "patch.claim.not_offered", 1, 0, PATCH_CLAIM, PATCH_RELEASE,
     PATCH_FIXUP)
{
	struct vmi_patch_area none = { 0 };
	struct vmi_syscall_site site = { 0 };
	u64 rip = 0x1000, rax = 1;

	if (area_offered())
		test_skip("slots are offered");
	CHECK_RESULT(vmi.patch_claim(&none, &site), -VMI_ENOSYS);
	CHECK_RESULT(vmi.patch_release(&none, 0), -VMI_ENOSYS);
	CHECK_RESULT(vmi.patch_fixup(&none, &rip, &rax), -VMI_ENOSYS);
	CHECK_EQ(rip, 0x1000);
	CHECK_EQ(rax, 1);
}

TEST(patch_claim, "patch.claim.runs", 1, 0, PATCH_CLAIM, PATCH_RELEASE)
{
	struct vmi_syscall_site site;
	u8 old[9];

	area_need_stubs();
	area_prepare();
	area_write_program(area_text(), 123);
	memcpy(old, area_text(), sizeof(old));
	area_run(AREA_SITE, 123);
	site = area_site_at(AREA_SITE, area_text(), 9);
	CHECK_RESULT(vmi.patch_claim(&area_stubs, &site), 0);
	CHECK_OP(site.slot, >=, area_stubs.user);
	CHECK_OP(site.slot, <, area_stubs.user + area_stubs.size);
	area_apply(&site, area_text());
	area_run(AREA_SITE, 123);
	area_run(AREA_SITE, 123);
	/* The old text again. The stub is free. */
	memcpy(area_text(), old, sizeof(old));
	invalidate_page(USER_DATA);
	CHECK_RESULT(vmi.patch_release(&area_stubs, site.slot), 0);
	CHECK_RESULT(vmi.patch_release(&area_stubs, site.slot), -VMI_ENOENT);
	area_run(AREA_SITE, 123);
	area_clean_up();
}

/* A jump to the address of the former syscall instruction. */
TEST(patch_jump, "patch.fixup.old_syscall", 1, 0, PATCH_FIXUP, PATCH_CLAIM)
{
	struct user_context context;
	struct vmi_syscall_site site;

	area_need_stubs();
	area_prepare();
	area_write_program(area_text(), 55);
	site = area_site_at(AREA_SITE, area_text(), 9);
	CHECK_RESULT(vmi.patch_claim(&area_stubs, &site), 0);
	area_apply(&site, area_text());
	user_init(&context, u_nop);
	context.in.rip = AREA_SITE + 5;
	context.in.rax = 77;
	user_run(&context);
	if (context.out.vector != VECTOR_SYSCALL) {
		u64 rip = context.out.rip, rax = context.out.rax;

		CHECK_EQ(context.out.vector, VECTOR_UD);
		CHECK_RESULT(vmi.patch_fixup(&area_stubs, &rip, &rax), 0);
		CHECK_EQ(rip, AREA_SITE + 7);
		CHECK_EQ(rax, 77);
	} else {
		CHECK_EQ(context.out.rip, AREA_SITE + 7);
		CHECK_EQ(context.out.rax, 77);
	}
	area_clean_up();
}

/* The program sets NT: an iret of the kernel would be refused with it. */
TEST(patch_nested, "patch.claim.nested_task", 1, 0, PATCH_CLAIM)
{
	struct user_context context;
	struct vmi_syscall_site site;
	u64 flags;

	area_need_stubs();
	area_prepare();
	area_write_program(area_text(), 56);
	site = area_site_at(AREA_SITE, area_text(), 9);
	CHECK_RESULT(vmi.patch_claim(&area_stubs, &site), 0);
	area_apply(&site, area_text());
	user_init(&context, u_nop);
	context.in.rip = AREA_SITE;
	context.in.rflags |= FLAGS_NT;
	user_run(&context);
	asm volatile("pushfq; popq %0; pushq %0; andq %2, (%%rsp); popfq"
		     : "=&r"(flags), "+r"(current_rsp) : "r"(~FLAGS_NT) : "memory", "cc");
	CHECK_EQ(context.out.vector, VECTOR_SYSCALL);
	CHECK_EQ(context.out.r11, context.in.rflags);
	CHECK(!(flags & FLAGS_NT));
	area_clean_up();
}

/* Single steps lead to the system call, which is one of them, and past it. */
TEST(patch_step, "patch.claim.single_step", 1, 0, PATCH_CLAIM, CPU_IRET)
{
	struct user_context context;
	struct vmi_syscall_site site;
	u32 steps;

	area_need_stubs();
	area_prepare();
	area_write_program(area_text(), 57);
	site = area_site_at(AREA_SITE, area_text(), 9);
	CHECK_RESULT(vmi.patch_claim(&area_stubs, &site), 0);
	area_apply(&site, area_text());
	user_init(&context, u_nop);
	context.in.rip = AREA_SITE;
	context.in.rflags |= FLAGS_TF;
	for (steps = 0; steps < 16; steps++) {
		user_run(&context);
		if (context.out.vector != VECTOR_DB)
			break;
		CHECK_EQ(context.out.cs, USER_CS);
		CHECK(context.out.rflags & FLAGS_TF);
		context.in = context.out;
		context.in.vector = 0;
	}
	CHECK_EQ(context.out.vector, VECTOR_SYSCALL);
	CHECK_EQ(context.out.rax, 57);
	CHECK_EQ(context.out.rip, AREA_SITE + 7);
	CHECK(context.out.r11 & FLAGS_TF);
	area_clean_up();
}

TEST(patch_errors, "patch.claim.errors", 1, 0, PATCH_CLAIM, PATCH_FIXUP, PATCH_RELEASE)
{
	static const u8 odd[] = { 0x90, 0x90, 0x90, 0x90, 0x90, 0x0f, 0x05, 0x90, 0x90 };
	struct vmi_syscall_site site;
	struct vmi_patch_area bad;
	u64 rip, rax = 5;

	area_need_stubs();
	area_prepare();
	rip = AREA_SITE;	/* user addresses are chosen with the first space */
	site = area_site_at(AREA_SITE, odd, sizeof(odd));
	CHECK_RESULT(vmi.patch_claim(&area_stubs, &site), -VMI_EINVAL);
	area_write_program(area_text(), 1);
	/* Over a page boundary. */
	site = area_site_at(USER_DATA + PAGE_SIZE - 4, area_text(), 9);
	CHECK_RESULT(vmi.patch_claim(&area_stubs, &site), -VMI_EINVAL);
	/* An area that user code cannot reach with a 32-bit jump. */
	bad = area_stubs;
	bad.user = USER_DATA;
	site = area_site_at(AREA_SITE, area_text(), 9);
	CHECK_RESULT(vmi.patch_claim(&bad, &site), -VMI_EINVAL);
	CHECK_RESULT(vmi.patch_release(&area_stubs, area_stubs.user + 64), -VMI_ENOENT);
	CHECK_RESULT(vmi.patch_fixup(&area_stubs, &rip, &rax), -VMI_ENOENT);
	CHECK_EQ(rip, AREA_SITE);
	CHECK_EQ(rax, 5);
	area_clean_up();
}

/* As many as there is room for, each for its own site; then the area is full. */
TEST(patch_many, "patch.claim.fills", 1, 0, PATCH_CLAIM, PATCH_RELEASE)
{
	u64 claimed = 0, step = 16, limit = PAGE_SIZE / step - 1, i;
	struct vmi_syscall_site site;
	static u64 slots[256];
	u8 *page;
	int result = 0;

	area_need_stubs();
	area_prepare();
	page = area_page();
	for (i = 0; i < limit; i++) {
		area_write_program(page + i * step, i);
		site = area_site_at(USER_DATA + i * step, page + i * step, 9);
		result = vmi.patch_claim(&area_stubs, &site);
		if (result)
			break;
		slots[claimed++] = site.slot;
		area_apply(&site, page + i * step);
	}
	if (result)
		CHECK_RESULT(result, -VMI_ENOSPC);
	CHECK_OP(claimed, >, 0);
	for (i = 0; i < claimed; i++)
		area_run(USER_DATA + i * step, i);
	for (i = 0; i < claimed; i++)
		CHECK_RESULT(vmi.patch_release(&area_stubs, slots[i]), 0);
	area_clean_up();
}
