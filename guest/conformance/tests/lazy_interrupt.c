// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * An interrupt inside a lazy mode: the mode stays, and flush_queue gives the handler what it needs.
 */
#include "pages.h"
#include "test.h"

#define VECTOR_A 0x5d

static struct space space;
static u64 page, interrupts;

static void handler(struct regs *regs)
{
	(void)regs;
	interrupts++;
	/* The mode belongs to the vCPU: the handler can neither enter one nor need it to end. */
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_MMU), -VMI_EPERM);
	CHECK_EQ(get_cr3(), space.root);
	/* Kernel memory is the same in all spaces. */
	CHECK_EQ(*(u64 *)to_linear(page), identity(page));
	vmi.mmu_flush_queue();
	CHECK_EQ(get_cr3(), space.root);
	expect_page(USER_DATA, page);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_CPU), -VMI_EPERM);
}

static void interrupted(u64 mode)
{
	u64 before, i;

	space_create(&space);
	page = identity_page();
	set_irq_handler(VECTOR_A, handler);
	for (i = 0; i < 10; i++) {
		if (mode == VMI_LAZY_MMU)
			space_load(&space);
		before = interrupts;
		CHECK_RESULT(vmi.mmu_set_lazy_mode(mode), 0);
		if (mode == VMI_LAZY_CPU)
			space_load(&space);
		space_set(&space, USER_DATA, page | USER_RW, VMI_LEVEL_PT);
		CHECK_RESULT(send_ipi(0, VECTOR_A), 0);
		irq_enable();
		asm volatile("nop");
		irq_disable();
		CHECK_EQ(interrupts, before + 1);
		/* Still on. */
		CHECK_RESULT(vmi.mmu_set_lazy_mode(mode), -VMI_EPERM);
		CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_NONE), 0);
		expect_page(USER_DATA, page);
		expect_page_user(USER_DATA, page);
		space_set(&space, USER_DATA, 0, VMI_LEVEL_PT);
		space_load(NULL);
		space.generation++;
	}
	space_destroy(&space);
	free_page(page);
}
TEST_OF(interrupted_mmu, "mmu.set_lazy_mode.interrupted_mmu", interrupted, VMI_LAZY_MMU, 1, 0,
	MMU_SET_LAZY_MODE, MMU_FLUSH_QUEUE);
TEST_OF(interrupted_cpu, "mmu.flush_queue.interrupted_cpu", interrupted, VMI_LAZY_CPU, 1, 0,
	MMU_SET_LAZY_MODE, MMU_FLUSH_QUEUE, MMU_SET_CR3);

/* Of a queued load alone, with the mode on: the queue is carried out, and the mode stays. */
TEST(queue_space, "mmu.flush_queue.space", 1, 0, MMU_FLUSH_QUEUE)
{
	u64 i;

	space_create(&space);
	page = identity_page();
	space_set(&space, USER_DATA, page | USER_RW, VMI_LEVEL_PT);
	for (i = 0; i < 10; i++) {
		CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_CPU), 0);
		space_load(&space);
		vmi.mmu_flush_queue();
		expect_page(USER_DATA, page);
		expect_page_user(USER_DATA, page);
		CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_CPU), -VMI_EPERM);
		CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_NONE), 0);
		space_load(NULL);
	}
	space_destroy(&space);
	free_page(page);
}
