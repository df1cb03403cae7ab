// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Call stubs (slots in the interface) that the kernel places itself: the layer writes their code,
 * and copies of the code work equally.
 */
#include "patch_stub.h"
#include "harness.h"
#include "test.h"
#include "user_mode.h"

struct space stub_space;
static u64 text_gpa[2];

u64 stub_features(void)
{
	return vmi.patch_code ? layer_features(VMI_SECTION_PATCH) : 0;
}

void stub_need(u64 feature)
{
	if (stub_features() & feature)
		return;
	if (feature == VMI_PATCH_CPUID && (stub_features() & VMI_PATCH_CODE) &&
	    !cpuid_faulting(false))
		test_skip("the host cannot make cpuid fault");
	test_skip("the layer does not write such slots");
}

u8 *stub_text(u32 copy)
{
	return to_linear(text_gpa[copy]);
}

void stub_prepare(void)
{
	u32 i;

	space_create(&stub_space);
	for (i = 0; i < 2; i++) {
		text_gpa[i] = alloc_page();
		memset(stub_text(i), 0xcc, PAGE_SIZE);
		space_set(&stub_space, COPY(i), text_gpa[i] | PTE_P | PTE_U, VMI_LEVEL_PT);
	}
	space_load(&stub_space);
}

void stub_clean_up(void)
{
	u32 i;

	cpuid_faulting(false);
	space_load(NULL);
	space_destroy(&stub_space);
	for (i = 0; i < 2; i++)
		free_page(text_gpa[i]);
}

struct vmi_syscall_site stub_site(u32 number, u8 instruction)
{
	const u8 rest[] = { 0x0f, instruction, 0xcd, VECTOR_USER_GATE };
	struct vmi_syscall_site site = {
		.addr = COPY(0) + AT_SITE, .length = PREFIX + 2, .syscall_offset = PREFIX,
		.slot = COPY(0) + AT_SLOT,
		.flags = instruction == 0x05 ? 0 : VMI_SITE_CPUID,
	};
	u8 *to = stub_text(0) + AT_SITE;

	to[0] = 0xb8;
	memcpy(to + 1, &number, 4);
	memcpy(to + PREFIX, rest, sizeof(rest));
	memcpy(site.code, to, site.length);
	return site;
}

s64 stub_write(const struct vmi_syscall_site *site, u32 at)
{
	u8 code[VMI_PATCH_BODY_MAX + 1];
	s64 length;

	memset(code, 0xcc, sizeof(code));
	length = vmi.patch_code(site, COPY(0) + AT_BODY, code, VMI_PATCH_BODY_MAX);
	if (length > 0) {
		CHECK_OP(length, <=, at == AT_SLOT ? VMI_PATCH_SLOT_MAX : VMI_PATCH_BODY_MAX);
		CHECK_EQ(code[length], 0xcc);
		/* Kernels move threads from a stub of a system call to its site. */
		if (!site->flags)
			CHECK(!memcmp(code, site->code, site->syscall_offset));
		memcpy(stub_text(0) + at, code, length);
	}
	return length;
}

void stub_copy_text(void)
{
	memcpy(stub_text(1), stub_text(0), PAGE_SIZE);
	invalidate_page(COPY(0));
	invalidate_page(COPY(1));
}

void stub_enter(struct user_context *context, u64 rip, u64 seed)
{
	u64 *words = (u64 *)&context->in;
	u32 i;

	user_init(context, u_nop);
	for (i = 0; i < REGS_VECTOR / 8; i++)
		words[i] = random64(&seed);
	context->in.rip = rip;
}

void stub_check_others(const struct user_context *context)
{
	CHECK_EQ(context->out.rsp, context->in.rsp);
	CHECK_EQ(context->out.rbp, context->in.rbp);
	CHECK_EQ(context->out.rsi, context->in.rsi);
	CHECK_EQ(context->out.rdi, context->in.rdi);
	CHECK_EQ(context->out.r8, context->in.r8);
	CHECK_EQ(context->out.r9, context->in.r9);
	CHECK_EQ(context->out.r10, context->in.r10);
	CHECK_EQ(context->out.r12, context->in.r12);
	CHECK_EQ(context->out.r13, context->in.r13);
	CHECK_EQ(context->out.r14, context->in.r14);
	CHECK_EQ(context->out.r15, context->in.r15);
}

/* Through the stub of either copy, or by the instruction itself: only rip differs. */
static void run_syscall(u32 copy, u32 at, u32 number)
{
	struct user_context context;

	stub_enter(&context, COPY(copy) + at, number + copy);
	user_run(&context);
	CHECK_EQ(context.out.vector, VECTOR_SYSCALL);
	CHECK_EQ(context.out.rax, number);
	CHECK_EQ(context.out.rip, COPY(copy) + AT_SITE + PREFIX + 2);
	CHECK_EQ(context.out.rcx, context.out.rip);
	CHECK_EQ(context.out.r11, context.in.rflags);
	CHECK_EQ(context.out.rbx, context.in.rbx);
	CHECK_EQ(context.out.rdx, context.in.rdx);
	stub_check_others(&context);
}

TEST(code_syscall, "patch.code.syscall", 1, 0, PATCH_CODE)
{
	struct vmi_syscall_site site;
	u32 copy;

	stub_need(VMI_PATCH_CODE);
	stub_prepare();
	site = stub_site(87, 0x05);
	CHECK_OP(stub_write(&site, AT_SLOT), >, 0);
	stub_copy_text();
	for (copy = 0; copy < 2; copy++) {
		run_syscall(copy, AT_SITE, 87);
		run_syscall(copy, AT_SLOT, 87);
		run_syscall(copy, AT_SLOT, 87);
	}
	stub_clean_up();
}

TEST(code_errors, "patch.code.errors", 1, 0, PATCH_CODE)
{
	struct vmi_syscall_site good, site;
	u8 code[VMI_PATCH_BODY_MAX];
	s64 length;

	if (!vmi.patch_code)
		test_skip("the layer is older");
	stub_prepare();
	good = stub_site(1, 0x05);
#define TRY(want, body, size, change)						\
	do {									\
		site = good;							\
		change;								\
		memset(code, 0x55, sizeof(code));				\
		CHECK_RESULT(vmi.patch_code(&site, body, code, size), want);	\
		CHECK_EQ(code[0], 0x55);					\
	} while (0)
#define BAD(change) TRY(-VMI_EINVAL, 0, sizeof(code), change)

	if (!(stub_features() & VMI_PATCH_CODE)) {
		TRY(-VMI_ENOSYS, 0, sizeof(code), );
	} else {
		length = vmi.patch_code(&good, 0, code, sizeof(code));
		CHECK_OP(length, >, 0);
		CHECK_RESULT(vmi.patch_code(&good, 0, code, length), length);
		TRY(-VMI_ENOSPC, 0, length - 1, );
		TRY(-VMI_ENOSPC, 0, 0, );
		BAD(site.code[PREFIX + 1] = 0xa2);
		BAD(site.code[PREFIX] = 0x90);
		BAD(site.syscall_offset = 15);
		BAD(site.syscall_offset = 0xffffffff);
		BAD(site.syscall_offset = PREFIX + 1);
		BAD(site.length = PREFIX + 1);
		BAD(site.length = 17);
		BAD(site.flags = VMI_SITE_ENTRY);
		BAD(site.flags = 0x100);
		BAD(site.slot = site.addr + 3 * GIB);
		BAD(site.slot = 0);
		BAD(site.slot = machine.info.user_end);
		BAD(site.slot = layer.rom.header.reserve_start);
		BAD(site.addr = 0);
		BAD(site.addr = layer.rom.header.reserve_start; site.slot = site.addr - GIB);
	}
	good = stub_site(1, 0xa2);
	if (!(stub_features() & VMI_PATCH_CPUID)) {
		TRY(-VMI_ENOSYS, COPY(0) + AT_BODY, sizeof(code), );
		TRY(-VMI_ENOSYS, COPY(0) + AT_BODY, sizeof(code), site.flags = VMI_SITE_BODY);
	} else {
		TRY(-VMI_EINVAL, 0, sizeof(code), );
		TRY(-VMI_EINVAL, COPY(0) + 3 * GIB, sizeof(code), );
		TRY(-VMI_EINVAL, layer.rom.header.reserve_start, sizeof(code), );
		TRY(-VMI_EINVAL, COPY(0) + AT_BODY, sizeof(code), site.code[PREFIX + 1] = 0x05);
		TRY(-VMI_EINVAL, COPY(0) + AT_BODY, sizeof(code), site.flags |= VMI_SITE_BODY);
		TRY(-VMI_EINVAL, COPY(0) + AT_BODY, sizeof(code), site.flags |= VMI_SITE_ENTRY);
		TRY(-VMI_ENOSPC, COPY(0) + AT_BODY, 10, );
		TRY(-VMI_ENOSPC, 0, 10, site.flags = VMI_SITE_BODY);
		TRY(-VMI_EINVAL, 0, sizeof(code), site.flags = VMI_SITE_BODY;
		    site.slot = machine.info.user_end);
	}
	stub_clean_up();
}
