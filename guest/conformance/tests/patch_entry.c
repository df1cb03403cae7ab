// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * How system calls from stubs (slots in the interface) enter the kernel: in a storm of NMIs, from
 * stubs that the kernel's own jumps lead to (VMI_SITE_ENTRY), and where patch.set_entry says.
 */
#include "any_stack.h"
#include "harness.h"
#include "patch_area.h"
#include "test.h"

#define MSR_LSTAR	0xc0000082
#define NMIS		500		/* option "events": more, for a fault that needs luck */

void k_call_entry(void);

static u32 storm_ready;
static u64 storm_errors, nmis;

/* On vCPU 1: makes system calls, which k_call_entry answers, until every NMI has arrived. */
static void call_in_storm(void)
{
	struct user_context context;

	space_load(&area_space);
	count_nmis_begin();
	atomic_store(&storm_ready, 1);
	while (READ_ONCE(k_nmis) < nmis) {
		user_init(&context, u_call_loop);
		context.in.rdi = 1000;
		user_run(&context);
		if (context.out.vector != VECTOR_USER_GATE || context.out.rax ||
		    context.out.rsp != USER_STACK_TOP)
			storm_errors++;
		watch("NMIs");
	}
	count_nmis_end();
	space_load(NULL);
}

static void call_to_lstar(void *argument)
{
	(void)argument;
	vmi.cpu_write_msr(MSR_LSTAR, (u64)k_call_entry);
	call_in_storm();
	vmi.cpu_write_msr(MSR_LSTAR, (u64)syscall_entry);
}

static void call_to_entry(void *argument)
{
	(void)argument;
	CHECK_RESULT(vmi.patch_set_entry((u64)k_call_entry), 0);
	call_in_storm();
	CHECK_RESULT(vmi.patch_set_entry(0), 0);
}

/* Sends NMIs to vCPU 1, which makes system calls by `caller`, through the stub at `label`. */
static void send_nmis_at(const char *label, void (*caller)(void *))
{
	struct vmi_syscall_site site;
	u8 old[7], *code;
	u64 va, *pte;

	area_need_stubs();
	area_prepare();
	va = USER_ADDRESS(label);
	pte = space_pte(&area_space, va, VMI_LEVEL_PT);
	code = (u8 *)to_linear(*pte & PTE_ADDRESS) + va % PAGE_SIZE;
	memcpy(old, code, sizeof(old));
	site = area_site_at(va, code, sizeof(old));
	CHECK_RESULT(vmi.patch_claim(&area_stubs, &site), 0);
	memcpy(code, site.patch, site.patch_length);
	nmis = option_number("events") ?: NMIS;
	k_nmis = storm_errors = 0;
	storm_ready = 0;
	run_on(1, caller, NULL);
	WAIT_UNTIL(atomic_load(&storm_ready));
	send_nmis(1, nmis);
	wait_for(1);
	memcpy(code, old, sizeof(old));
	area_clean_up();
	CHECK_EQ(storm_errors, 0);
}

/* An NMI arrives between any two instructions of a stub. No register and no flag changes. */
TEST(patch_nmi, "patch.claim.nmi", 2, 0, PATCH_CLAIM, APIC_SEND_IPI)
{
	send_nmis_at(u_call_loop_site, call_to_lstar);
}

static bool nmis_over(void)
{
	return READ_ONCE(k_nmis) >= nmis;
}

static void call_on_any_stack(void *argument)
{
	(void)argument;
	space_load(&area_space);
	count_nmis_begin();
	atomic_store(&storm_ready, 1);
	storm_errors = any_stack_calls(nmis_over);
	count_nmis_end();
	space_load(NULL);
}

/* An NMI arrives in a stub while nothing may use the memory at the stack pointer. */
TEST(patch_nmi_stack, "patch.claim.nmi_any_stack", 2, 0, PATCH_CLAIM, APIC_SEND_IPI)
{
	send_nmis_at(u_any_stack_site, call_on_any_stack);
}

static void need_set_entry(void)
{
	if (!vmi.patch_set_entry)
		test_skip("the layer is older");
	if (!area_entries_offered())
		test_skip("the layer offers no entry for calls from stubs");
}

/*
 * Calls from stubs have an entry of their own, and at LSTAR syscall_entry waits for others. A call
 * that arrives there, because an NMI came before it had entered, ends the program too early.
 */
TEST(patch_set_entry_nmi, "patch.set_entry.nmi", 2, 0, PATCH_SET_ENTRY, PATCH_CLAIM, APIC_SEND_IPI)
{
	area_need_stubs();
	need_set_entry();
	send_nmis_at(u_call_loop_site, call_to_entry);
}

static void jump_to_stub(u8 *at, u64 va, u64 slot)
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
	u64 slots[2], va = AREA_SITE;
	u32 i;

	area_need_stubs();
	if (!area_entries_offered())
		test_skip("the layer wants to make the jump itself");
	area_prepare();
	area_stubs.user = USER_DATA + PAGE_SIZE;
	area_stubs.size = PAGE_SIZE;
	space_set(&area_space, area_stubs.user, area_gpa | PTE_P | PTE_U, VMI_LEVEL_PT);
	for (i = 0; i < 2; i++) {
		/*
		 * The second one has more code before the syscall instruction: mov $nr,%eax; mov
		 * $nr,%eax.
		 */
		u8 *at = area_text() + i * 64;

		va = AREA_SITE + i * 64;
		area_write_program(at, 40 + i);
		if (i) {
			at[0] = 0xb8;
			memcpy(at + 1, &(u32){ 1 }, 4);
			area_write_program(at + 5, 40 + i);
		}
		site = area_site_at(va, at, 9);
		site.flags = VMI_SITE_ENTRY;
		site.length = i ? 12 : 7;
		site.syscall_offset = i ? 10 : 5;
		memcpy(site.code, at, 12);
		CHECK_RESULT(vmi.patch_claim(&area_stubs, &site), 0);
		CHECK_EQ(site.patch_length, 0);
		CHECK_OP(site.slot, >=, area_stubs.user);
		CHECK_OP(site.slot, <, area_stubs.user + area_stubs.size);
		slots[i] = site.slot;
		/* Kernels move threads from a stub to its site. */
		CHECK(!memcmp((u8 *)area_stubs.kernel + (slots[i] - area_stubs.user), site.code,
			      i ? 10 : 5));
		jump_to_stub(at, va, site.slot);
	}
	invalidate_page(USER_DATA);
	area_run(AREA_SITE, 40);
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
		context.in.rip = AREA_SITE + 5;
		context.in.rax = 77;
		user_run(&context);
		CHECK_EQ(context.out.vector, VECTOR_SYSCALL);
		CHECK_EQ(context.out.rax, 77);
		CHECK_EQ(context.out.rip, AREA_SITE + 7);
	}
	/* Without the flag the area is refused. */
	site = area_site_at(AREA_SITE + 128, area_text(), 9);
	area_write_program(site.code, 1);
	CHECK_RESULT(vmi.patch_claim(&area_stubs, &site), -VMI_EINVAL);
	for (i = 0; i < 2; i++)
		CHECK_RESULT(vmi.patch_release(&area_stubs, slots[i]), 0);
	CHECK_RESULT(vmi.patch_release(&area_stubs, slots[0]), -VMI_ENOENT);
	area_clean_up();
}

TEST(patch_set_entry_errors, "patch.set_entry.errors", 1, 0, PATCH_SET_ENTRY)
{
	if (!vmi.patch_set_entry)
		test_skip("the layer is older");
	if (!area_entries_offered()) {
		CHECK_RESULT(vmi.patch_set_entry(0), -VMI_ENOSYS);
		return;
	}
	CHECK_RESULT(vmi.patch_set_entry(USER_DATA), -VMI_EINVAL);
	CHECK_RESULT(vmi.patch_set_entry(0), 0);
}
