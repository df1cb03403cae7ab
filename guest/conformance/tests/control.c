// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Control and debug registers, MSRs, CPUID, counters. */
#include "harness.h"
#include "test.h"

#define MSR_EFER	0xc0000080
#define MSR_STAR	0xc0000081
#define MSR_LSTAR	0xc0000082
#define MSR_SFMASK	0xc0000084
#define MSR_FS_BASE	0xc0000100
#define MSR_GS_BASE	0xc0000101
#define MSR_KERNEL_GS_BASE 0xc0000102
#define MSR_HSAVE	0xc0010117	/* takes page addresses, where it is */

TEST(cr0, "cpu.set_cr0.reads_back", 1, 0, CPU_SET_CR0, CPU_GET_CR0, CPU_CLTS)
{
	u64 cr0 = cpu_cr0();

	CHECK_EQ(get_cr0(), cr0);
	set_cr0(cr0 | CR0_TS);
	CHECK_EQ(get_cr0(), cr0 | CR0_TS);
	clts();
	CHECK_EQ(get_cr0(), cr0);
	set_cr0(cr0 & ~CR0_WP);
	CHECK_EQ(get_cr0(), cr0 & ~CR0_WP);
	set_cr0(cr0);
	CHECK_EQ(get_cr0(), cr0);
}

static void fpu_instruction(void *argument)
{
	(void)argument;
	/* Changes nothing that the kernel uses: it has no FPU code. */
	asm volatile("fnop");
}

static void vector_instruction(void *argument)
{
	(void)argument;
	/* Nothing uses xmm7 here. */
	asm volatile("pxor %xmm7, %xmm7");
}

static void task_switched(u64 by_clts)
{
	struct catch catch;

	if (!(layer_features(VMI_SECTION_CPU) & VMI_CPU_TASK_SWITCHED))
		test_skip("the layer keeps CR0.TS only");
	set_cr0(cpu_cr0() | CR0_TS);
	CHECK(catch_trap(&catch, fpu_instruction, NULL));
	CHECK_EQ(catch.vector, VECTOR_NM);
	CHECK(catch_trap(&catch, vector_instruction, NULL));
	CHECK_EQ(catch.vector, VECTOR_NM);
	if (by_clts)
		clts();
	else
		set_cr0(cpu_cr0());
	CHECK(!catch_trap(&catch, fpu_instruction, NULL));
	CHECK(!catch_trap(&catch, vector_instruction, NULL));
}
TEST_OF(ts_cr0, "cpu.set_cr0.task_switched", task_switched, 0, 1, 0, CPU_SET_CR0);
TEST_OF(ts_clts, "cpu.clts.task_switched", task_switched, 1, 1, 0, CPU_CLTS);

TEST(cr2, "cpu.set_cr2.reads_back", 1, 0, CPU_SET_CR2, CPU_GET_CR2)
{
	static const u64 values[] = { 0, 1, 0x7fffffffffff, 0xffff800000000000, ~0ull };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(values); i++) {
		set_cr2(values[i]);
		CHECK_EQ(get_cr2(), values[i]);
	}
}

static u64 remote_cr2;

static void other_cr2(void *argument)
{
	(void)argument;
	set_cr2(0x2222);
	remote_cr2 = get_cr2();
}

TEST(cr2_own, "cpu.get_cr2.per_vcpu", 2, 0, CPU_GET_CR2)
{
	set_cr2(0x1111);
	run_on(1, other_cr2, NULL);
	wait_for(1);
	CHECK_EQ(get_cr2(), 0x1111);
	CHECK_EQ(remote_cr2, 0x2222);
}

TEST(cr4, "cpu.set_cr4.reads_back", 1, 0, CPU_SET_CR4, CPU_GET_CR4)
{
	u64 cr4 = cpu_cr4();

	CHECK_EQ(get_cr4(), cr4);
	set_cr4(cr4 & ~CR4_OSXMMEXCPT);
	CHECK_EQ(get_cr4(), cr4 & ~CR4_OSXMMEXCPT);
	set_cr4(cr4 & ~CR4_PGE);
	CHECK_EQ(get_cr4(), cr4 & ~CR4_PGE);
	set_cr4(cr4);
	CHECK_EQ(get_cr4(), cr4);
}

TEST(cr4_osxsave, "cpu.set_cr4.cpuid_osxsave", 1, 0, CPU_SET_CR4, CPU_CPUID)
{
	u64 cr4 = cpu_cr4();

	if (!(cr4 & CR4_OSXSAVE))
		test_skip("no XSAVE");
	CHECK(cpuid(1, 0).ecx & 1u << 27);
}

/* --- debug registers --- */

TEST(dr_errors, "cpu.set_dr.errors", 1, 0, CPU_SET_DR, CPU_GET_DR)
{
	static const u32 bad[] = { 4, 5, 8, 100, 0xffffffff };
	u64 value = 7;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK_RESULT(vmi.cpu_get_dr(bad[i], &value), -VMI_EINVAL);
		CHECK_RESULT(vmi.cpu_set_dr(bad[i], 0), -VMI_EINVAL);
	}
	CHECK_RESULT(vmi.cpu_set_dr(7, 1ull << 32 | 0x400), -VMI_EINVAL);
	CHECK_RESULT(vmi.cpu_set_dr(6, 1ull << 63), -VMI_EINVAL);
}

TEST(dr_reset, "cpu.get_dr.reset_values", 1, 0, CPU_GET_DR)
{
	u64 value = 0;

	CHECK_RESULT(vmi.cpu_set_dr(7, 0x400), 0);
	CHECK_RESULT(vmi.cpu_get_dr(7, &value), 0);
	CHECK_EQ(value, 0x400);
	CHECK_RESULT(vmi.cpu_get_dr(6, &value), 0);
	CHECK_EQ(value & 0xffff0ff0, 0xffff0ff0);
}

static u64 watched;

static void write_watched(void *argument)
{
	(void)argument;
	WRITE_ONCE(watched, 5);
}

/* Either a write to the watched word raises #DB, or the call refuses to arm it. */
TEST(dr_watch, "cpu.set_dr.watchpoint", 1, 0, CPU_SET_DR, CPU_GET_DR)
{
	struct catch catch;
	u64 value = 0;
	int result;

	result = vmi.cpu_set_dr(0, (u64)&watched);
	if (result) {
		CHECK_RESULT(result, -VMI_ENOSYS);
		CHECK_RESULT(vmi.cpu_get_dr(0, &value), -VMI_ENOSYS);
	} else {
		CHECK_RESULT(vmi.cpu_get_dr(0, &value), 0);
		CHECK_EQ(value, (u64)&watched);
	}
	/* Enable 0, write, 8 bytes. */
	result = vmi.cpu_set_dr(7, 0x90402);
	if (result) {
		CHECK_RESULT(result, -VMI_ENOSYS);
		CHECK_RESULT(vmi.cpu_get_dr(7, &value), 0);
		CHECK_EQ(value, 0x400);
		CHECK(!catch_trap(&catch, write_watched, NULL));
		return;
	}
	CHECK(catch_trap(&catch, write_watched, NULL));
	CHECK_EQ(catch.vector, VECTOR_DB);
	/* #DB is a trap: the store is done. */
	CHECK_EQ(READ_ONCE(watched), 5);
	CHECK_RESULT(vmi.cpu_get_dr(6, &value), 0);
	CHECK(value & 1);
	CHECK_RESULT(vmi.cpu_set_dr(7, 0x400), 0);
	CHECK_RESULT(vmi.cpu_set_dr(6, 0xffff0ff0), 0);
	CHECK(!catch_trap(&catch, write_watched, NULL));
}

/* --- model-specific registers --- */

TEST(msr_always, "cpu.write_msr.always_there", 1, 0, CPU_WRITE_MSR, CPU_READ_MSR)
{
	static const u32 msrs[] = { MSR_STAR, MSR_LSTAR, MSR_SFMASK, MSR_FS_BASE,
				    MSR_KERNEL_GS_BASE };
	u64 old, value;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(msrs); i++) {
		u64 test = msrs[i] == MSR_SFMASK ? 0x4700 : 0x7ffff0001000;

		CHECK_RESULT(vmi.cpu_read_msr(msrs[i], &old), 0);
		CHECK_RESULT(vmi.cpu_write_msr(msrs[i], test), 0);
		CHECK_RESULT(vmi.cpu_read_msr(msrs[i], &value), 0);
		CHECK_EQ(value, test);
		CHECK_RESULT(vmi.cpu_write_msr(msrs[i], old), 0);
		CHECK_RESULT(vmi.cpu_read_msr(msrs[i], &value), 0);
		CHECK_EQ(value, old);
	}
	CHECK_RESULT(vmi.cpu_read_msr(MSR_GS_BASE, &value), 0);
	CHECK_EQ(value, (u64)this_cpu());
	CHECK_RESULT(vmi.cpu_write_msr(MSR_GS_BASE, value), 0);
}

TEST(msr_efer, "cpu.read_msr.efer", 1, 0, CPU_READ_MSR, CPU_WRITE_MSR)
{
	u64 value = 0;

	CHECK_RESULT(vmi.cpu_read_msr(MSR_EFER, &value), 0);
	/* SCE, LME, LMA and NXE, as the kernel has set them. */
	CHECK_EQ(value & 0xd01, 0xd01);
	CHECK_RESULT(vmi.cpu_write_msr(MSR_EFER, value), 0);
}

TEST(msr_bases, "cpu.write_msr.bases", 1, 0, CPU_WRITE_MSR, CPU_GET_FS_BASE,
     CPU_SET_FS_BASE, CPU_GET_USER_GS_BASE, CPU_SET_USER_GS_BASE)
{
	u64 value;

	CHECK_RESULT(vmi.cpu_write_msr(MSR_FS_BASE, 0x12345000), 0);
	CHECK_EQ(vmi.cpu_get_fs_base(), 0x12345000);
	CHECK_RESULT(vmi.cpu_set_fs_base(0x6000), 0);
	CHECK_RESULT(vmi.cpu_read_msr(MSR_FS_BASE, &value), 0);
	CHECK_EQ(value, 0x6000);
	CHECK_RESULT(vmi.cpu_write_msr(MSR_KERNEL_GS_BASE, 0x23456000), 0);
	CHECK_EQ(vmi.cpu_get_user_gs_base(), 0x23456000);
	CHECK_RESULT(vmi.cpu_set_user_gs_base(0x8000), 0);
	CHECK_RESULT(vmi.cpu_read_msr(MSR_KERNEL_GS_BASE, &value), 0);
	CHECK_EQ(value, 0x8000);
	CHECK_RESULT(vmi.cpu_set_fs_base(0), 0);
	CHECK_RESULT(vmi.cpu_set_user_gs_base(0), 0);
}

/* For an MSR that does not exist emulators return 0, and a processor faults. */
TEST(msr_absent, "cpu.read_msr.absent", 1, 0, CPU_READ_MSR)
{
	static const u32 absent[] = { 0x12345678, 0xc0009999, 0xffffffff };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(absent); i++) {
		u64 value = ~0ull;
		int result = vmi.cpu_read_msr(absent[i], &value);

		CHECK(result == 0 || result == -VMI_EFAULT);
		if (result)
			CHECK_EQ(value, 0);
		else
			CHECK_NE(value, ~0ull);
	}
}

TEST(msr_refused, "cpu.write_msr.refused", 1, 0, CPU_WRITE_MSR)
{
	u64 before = 0, after = 0;
	int readable = vmi.cpu_read_msr(MSR_HSAVE, &before);

	/* Either the MSR does not exist, or it rejects a non-canonical address. */
	CHECK_RESULT(vmi.cpu_write_msr(MSR_HSAVE, 1), -VMI_EFAULT);
	CHECK_RESULT(vmi.cpu_read_msr(MSR_HSAVE, &after), readable);
	CHECK_EQ(after, before);
}

TEST(pmc_absent, "cpu.read_pmc.absent", 1, 0, CPU_READ_PMC)
{
	u64 value = ~0ull;
	int result = vmi.cpu_read_pmc(0x3fffffff, &value);

	CHECK(result == 0 || result == -VMI_EFAULT);
	if (result)
		CHECK_EQ(value, 0);
}

/* --- CPUID --- */

static bool same(struct vmi_cpuid a, struct vmi_cpuid b)
{
	return !memcmp(&a, &b, sizeof(a));
}

TEST(cpuid_basic, "cpu.cpuid.basic", 1, 0, CPU_CPUID)
{
	struct vmi_cpuid zero = cpuid(0, 0), one = cpuid(1, 0);

	CHECK_OP(zero.eax, >=, 1);
	CHECK(zero.ebx && zero.ecx && zero.edx);
	/* TSC, MSR, PAE, FXSR, SSE, SSE2: every 64-bit processor has them. */
	CHECK_EQ(one.edx & 0x7000070, 0x7000070);
	CHECK(cpuid(0x80000000, 0).eax >= 0x80000001);
	/* Long mode, NX, syscall. */
	CHECK_EQ(cpuid(0x80000001, 0).edx & 0x20100800, 0x20100800);
}

TEST(cpuid_stable, "cpu.cpuid.stable", 1, 0, CPU_CPUID)
{
	static const u32 leaves[] = { 0, 1, 4, 7, 0xb, 0xd, 0x80000001, 0x80000008 };
	u32 i, n;

	for (i = 0; i < ARRAY_SIZE(leaves); i++)
		for (n = 0; n < 3; n++)
			CHECK(same(cpuid(leaves[i], n), cpuid(leaves[i], n)));
}

TEST(cpuid_subleaf, "cpu.cpuid.subleaf", 1, 0, CPU_CPUID)
{
	struct vmi_cpuid zero, two;

	if (cpuid(0, 0).eax < 0xd || !(cpuid(1, 0).ecx & 1u << 26) ||
	    !(cpuid(0xd, 0).eax & 4))
		test_skip("no leaf whose subleaves differ for certain");
	/* Subleaf 0: the mask of components. Subleaf 2: size and offset of AVX state. */
	zero = cpuid(0xd, 0);
	two = cpuid(0xd, 2);
	CHECK_EQ(two.eax, 256);
	CHECK(!same(zero, two));
}

static struct vmi_cpuid remote_one, remote_seven;

static void read_cpuid(void *argument)
{
	(void)argument;
	remote_one = cpuid(1, 0);
	remote_seven = cpuid(7, 0);
}

TEST(cpuid_same, "cpu.cpuid.same_on_all", 2, 0, CPU_CPUID)
{
	struct vmi_cpuid one = cpuid(1, 0), seven = cpuid(7, 0);

	run_on(1, read_cpuid, NULL);
	wait_for(1);
	CHECK_EQ(remote_one.eax, one.eax);
	CHECK_EQ(remote_one.ecx, one.ecx);
	CHECK_EQ(remote_one.edx, one.edx);
	CHECK(same(remote_seven, seven));
}

/* --- XCR0 --- */

TEST(xcr_errors, "cpu.set_xcr.errors", 1, 0, CPU_SET_XCR)
{
	CHECK_RESULT(vmi.cpu_set_xcr(0, 0), -VMI_EFAULT);
	CHECK_RESULT(vmi.cpu_set_xcr(0, 1ull << 62 | 3), -VMI_EFAULT);
	CHECK_RESULT(vmi.cpu_set_xcr(0, 5), -VMI_EFAULT);
	CHECK_RESULT(vmi.cpu_set_xcr(77, 3), -VMI_EFAULT);
}

TEST(xcr_changes, "cpu.set_xcr.changes", 1, 0, CPU_SET_XCR)
{
	u64 all = fpu_level() == FPU_AVX512 ? 0xe7 : fpu_level() == FPU_AVX ? 7 : 3;
	u32 size = cpuid(0xd, 0).ebx;
	char word[16];

	if (!(get_cr4() & CR4_OSXSAVE))
		test_skip("no XSAVE");
	/* Then the sizes in CPUID are those of the states that KVM enabled at the start. */
	if (option("xsetbv", word, sizeof(word)) && !strcmp(word, "unheard"))
		test_skip("the host's emulated processor does not tell its KVM of xsetbv");
	CHECK_RESULT(vmi.cpu_set_xcr(0, all), 0);
	CHECK_EQ(cpuid(0xd, 0).ebx, size);
	if (!(layer_features(VMI_SECTION_CPU) & VMI_CPU_XCR)) {
		if (all != 1)
			CHECK_RESULT(vmi.cpu_set_xcr(0, 1), -VMI_EFAULT);
		return;
	}
	CHECK_RESULT(vmi.cpu_set_xcr(0, 3), 0);
	CHECK_EQ(cpuid(0xd, 0).ebx, 576);
	CHECK_RESULT(vmi.cpu_set_xcr(0, all), 0);
	CHECK_EQ(cpuid(0xd, 0).ebx, size);
}

/* --- time-stamp counter --- */

TEST(tsc_monotonic, "cpu.read_tsc.monotonic", 1, 0, CPU_READ_TSC)
{
	u64 last = 0, value;
	u32 i;

	for (i = 0; i < 10000; i++) {
		value = i & 1 && vmi.cpu_read_tsc ? vmi.cpu_read_tsc() : read_tsc();
		CHECK_OP(value, >=, last);
		last = value;
	}
}

static struct {
	u64 turn, value, failures, end;
	bool stop;
} relay;

static u64 relay_rounds;

static void pass_tsc(void *argument)
{
	u64 me = this_vcpu(), count = (u64)argument, i;

	for (i = 0; i < relay_rounds; i++) {
		u64 value;

		WAIT_UNTIL(atomic_load(&relay.turn) % count == me || atomic_load(&relay.stop));
		if (relay.stop)
			return;
		/* Without the fence the instruction may run ahead of the load that it waits for. */
		asm volatile("lfence" : : : "memory");
		value = read_tsc();
		if (value < relay.value)
			relay.failures++;
		relay.value = value;
		if (now() > relay.end)
			atomic_store(&relay.stop, true);
		atomic_add(&relay.turn, 1);
	}
}

/* Two vCPUs pass the last value to each other: it never decreases. */
TEST(tsc_relay, "cpu.read_tsc.monotonic_across", 2, 0, CPU_READ_TSC)
{
	memset(&relay, 0, sizeof(relay));
	relay_rounds = 5000;
	relay.end = now() + ROUNDS_BUDGET;
	run_on(1, pass_tsc, (void *)2);
	pass_tsc((void *)2);
	wait_for(1);
	CHECK_OP(relay.turn, >=, 2);
	CHECK_EQ(relay.failures, 0);
}

TEST(wbinvd_keeps, "cpu.wbinvd.keeps_memory", 1, 0, CPU_WBINVD)
{
	u64 gpa = alloc_page(), *page = to_linear(gpa), i;

	for (i = 0; i < 512; i++)
		WRITE_ONCE(page[i], i * 3);
	wbinvd();
	if (vmi.cpu_wbinvd)
		vmi.cpu_wbinvd();
	for (i = 0; i < 512; i++)
		CHECK_EQ(READ_ONCE(page[i]), i * 3);
	free_page(gpa);
}
