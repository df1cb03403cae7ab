// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * cpuid in user mode, which the kernel can make fault: for each vCPU separately, whatever space it
 * runs in.
 */
#include "test.h"
#include "user_mode.h"

#define MSR_MISC_FEATURES_ENABLES 0x140

static struct space spaces[2];
static u64 result_gpa;

static void prepare(void)
{
	u32 i;

	result_gpa = alloc_page();
	for (i = 0; i < 2; i++) {
		space_create(&spaces[i]);
		space_set(&spaces[i], USER_DATA, result_gpa | PTE_P | PTE_W | PTE_U, VMI_LEVEL_PT);
	}
}

static void clean_up(void)
{
	u32 i;

	space_load(NULL);
	for (i = 0; i < 2; i++)
		space_destroy(&spaces[i]);
	free_page(result_gpa);
}

static void need_faulting(void)
{
	if (!cpuid_faulting(false))
		test_skip("the host cannot make cpuid fault");
}

/*
 * Runs cpuid in that space. Returns whether it faulted; the fault must be a general-protection
 * exception at the instruction that changes nothing.
 */
static bool faults(u32 space, u32 leaf, u32 subleaf)
{
	struct user_context context;

	space_load(&spaces[space]);
	user_init(&context, u_cpuid);
	context.in.rdi = leaf;
	context.in.rsi = subleaf;
	context.in.rdx = USER_DATA;
	context.in.rbx = 0x1234567887654321;
	user_run(&context);
	if (context.out.vector == VECTOR_SYSCALL)
		return false;
	CHECK_EQ(context.out.vector, VECTOR_GP);
	CHECK_EQ(context.out.error, 0);
	CHECK_EQ(context.out.cs, USER_CS);
	CHECK_EQ(context.out.rip, USER_ADDRESS(u_cpuid_instruction));
	CHECK_EQ(context.out.rax, leaf);
	CHECK_EQ(context.out.rcx, subleaf);
	CHECK_EQ(context.out.rbx, context.in.rbx);
	CHECK_EQ(context.out.rdx, context.in.rdx);
	CHECK_EQ(context.out.rsp, context.in.rsp);
	return true;
}

/*
 * Without the fault it returns what the processor returns, and so does the kernel's call if there
 * is nothing to hide.
 */
TEST(user_cpuid, "cpu.cpuid.user", 1, 0, CPU_CPUID)
{
	static const u32 leaves[] = { 0, 0x80000000, 0x80000002, 0x80000003, 0x80000004, 0x80000008,
				      0x3fffffff, 0x7fffffff,
				      0x8fffffff };
	u32 i, subleaf;

	prepare();
	for (i = 0; i < ARRAY_SIZE(leaves); i++)
		for (subleaf = 0; subleaf < 3; subleaf++) {
			struct vmi_cpuid want = cpuid(leaves[i], subleaf),
				*got = to_linear(result_gpa);

			CHECK(!faults(0, leaves[i], subleaf));
			CHECK_EQ(got->eax, want.eax);
			CHECK_EQ(got->ebx, want.ebx);
			CHECK_EQ(got->ecx, want.ecx);
			/*
			 * Intel processors repeat the last basic leaf for unknown leaves. It may
			 * contain the number of the processor.
			 */
			if (!(leaves[i] & 0xfffffff0) || leaves[i] >> 4 == 0x8000000)
				CHECK_EQ(got->edx, want.edx);
		}
	clean_up();
}

TEST(user_cpuid_faults, "cpu.write_msr.cpuid_faulting", 1, 0, CPU_WRITE_MSR, CPU_READ_MSR)
{
	u64 value;
	u32 i;

	need_faulting();
	prepare();
	/* In spaces that have run before and after, in turns. */
	CHECK(!faults(0, 0, 0));
	CHECK(!faults(1, 4, 1));
	for (i = 0; i < 3; i++) {
		cpuid_faulting(true);
		CHECK_RESULT(vmi.cpu_read_msr(MSR_MISC_FEATURES_ENABLES, &value), 0);
		CHECK_EQ(value, 1);
		CHECK(faults(1, 4, 1));
		CHECK(faults(0, 0, 7));
		CHECK(faults(0, 0x40000000, 0));
		CHECK(faults(1, 0x80000000, 0xffffffff));
		/* The kernel's own call is unaffected. */
		CHECK_NE(cpuid(0, 0).eax, 0);
		cpuid_faulting(false);
		CHECK_RESULT(vmi.cpu_read_msr(MSR_MISC_FEATURES_ENABLES, &value), 0);
		CHECK_EQ(value, 0);
		CHECK(!faults(1, 4, 1));
		CHECK(!faults(0, 0, 0));
	}
	clean_up();
}

TEST(user_cpuid_refused, "cpu.write_msr.cpuid_faulting_values", 1, 0, CPU_WRITE_MSR)
{
	u64 value;

	need_faulting();
	CHECK_RESULT(vmi.cpu_write_msr(MSR_MISC_FEATURES_ENABLES, 2), -VMI_EFAULT);
	CHECK_RESULT(vmi.cpu_write_msr(MSR_MISC_FEATURES_ENABLES, 1ull << 32), -VMI_EFAULT);
	CHECK_RESULT(vmi.cpu_read_msr(MSR_MISC_FEATURES_ENABLES, &value), 0);
	CHECK_EQ(value, 0);
}

static bool other_faulted[2];

static void on_other(void *argument)
{
	(void)argument;
	other_faulted[0] = faults(0, 0, 0);
	cpuid_faulting(true);
	other_faulted[1] = faults(1, 0, 0);
	cpuid_faulting(false);
	space_load(NULL);
}

TEST(user_cpuid_vcpus, "cpu.write_msr.cpuid_faulting_vcpus", 2, 0, CPU_WRITE_MSR)
{
	need_faulting();
	prepare();
	cpuid_faulting(true);
	CHECK(faults(0, 0, 0));
	run_on(1, on_other, NULL);
	wait_for(1);
	CHECK(!other_faulted[0]);
	CHECK(other_faulted[1]);
	CHECK(faults(0, 0, 0));
	CHECK(faults(1, 0, 0));
	cpuid_faulting(false);
	run_on(1, on_other, NULL);
	wait_for(1);
	CHECK(!faults(0, 0, 0));
	clean_up();
}
