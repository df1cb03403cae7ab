// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* mmu.flush_preempted: flushes of vCPUs that do not run, without an interrupt. */
#include "pages.h"
#include "space.h"
#include "test.h"

#define VECTOR_FLUSH	0x57
#define TRIES		20
#define ROUNDS		300
#define BUDGET		(2 * NS_PER_S)

static bool offered(void)
{
	return layer_features(VMI_SECTION_MMU) & VMI_MMU_FLUSH_PREEMPTED;
}

TEST(preempted_errors, "mmu.flush_preempted.errors", 1, 0, MMU_FLUSH_PREEMPTED)
{
	u32 bad[] = { 0x10000, 0xffffffff, VCPU_WITHOUT_DATA }, i;

	if (!vmi.mmu_flush_preempted)
		test_skip("the layer is older");
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK_RESULT(vmi.mmu_flush_preempted(bad[i]), offered() ? -VMI_ENOENT :
							      -VMI_ENOSYS);
	/* The vCPU that asks runs. */
	CHECK_RESULT(vmi.mmu_flush_preempted(this_vcpu()), offered() ? 0 : -VMI_ENOSYS);
}

static struct space space;
static u64 gpa[2], begun, done, stop, ready, wrong, shot;

static void flush_here(struct regs *regs)
{
	(void)regs;
	invalidate_page(USER_DATA);
	atomic_add(&shot, 1);
}

/* If no change was in progress, the page must be that of the last one. */
static void read_pages(void *argument)
{
	(void)argument;
	this_cpu()->space = &space;
	set_cr3(space.root, space.context, space.generation);
	atomic_add(&ready, 1);
	while (!atomic_load(&stop)) {
		u64 last, value;

		irq_disable();
		last = atomic_load(&done);
		value = *(volatile u64 *)USER_DATA;
		if (atomic_load(&begun) == last && value != identity(gpa[last & 1]))
			atomic_add(&wrong, 1);
		irq_enable();
		pause();
		watch("reading");
	}
	irq_disable();
	space_load(NULL);
}

/* Returns whether it went without an interrupt. */
static bool flush_other(u32 vcpu)
{
	u64 before = atomic_load(&shot);
	u32 i;

	for (i = 0; i < TRIES; i++)
		if (vmi.mmu_flush_preempted(vcpu) == 1)
			return true;
	CHECK_RESULT(send_ipi(vcpu, VECTOR_FLUSH), 0);
	WAIT_UNTIL(atomic_load(&shot) == before + 1);
	return false;
}

TEST(flush_preempted, "mmu.flush_preempted.shared_space", 2, 0, MMU_FLUSH_PREEMPTED)
{
	u64 i, v, without = 0, start;
	char word[8];

	if (!offered())
		test_skip("the layer does not offer it");
	begun = done = stop = ready = wrong = shot = 0;
	for (i = 0; i < 2; i++)
		gpa[i] = identity_page();
	space_create(&space);
	space_set(&space, USER_DATA, gpa[0] | USER_RW, VMI_LEVEL_PT);
	set_irq_handler(VECTOR_FLUSH, flush_here);
	for (v = 1; v < machine.vcpus_online; v++)
		run_on(v, read_pages, NULL);
	WAIT_UNTIL(atomic_load(&ready) == machine.vcpus_online - 1);
	start = now();
	for (i = 1; i <= ROUNDS && (i < 10 || now() - start < BUDGET); i++) {
		atomic_store(&begun, i);
		WRITE_ONCE(*space_pte(&space, USER_DATA, 1), gpa[i & 1] | USER_RW);
		for (v = 1; v < machine.vcpus_online; v++)
			without += flush_other(v);
		atomic_store(&done, i);
		delay_ns(50 * NS_PER_US);
		CHECK_EQ(atomic_load(&wrong), 0);
	}
	atomic_store(&stop, 1);
	for (v = 1; v < machine.vcpus_online; v++)
		wait_for(v);
	CHECK_EQ(wrong, 0);
	print("# %llu flushes without an interrupt, %llu with one\n", without, shot);
	/* Where the first two vCPUs share a processor, the other one does not run. */
	if (option("shared", word, sizeof(word)))
		CHECK_OP(without, >, shot);
	space_destroy(&space);
	free_page(gpa[0]);
	free_page(gpa[1]);
}
