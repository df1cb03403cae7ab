// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Rewritten system-call sites in user text. The layer makes call stubs (slots in the interface),
 * the kernel writes the text.
 */
#include "any_stack.h"
#include "harness.h"
#include "test.h"
#include "user_mode.h"

#define AREA_SIZE	(2 * PAGE_SIZE)
#define SITE_VA		(USER_DATA + 64)

static struct space space;
static struct vmi_patch_area area;
static u64 text_gpa, area_gpa[2], in_use;

static bool offered(void)
{
	return layer_features(VMI_SECTION_PATCH) & VMI_PATCH_SLOTS;
}

static void need_slots(void)
{
	if (!offered())
		test_skip("the layer offers no slots");
}

/* mov $number,%eax; syscall; then another system call. */
static void write_program(u8 *text, u32 number)
{
	static const u8 rest[] = { 0x0f, 0x05, 0x0f, 0x05 };

	text[0] = 0xb8;
	memcpy(text + 1, &number, 4);
	memcpy(text + 5, rest, sizeof(rest));
}

static struct vmi_syscall_site site_at(u64 va, const u8 *text, u32 length)
{
	struct vmi_syscall_site site = {
		.addr = va, .length = length, .syscall_offset = 5,
	};

	memcpy(site.code, text, length);
	return site;
}

static void prepare(void)
{
	u64 va, i;

	in_use = pages_in_use();
	space_create(&space);
	text_gpa = alloc_page();
	space_set(&space, USER_DATA, text_gpa | PTE_P | PTE_U, VMI_LEVEL_PT);
	/* The area: two executable user pages below 2 GiB, where the layer wants them. */
	for (va = 0x20000000 | VMI_PATCH_BYTE << 16; in_hole(va, va + AREA_SIZE); va += 16 * MIB)
		if (va > 0x70000000)
			test_skip("no user addresses below 2 GiB");
	area = (struct vmi_patch_area){ .user = va, .size = AREA_SIZE };
	area_gpa[0] = to_gpa(alloc_contiguous(AREA_SIZE));
	for (i = 0; i < AREA_SIZE; i += PAGE_SIZE)
		space_set(&space, va + i, (area_gpa[0] + i) | PTE_P | PTE_U,
			  VMI_LEVEL_PT);
	area.kernel = (u64)to_linear(area_gpa[0]);
	space_load(&space);
}

static void clean_up(void)
{
	space_load(NULL);
	space_destroy(&space);
	free_page(text_gpa);
}

TEST(patch_absent, "patch.claim.not_offered", 1, 0, PATCH_CLAIM, PATCH_RELEASE,
     PATCH_FIXUP)
{
	struct vmi_patch_area none = { 0 };
	struct vmi_syscall_site site = { 0 };
	u64 rip = 0x1000, rax = 1;

	if (offered())
		test_skip("slots are offered");
	CHECK_RESULT(vmi.patch_claim(&none, &site), -VMI_ENOSYS);
	CHECK_RESULT(vmi.patch_release(&none, 0), -VMI_ENOSYS);
	CHECK_RESULT(vmi.patch_fixup(&none, &rip, &rax), -VMI_ENOSYS);
	CHECK_EQ(rip, 0x1000);
	CHECK_EQ(rax, 1);
}

static u8 *text(void)
{
	return (u8 *)to_linear(text_gpa) + (SITE_VA - USER_DATA);
}

/* All effects of a system call are the same with and without the stub. */
static void run_site(u64 va, u32 number)
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

static void apply(const struct vmi_syscall_site *site, u8 *to)
{
	CHECK_OP(site->patch_length, >, 0);
	CHECK_OP(site->patch_length, <=, 7);
	memcpy(to, site->patch, site->patch_length);
	/* The vCPU may have run the old text, but an iret lies in between anyway. */
	invalidate_page(USER_DATA);
}

TEST(patch_claim, "patch.claim.runs", 1, 0, PATCH_CLAIM, PATCH_RELEASE)
{
	struct vmi_syscall_site site;
	u8 old[9];

	need_slots();
	prepare();
	write_program(text(), 123);
	memcpy(old, text(), sizeof(old));
	run_site(SITE_VA, 123);
	site = site_at(SITE_VA, text(), 9);
	CHECK_RESULT(vmi.patch_claim(&area, &site), 0);
	CHECK_OP(site.slot, >=, area.user);
	CHECK_OP(site.slot, <, area.user + area.size);
	apply(&site, text());
	run_site(SITE_VA, 123);
	run_site(SITE_VA, 123);
	/* The old text again. The stub is free. */
	memcpy(text(), old, sizeof(old));
	invalidate_page(USER_DATA);
	CHECK_RESULT(vmi.patch_release(&area, site.slot), 0);
	CHECK_RESULT(vmi.patch_release(&area, site.slot), -VMI_ENOENT);
	run_site(SITE_VA, 123);
	clean_up();
}

/* A jump to the address of the former syscall instruction. */
TEST(patch_jump, "patch.fixup.old_syscall", 1, 0, PATCH_FIXUP, PATCH_CLAIM)
{
	struct user_context context;
	struct vmi_syscall_site site;

	need_slots();
	prepare();
	write_program(text(), 55);
	site = site_at(SITE_VA, text(), 9);
	CHECK_RESULT(vmi.patch_claim(&area, &site), 0);
	apply(&site, text());
	user_init(&context, u_nop);
	context.in.rip = SITE_VA + 5;
	context.in.rax = 77;
	user_run(&context);
	if (context.out.vector != VECTOR_SYSCALL) {
		u64 rip = context.out.rip, rax = context.out.rax;

		CHECK_EQ(context.out.vector, VECTOR_UD);
		CHECK_RESULT(vmi.patch_fixup(&area, &rip, &rax), 0);
		CHECK_EQ(rip, SITE_VA + 7);
		CHECK_EQ(rax, 77);
	} else {
		CHECK_EQ(context.out.rip, SITE_VA + 7);
		CHECK_EQ(context.out.rax, 77);
	}
	clean_up();
}

#define MSR_LSTAR	0xc0000082
#define NMIS		500

void syscall_entry(void);
void k_call_entry(void);

static u32 storm_ready;
static u64 storm_errors;

static void call_in_storm(void *argument)
{
	struct user_context context;

	(void)argument;
	space_load(&space);
	count_nmis_begin();
	vmi.cpu_write_msr(MSR_LSTAR, (u64)k_call_entry);
	atomic_store(&storm_ready, 1);
	while (READ_ONCE(k_nmis) < NMIS) {
		user_init(&context, u_call_loop);
		context.in.rdi = 1000;
		user_run(&context);
		if (context.out.vector != VECTOR_USER_GATE || context.out.rax ||
		    context.out.rsp != USER_STACK_TOP)
			storm_errors++;
		watch("NMIs");
	}
	vmi.cpu_write_msr(MSR_LSTAR, (u64)syscall_entry);
	count_nmis_end();
	space_load(NULL);
}

/* Meanwhile vCPU 1 makes system calls through a stub. */
static void send_nmis_at(const char *label, void (*caller)(void *))
{
	struct vmi_syscall_site site;
	u8 old[7], *code;
	u64 va, *pte;

	need_slots();
	prepare();
	va = USER_ADDRESS(label);
	pte = space_pte(&space, va, VMI_LEVEL_PT);
	code = (u8 *)to_linear(*pte & PTE_ADDRESS) + va % PAGE_SIZE;
	memcpy(old, code, sizeof(old));
	site = site_at(va, code, sizeof(old));
	CHECK_RESULT(vmi.patch_claim(&area, &site), 0);
	memcpy(code, site.patch, site.patch_length);
	k_nmis = storm_errors = 0;
	storm_ready = 0;
	run_on(1, caller, NULL);
	WAIT_UNTIL(atomic_load(&storm_ready));
	send_nmis(1, NMIS);
	wait_for(1);
	memcpy(code, old, sizeof(old));
	clean_up();
	CHECK_EQ(storm_errors, 0);
}

/* An NMI arrives between any two instructions of a stub. No register and no flag changes. */
TEST(patch_nmi, "patch.claim.nmi", 2, 0, PATCH_CLAIM, APIC_SEND_IPI)
{
	send_nmis_at(u_call_loop_site, call_in_storm);
}

static bool nmis_over(void)
{
	return READ_ONCE(k_nmis) >= NMIS;
}

static void call_on_any_stack(void *argument)
{
	(void)argument;
	space_load(&space);
	count_nmis_begin();
	atomic_store(&storm_ready, 1);
	storm_errors = any_stack_calls(nmis_over);
	count_nmis_end();
	space_load(NULL);
}

/* The same while nothing may use the memory at the stack pointer. */
TEST(patch_nmi_stack, "patch.claim.nmi_any_stack", 2, 0, PATCH_CLAIM, APIC_SEND_IPI)
{
	send_nmis_at(u_any_stack_site, call_on_any_stack);
}

/* The program sets NT: an iret of the kernel would be refused with it. */
TEST(patch_nested, "patch.claim.nested_task", 1, 0, PATCH_CLAIM)
{
	struct user_context context;
	struct vmi_syscall_site site;
	u64 flags;

	need_slots();
	prepare();
	write_program(text(), 56);
	site = site_at(SITE_VA, text(), 9);
	CHECK_RESULT(vmi.patch_claim(&area, &site), 0);
	apply(&site, text());
	user_init(&context, u_nop);
	context.in.rip = SITE_VA;
	context.in.rflags |= FLAGS_NT;
	user_run(&context);
	asm volatile("pushfq; popq %0; pushq %0; andq %2, (%%rsp); popfq"
		     : "=&r"(flags), "+r"(current_rsp) : "r"(~FLAGS_NT) : "memory", "cc");
	CHECK_EQ(context.out.vector, VECTOR_SYSCALL);
	CHECK_EQ(context.out.r11, context.in.rflags);
	CHECK(!(flags & FLAGS_NT));
	clean_up();
}

/* Single steps lead to the system call, which is one of them, and past it. */
TEST(patch_step, "patch.claim.single_step", 1, 0, PATCH_CLAIM, CPU_IRET)
{
	struct user_context context;
	struct vmi_syscall_site site;
	u32 steps;

	need_slots();
	prepare();
	write_program(text(), 57);
	site = site_at(SITE_VA, text(), 9);
	CHECK_RESULT(vmi.patch_claim(&area, &site), 0);
	apply(&site, text());
	user_init(&context, u_nop);
	context.in.rip = SITE_VA;
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
	CHECK_EQ(context.out.rip, SITE_VA + 7);
	CHECK(context.out.r11 & FLAGS_TF);
	clean_up();
}

TEST(patch_errors, "patch.claim.errors", 1, 0, PATCH_CLAIM, PATCH_FIXUP, PATCH_RELEASE)
{
	static const u8 odd[] = { 0x90, 0x90, 0x90, 0x90, 0x90, 0x0f, 0x05, 0x90, 0x90 };
	struct vmi_syscall_site site;
	struct vmi_patch_area bad;
	u64 rip, rax = 5;

	need_slots();
	prepare();
	rip = SITE_VA;		/* user addresses are chosen with the first space */
	site = site_at(SITE_VA, odd, sizeof(odd));
	CHECK_RESULT(vmi.patch_claim(&area, &site), -VMI_EINVAL);
	write_program(text(), 1);
	/* Over a page boundary. */
	site = site_at(USER_DATA + PAGE_SIZE - 4, text(), 9);
	CHECK_RESULT(vmi.patch_claim(&area, &site), -VMI_EINVAL);
	/* An area that user code cannot reach with a 32-bit jump. */
	bad = area;
	bad.user = USER_DATA;
	site = site_at(SITE_VA, text(), 9);
	CHECK_RESULT(vmi.patch_claim(&bad, &site), -VMI_EINVAL);
	CHECK_RESULT(vmi.patch_release(&area, area.user + 64), -VMI_ENOENT);
	CHECK_RESULT(vmi.patch_fixup(&area, &rip, &rax), -VMI_ENOENT);
	CHECK_EQ(rip, SITE_VA);
	CHECK_EQ(rax, 5);
	clean_up();
}

/* As many as there is room for, each for its own site; then the area is full. */
TEST(patch_many, "patch.claim.fills", 1, 0, PATCH_CLAIM, PATCH_RELEASE)
{
	u64 claimed = 0, step = 16, limit = PAGE_SIZE / step - 1, i;
	struct vmi_syscall_site site;
	static u64 slots[256];
	u8 *page;
	int result = 0;

	need_slots();
	prepare();
	page = to_linear(text_gpa);
	for (i = 0; i < limit; i++) {
		write_program(page + i * step, i);
		site = site_at(USER_DATA + i * step, page + i * step, 9);
		result = vmi.patch_claim(&area, &site);
		if (result)
			break;
		slots[claimed++] = site.slot;
		apply(&site, page + i * step);
	}
	if (result)
		CHECK_RESULT(result, -VMI_ENOSPC);
	CHECK_OP(claimed, >, 0);
	for (i = 0; i < claimed; i++)
		run_site(USER_DATA + i * step, i);
	for (i = 0; i < claimed; i++)
		CHECK_RESULT(vmi.patch_release(&area, slots[i]), 0);
	clean_up();
}

static bool entries_offered(void)
{
	return layer_features(VMI_SECTION_PATCH) & VMI_PATCH_ENTRIES;
}

static void jump_to_slot(u8 *at, u64 va, u64 slot)
{
	s64 distance = (s64)(slot - (va + 5));

	CHECK(distance == (s32)distance);
	at[0] = 0xe9;
	memcpy(at + 1, &distance, 4);
}

/*
 * The area is an ordinary page, the kernel writes the jump to it, and the syscall instruction
 * stays.
 */
TEST(patch_entry, "patch.claim.entry", 1, 0, PATCH_CLAIM, PATCH_RELEASE)
{
	struct vmi_syscall_site site;
	u64 slots[2], va = SITE_VA;
	u32 i;

	need_slots();
	if (!entries_offered())
		test_skip("the layer wants to make the jump itself");
	prepare();
	area.user = USER_DATA + PAGE_SIZE;
	area.size = PAGE_SIZE;
	space_set(&space, area.user, area_gpa[0] | PTE_P | PTE_U, VMI_LEVEL_PT);
	for (i = 0; i < 2; i++) {
		/*
		 * The second one has more code before the syscall instruction: mov $nr,%eax; mov
		 * $nr,%eax.
		 */
		u8 *at = text() + i * 64;

		va = SITE_VA + i * 64;
		write_program(at, 40 + i);
		if (i) {
			at[0] = 0xb8;
			memcpy(at + 1, &(u32){ 1 }, 4);
			write_program(at + 5, 40 + i);
		}
		site = site_at(va, at, 9);
		site.flags = VMI_SITE_ENTRY;
		site.length = i ? 12 : 7;
		site.syscall_offset = i ? 10 : 5;
		memcpy(site.code, at, 12);
		CHECK_RESULT(vmi.patch_claim(&area, &site), 0);
		CHECK_EQ(site.patch_length, 0);
		CHECK_OP(site.slot, >=, area.user);
		CHECK_OP(site.slot, <, area.user + area.size);
		slots[i] = site.slot;
		/* Kernels move threads from a stub to its site. */
		CHECK(!memcmp((u8 *)area.kernel + (slots[i] - area.user), site.code, i ? 10 : 5));
		jump_to_slot(at, va, site.slot);
	}
	invalidate_page(USER_DATA);
	run_site(SITE_VA, 40);
	/*
	 * Returns after the syscall instruction, which is 5 bytes further than with one
	 * instruction.
	 */
	{
		struct user_context context;

		user_init(&context, u_nop);
		context.in.rip = va;
		user_run(&context);
		CHECK_EQ(context.out.vector, VECTOR_SYSCALL);
		CHECK_EQ(context.out.rax, 41);
		CHECK_EQ(context.out.rip, va + 12);
		/* The instruction itself is still there. */
		user_init(&context, u_nop);
		context.in.rip = SITE_VA + 5;
		context.in.rax = 77;
		user_run(&context);
		CHECK_EQ(context.out.vector, VECTOR_SYSCALL);
		CHECK_EQ(context.out.rax, 77);
		CHECK_EQ(context.out.rip, SITE_VA + 7);
	}
	/* Without the flag the area is refused. */
	site = site_at(SITE_VA + 128, text(), 9);
	write_program(site.code, 1);
	CHECK_RESULT(vmi.patch_claim(&area, &site), -VMI_EINVAL);
	for (i = 0; i < 2; i++)
		CHECK_RESULT(vmi.patch_release(&area, slots[i]), 0);
	CHECK_RESULT(vmi.patch_release(&area, slots[0]), -VMI_ENOENT);
	clean_up();
}

TEST(patch_set_entry_errors, "patch.set_entry.errors", 1, 0, PATCH_SET_ENTRY)
{
	if (!vmi.patch_set_entry)
		test_skip("the layer is older");
	if (!entries_offered()) {
		CHECK_RESULT(vmi.patch_set_entry(0), -VMI_ENOSYS);
		return;
	}
	CHECK_RESULT(vmi.patch_set_entry(USER_DATA), -VMI_EINVAL);
	CHECK_RESULT(vmi.patch_set_entry(0), 0);
}
