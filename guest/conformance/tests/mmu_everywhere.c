// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* mmu.flush_kernel_everywhere: flushes of the kernel's range for all vCPUs, without interrupts. */
#include "harness.h"
#include "pages.h"
#include "space.h"
#include "test.h"

#define ROUNDS 200
#define BUDGET (2 * NS_PER_S)

static bool offered(void)
{
	return layer_features(VMI_SECTION_MMU) & VMI_MMU_FLUSH_KERNEL;
}

static void need_it(void)
{
	if (!vmi.mmu_flush_kernel_everywhere)
		test_skip("the layer is older");
	if (!offered())
		test_skip("the layer does not offer it");
}

static void set_kernel(u64 va, u64 entry)
{
	vmi.mmu_set_pte(kernel_pte(va, VMI_LEVEL_PT), entry, VMI_LEVEL_PT, va);
}

TEST(everywhere_errors, "mmu.flush_kernel_everywhere.errors", 1, 0, MMU_FLUSH_KERNEL_EVERYWHERE)
{
	u64 va = kernel_area;

	if (!vmi.mmu_flush_kernel_everywhere)
		test_skip("the layer is older");
	CHECK_RESULT(vmi.mmu_flush_kernel_everywhere(va + PAGE_SIZE, va),
		     offered() ? -VMI_EINVAL : -VMI_ENOSYS);
	CHECK_RESULT(vmi.mmu_flush_kernel_everywhere(va, va), offered() ? 0 : -VMI_ENOSYS);
	CHECK_RESULT(vmi.mmu_flush_kernel_everywhere(0, ~0ULL), offered() ? 0 : -VMI_ENOSYS);
}

/* In the loaded space, and in others at their old generation. */
TEST(everywhere_spaces, "mmu.flush_kernel_everywhere.spaces", 1, 0, MMU_FLUSH_KERNEL_EVERYWHERE)
{
	u64 gpa[2] = { identity_page(), identity_page() }, va = kernel_area + 9 * PAGE_SIZE, round;
	struct space spaces[2];

	need_it();
	space_create(&spaces[0]);
	space_create(&spaces[1]);
	for (round = 0; round < 20; round++) {
		u64 want = identity(gpa[round & 1]);

		set_kernel(va, gpa[round & 1] | PTE_P | PTE_W | PTE_G);
		CHECK_RESULT(vmi.mmu_flush_kernel_everywhere(va, va + PAGE_SIZE), 0);
		CHECK_EQ(*(volatile u64 *)va, want);
		space_load(&spaces[0]);
		CHECK_EQ(*(volatile u64 *)va, want);
		space_load(&spaces[1]);
		CHECK_EQ(*(volatile u64 *)va, want);
		if (round & 2)
			space_load(NULL);
	}
	space_load(NULL);
	set_kernel(va, 0);
	CHECK_RESULT(vmi.mmu_flush_kernel_everywhere(va, va + PAGE_SIZE), 0);
	expect_fault(KERNEL_READ, va, 0);
	space_destroy(&spaces[0]);
	space_destroy(&spaces[1]);
	free_page(gpa[0]);
	free_page(gpa[1]);
}

/* Other vCPUs, each in a space of its own. */
static struct {
	struct space space[MAX_VCPUS];
	u64 gpa[2], va, begun, done, ready, wrong;
	bool stop, move;
} others;

/* If no change was in progress, the page must be that of the last one. */
static void look(void)
{
	u64 last = atomic_load(&others.done), value = *(volatile u64 *)others.va;

	if (atomic_load(&others.begun) == last && value != identity(others.gpa[last & 1]))
		atomic_add(&others.wrong, 1);
}

static void read_in_own_space(void *argument)
{
	struct space *own = argument;

	space_load(own);
	atomic_add(&others.ready, 1);
	while (!atomic_load(&others.stop)) {
		look();
		/* A vCPU that changes its space at the same time is not missed. */
		if (others.move) {
			space_load(NULL);
			look();
			space_load(own);
		}
		pause();
		watch("reading");
	}
	space_load(NULL);
}

static void read_elsewhere(u64 move)
{
	u64 i, v, start;

	need_it();
	memset(&others, 0, sizeof(others));
	others.move = move;
	others.va = kernel_area + 10 * PAGE_SIZE;
	for (i = 0; i < 2; i++)
		others.gpa[i] = identity_page();
	set_kernel(others.va, others.gpa[0] | PTE_P | PTE_W | PTE_G);
	for (v = 1; v < machine.vcpus_online; v++) {
		space_create(&others.space[v]);
		run_on(v, read_in_own_space, &others.space[v]);
	}
	WAIT_UNTIL(atomic_load(&others.ready) == machine.vcpus_online - 1);
	start = now();
	for (i = 1; i <= ROUNDS && (i < 10 || now() - start < BUDGET); i++) {
		atomic_store(&others.begun, i);
		set_kernel(others.va, others.gpa[i & 1] | PTE_P | PTE_W | PTE_G);
		CHECK_RESULT(vmi.mmu_flush_kernel_everywhere(others.va, others.va + PAGE_SIZE), 0);
		atomic_store(&others.done, i);
		delay_ns(50 * NS_PER_US);
		CHECK_EQ(atomic_load(&others.wrong), 0);
	}
	atomic_store(&others.stop, true);
	for (v = 1; v < machine.vcpus_online; v++) {
		wait_for(v);
		space_destroy(&others.space[v]);
	}
	CHECK_EQ(others.wrong, 0);
	set_kernel(others.va, 0);
	CHECK_RESULT(vmi.mmu_flush_kernel_everywhere(others.va, others.va + PAGE_SIZE), 0);
	expect_fault(KERNEL_READ, others.va, 0);
	free_page(others.gpa[0]);
	free_page(others.gpa[1]);
}
TEST_OF(everywhere_loaded, "mmu.flush_kernel_everywhere.loaded", read_elsewhere, 0, 2, 0,
	MMU_FLUSH_KERNEL_EVERYWHERE);
TEST_OF(everywhere_moving, "mmu.flush_kernel_everywhere.moving", read_elsewhere, 1, 2, 0,
	MMU_FLUSH_KERNEL_EVERYWHERE);
