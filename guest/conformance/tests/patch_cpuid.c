// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Call stubs for cpuid, which the kernel places itself. */
#include "patch_stub.h"
#include "harness.h"
#include "test.h"

/* This kernel's answer when cpuid faults, which no processor gives. */
static struct vmi_cpuid emulated(u32 leaf, u32 subleaf)
{
	return (struct vmi_cpuid){ ~leaf, leaf ^ 0x5a5a5a5a, ~subleaf, leaf + subleaf };
}

/*
 * The result of cpuid that the program gets, at AT_SLOT or at AT_SITE, with the leaf in eax already
 * (after the mov). If cpuid faults, which it does like a privileged instruction, this kernel
 * answers.
 */
static struct vmi_cpuid run_cpuid(u32 copy, u32 at, u32 leaf, u32 subleaf, u64 flags, bool *faulted)
{
	u64 seed = leaf ^ (u64)subleaf << 32 ^ flags ^ copy;
	struct user_context context;
	struct vmi_cpuid regs;

	stub_enter(&context, COPY(copy) + at + PREFIX, seed);
	context.in.rax = (context.in.rax & ~0xffffffffull) | leaf;
	context.in.rcx = (context.in.rcx & ~0xffffffffull) | subleaf;
	context.in.rflags = flags;
	user_run(&context);
	stub_check_others(&context);
	CHECK_EQ(context.out.r11, context.in.r11);
	CHECK_EQ(context.out.rflags & ~FLAGS_RF, flags);
	*faulted = context.out.vector == VECTOR_GP;
	if (*faulted) {
		const u8 *instruction = stub_text(copy) + (context.out.rip - COPY(copy));

		CHECK_EQ(context.out.error, 0);
		CHECK_EQ(context.out.rip & ~(PAGE_SIZE - 1), COPY(copy));
		CHECK_EQ(instruction[0] | instruction[1] << 8, 0xa20f);
		CHECK_EQ((u32)context.out.rax, leaf);
		CHECK_EQ((u32)context.out.rcx, subleaf);
		regs = emulated(leaf, subleaf);
		context.in = context.out;
		context.in.vector = 0;
		context.in.rip += 2;
		context.in.rax = regs.eax;
		context.in.rbx = regs.ebx;
		context.in.rcx = regs.ecx;
		context.in.rdx = regs.edx;
		user_run(&context);
		stub_check_others(&context);
		CHECK_EQ(context.out.rflags & ~FLAGS_RF, flags);
	}
	CHECK_EQ(context.out.vector, VECTOR_USER_GATE);
	CHECK_EQ(context.out.rip, COPY(copy) + AT_SITE + PREFIX + 4);
	CHECK_EQ((context.out.rax | context.out.rbx | context.out.rcx | context.out.rdx) >> 32, 0);
	return (struct vmi_cpuid){ context.out.rax, context.out.rbx, context.out.rcx,
				   context.out.rdx };
}

static void prepare_cpuid(void)
{
	struct vmi_syscall_site site, body = { .slot = COPY(0) + AT_BODY, .flags = VMI_SITE_BODY };

	stub_prepare();
	/* So that the stub's own cpuid instruction can be observed. */
	CHECK(cpuid_faulting(true));
	/*
	 * Site and stub begin with a mov. The tests jump over it, so that the leaf can be anything.
	 */
	site = stub_site(0, 0xa2);
	CHECK_OP(stub_write(&site, AT_SLOT), >, 0);
	CHECK_OP(stub_write(&body, AT_BODY), >, 0);
	stub_copy_text();
}

static void check_same(struct vmi_cpuid got, struct vmi_cpuid want)
{
	CHECK_EQ(got.eax, want.eax);
	CHECK_EQ(got.ebx, want.ebx);
	CHECK_EQ(got.ecx, want.ecx);
	CHECK_EQ(got.edx, want.edx);
}

/* The instruction's result in user mode when it does not fault. Leaves faulting on. */
static struct vmi_cpuid instruction(u32 leaf, u32 subleaf)
{
	struct vmi_cpuid regs;
	bool faulted;

	cpuid_faulting(false);
	regs = run_cpuid(0, AT_SITE, leaf, subleaf, FLAGS_FIXED | FLAGS_IF, &faulted);
	CHECK(!faulted);
	cpuid_faulting(true);
	return regs;
}

/* Cores of more than one kind, whose caches differ. */
static bool hybrid(void)
{
	return instruction(0, 0).eax >= 7 && (instruction(7, 0).edx >> 15 & 1);
}

/*
 * Without the number of the processor and what may contain it: Intel processors return the last
 * basic leaf for unknown leaves. And without what depends on the kind of core.
 */
static struct vmi_cpuid anywhere(u32 leaf, struct vmi_cpuid regs)
{
	if (leaf == 1)
		regs.ebx &= 0xffffff;
	else if (leaf && leaf >> 4 != 0x8000000)
		regs.edx = 0;
	if (leaf == 0xb)
		regs.ebx = 0;
	return regs;
}

static bool indexed(u32 leaf)
{
	return leaf == 4 || leaf == 7 || leaf == 0xd;
}

/*
 * What is constant and the same on all vCPUs comes without a fault, and equals the instruction's
 * result.
 */
TEST(code_cpuid, "patch.code.cpuid", 1, 0, PATCH_CODE)
{
	static const struct {
		u32 leaf, subleaf;
	} asked[] = {
		{ 0, 0 }, { 0, 0x12345678 }, { 2, 0x80000001 }, { 2, 0 }, { 4, 0 }, { 4, 1 },
		{ 4, 2 }, { 4, 3 }, { 7, 0 },
		{ 0xd, 0 }, { 0xd, 1 }, { 0xd, 2 }, { 0x80000000, 0 }, { 0x80000000, 0xffffffff },
		{ 0x80000001, 7 },
		{ 0x80000008, 1 },
	};
	bool faulted, cores_differ;
	u32 i, copy;

	stub_need(VMI_PATCH_CPUID);
	prepare_cpuid();
	cores_differ = hybrid();
	for (i = 0; i < ARRAY_SIZE(asked); i++) {
		u32 leaf = asked[i].leaf, subleaf = asked[i].subleaf;
		struct vmi_cpuid want = instruction(leaf, subleaf);

		if (leaf > instruction(leaf & 0x80000000, 0).eax ||
		    (cores_differ && (leaf == 2 || leaf == 4)) ||
		    (indexed(leaf) && subleaf && !(want.eax | want.ebx | want.ecx | want.edx)))
			continue;
		for (copy = 0; copy < 2; copy++) {
			struct vmi_cpuid got = run_cpuid(copy, AT_SLOT, leaf, subleaf,
							 FLAGS_FIXED | FLAGS_IF, &faulted);

			check_same(got, want);
			CHECK(!faulted);
		}
	}
	stub_clean_up();
}

/* All flags that a program can set. */
TEST(code_flags, "patch.code.cpuid_flags", 1, 0, PATCH_CODE)
{
	static const u64 flags[] = { 0x001, 0x004, 0x010, 0x040, 0x080, FLAGS_DF, 0x800, FLAGS_AC };
	static const u32 leaves[] = { 0, 0x4ffffff0 };
	u32 set, i, k;

	stub_need(VMI_PATCH_CPUID);
	prepare_cpuid();
	for (set = 0; set < 1U << ARRAY_SIZE(flags); set++) {
		u64 all = FLAGS_FIXED | FLAGS_IF;
		bool faulted;

		for (i = 0; i < ARRAY_SIZE(flags); i++)
			all |= set >> i & 1 ? flags[i] : 0;
		for (k = 0; k < ARRAY_SIZE(leaves); k++)
			run_cpuid(0, AT_SLOT, leaves[k], set, all, &faulted);
	}
	stub_clean_up();
}

/*
 * What the stub does not know it leaves to the instruction, which the kernel answers if it wants a
 * fault, and else the processor.
 */
TEST(code_miss, "patch.code.cpuid_miss", 1, 0, PATCH_CODE)
{
	static const u32 leaves[] = { 0x40000000, 0x40000001, 0x4fffffff, 0xffffffff, 0x7fffffff,
				      0x80001000, 6, 0xb, 1 };
	u32 i;

	stub_need(VMI_PATCH_CPUID);
	prepare_cpuid();
	for (i = 0; i < ARRAY_SIZE(leaves); i++) {
		struct vmi_cpuid want = instruction(leaves[i], 1), got;
		bool faulted;

		got = run_cpuid(1, AT_SLOT, leaves[i], 1, FLAGS_FIXED | FLAGS_IF, &faulted);
		/* These belong to the vCPU. */
		if (leaves[i] == 1 || (leaves[i] == 0xb && !hybrid()))
			CHECK_EQ(faulted, machine.vcpu_count > 1 ||
				 leaves[i] > instruction(0, 0).eax);
		else
			CHECK(faulted);
		if (faulted)
			check_same(got, emulated(leaves[i], 1));
		else
			check_same(anywhere(leaves[i], got), anywhere(leaves[i], want));
		check_same(run_cpuid(0, AT_SITE, leaves[i], 1, FLAGS_FIXED | FLAGS_IF, &faulted),
			   emulated(leaves[i], 1));
		CHECK(faulted);

		cpuid_faulting(false);
		got = run_cpuid(1, AT_SLOT, leaves[i], 1, FLAGS_FIXED | FLAGS_IF, &faulted);
		CHECK(!faulted);
		check_same(anywhere(leaves[i], got), anywhere(leaves[i], want));
		cpuid_faulting(true);
	}
	stub_clean_up();
}

#define NMIS 500

static u32 storm_ready;
static u64 storm_errors;

static void ask_in_storm(void *argument)
{
	struct user_context context;
	struct vmi_cpuid want;

	(void)argument;
	space_load(&stub_space);
	want = instruction(0xd, 1);
	count_nmis_begin();
	atomic_store(&storm_ready, 1);
	while (READ_ONCE(k_nmis) < NMIS) {
		user_init(&context, u_cpuid_loop);
		context.in.rdi = 2000;
		context.in.rsi = 1;
		context.in.r8 = want.eax;
		context.in.r9 = want.ebx;
		context.in.r10 = want.ecx;
		context.in.r11 = want.edx;
		user_run(&context);
		if (context.out.vector != VECTOR_USER_GATE || context.out.rax ||
		    context.out.rsp != USER_STACK_TOP)
			storm_errors++;
		watch("NMIs");
	}
	count_nmis_end();
	cpuid_faulting(false);
	space_load(NULL);
}

/* An NMI arrives between any two instructions of stub and body. No effect is visible. */
TEST(code_storm, "patch.code.nmi", 2, 0, PATCH_CODE, APIC_SEND_IPI)
{
	struct vmi_syscall_site site, body = { .slot = COPY(0) + AT_BODY, .flags = VMI_SITE_BODY };
	u8 old[7], *code;
	u64 va, *pte;
	s64 distance;

	stub_need(VMI_PATCH_CPUID);
	if (cpuid(0, 0).eax < 0xd)
		test_skip("there is no leaf 0xd");
	stub_prepare();
	site = stub_site(0xd, 0xa2);
	stub_copy_text();
	va = USER_ADDRESS(u_cpuid_loop_site);
	pte = space_pte(&stub_space, va, VMI_LEVEL_PT);
	code = (u8 *)to_linear(*pte & PTE_ADDRESS) + va % PAGE_SIZE;
	memcpy(old, code, sizeof(old));
	site.addr = va;
	CHECK_OP(stub_write(&site, AT_SLOT), >, 0);
	CHECK_OP(stub_write(&body, AT_BODY), >, 0);
	distance = (s64)(site.slot - (va + 5));
	code[0] = 0xe9;
	memcpy(code + 1, &distance, 4);
	k_nmis = storm_errors = 0;
	storm_ready = 0;
	run_on(1, ask_in_storm, NULL);
	WAIT_UNTIL(atomic_load(&storm_ready));
	send_nmis(1, NMIS);
	wait_for(1);
	memcpy(code, old, sizeof(old));
	stub_clean_up();
	CHECK_EQ(storm_errors, 0);
}
