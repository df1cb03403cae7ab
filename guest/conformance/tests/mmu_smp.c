// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Flushes that affect several spaces or several vCPUs. */
#include "harness.h"
#include "pages.h"
#include "test.h"

#define VECTOR_FLUSH 0x57

static struct space space, other;

/* --- kernel range --- */

static u64 kernel_value(u64 va)
{
	u64 value = 0, error = try_access(KERNEL_READ, va, &value);

	if (error != NO_FAULT)
		FAIL("page fault at 0x%llx, error 0x%llx", va, error);
	return value;
}

static void set_kernel(u64 va, u64 entry)
{
	vmi.mmu_set_pte(kernel_pte(va, VMI_LEVEL_PT), entry, VMI_LEVEL_PT, va);
}

/* Kernel addresses are the same in each space, loaded or not, also after changes. */
static void kernel_range(u64 global)
{
	u64 a = identity_page(), b = identity_page(), va = kernel_area + 5 * PAGE_SIZE;
	u64 bits = PTE_P | PTE_W | (global ? PTE_G : 0), round;

	space_create(&space);
	space_create(&other);
	for (round = 0; round < 20; round++) {
		u64 from = round & 1 ? b : a, to = round & 1 ? a : b;

		set_kernel(va, from | bits);
		CHECK_RESULT(vmi.mmu_flush_kernel_range(va, va + PAGE_SIZE), 0);
		CHECK_EQ(kernel_value(va), identity(from));
		space_load(&space);
		CHECK_EQ(kernel_value(va), identity(from));
		space_load(&other);
		CHECK_EQ(kernel_value(va), identity(from));
		set_kernel(va, to | bits);
		CHECK_RESULT(vmi.mmu_flush_kernel_range(va, va + PAGE_SIZE), 0);
		/* In the loaded space, and in the others with their old generation. */
		CHECK_EQ(kernel_value(va), identity(to));
		space_load(&space);
		CHECK_EQ(kernel_value(va), identity(to));
		space_load(NULL);
		CHECK_EQ(kernel_value(va), identity(to));
	}
	set_kernel(va, 0);
	CHECK_RESULT(vmi.mmu_flush_kernel_range(va, va + PAGE_SIZE), 0);
	expect_fault(KERNEL_READ, va, 0);
	space_load(&space);
	expect_fault(KERNEL_READ, va, 0);
	space_load(NULL);
	space_destroy(&space);
	space_destroy(&other);
	free_page(a);
	free_page(b);
}
TEST_OF(kernel_range_plain, "mmu.flush_kernel_range.spaces", kernel_range, 0, 1, 0,
	MMU_FLUSH_KERNEL_RANGE);
TEST_OF(kernel_range_global, "mmu.flush_kernel_range.global", kernel_range, 1, 1, 0,
	MMU_FLUSH_KERNEL_RANGE);

/* A change of kernel entries from absent to present needs no flush, and permissions hold. */
TEST(kernel_new, "mmu.flush_kernel_range.permissions", 1, 0, MMU_FLUSH_KERNEL_RANGE)
{
	u64 gpa = identity_page(), va = kernel_area + 600 * PAGE_SIZE;

	expect_fault(KERNEL_READ, va, 0);
	set_kernel(va, gpa | PTE_P | PTE_W);
	CHECK_EQ(kernel_value(va), identity(gpa));
	set_kernel(va, gpa | PTE_P);
	CHECK_RESULT(vmi.mmu_flush_kernel_range(va, va + 1), 0);
	CHECK_EQ(kernel_value(va), identity(gpa));
	expect_fault(KERNEL_WRITE, va, PF_P | PF_W);
	set_kernel(va, gpa | PTE_P | PTE_NX);
	CHECK_RESULT(vmi.mmu_flush_kernel_range(va, va + 1), 0);
	expect_fault(KERNEL_EXECUTE, va, PF_P | PF_I);
	set_kernel(va, 0);
	CHECK_RESULT(vmi.mmu_flush_kernel_range(va, va + 1), 0);
	expect_fault(KERNEL_WRITE, va, PF_W);
	expect_fault(KERNEL_EXECUTE, va, PF_I);
	free_page(gpa);
}

/* User code can access none of them. */
TEST(kernel_from_user, "memory.fault.user_to_kernel", 1, 0, MMU_REGISTER_PAGE_TABLE)
{
	u64 addresses[3] = { machine.info.direct_map + 2 * MIB, (u64)image_start,
			     (u64)this_cpu() };
	struct user_context context;
	u32 i;

	if (!(layer_features(VMI_SECTION_MMU) & VMI_MMU_USER_ISOLATION))
		test_skip("the machine is one trust domain");
	space_create(&space);
	space_load(&space);
	for (i = 0; i < 3; i++) {
		CHECK_EQ(user_try(&context, u_load, addresses[i], 0), VECTOR_PF + 1);
		CHECK_EQ(context.cr2, addresses[i]);
		CHECK(context.out.error & PF_U);
		CHECK_EQ(user_try(&context, u_store, addresses[i], 0), VECTOR_PF + 1);
		CHECK_EQ(user_try(&context, u_execute, addresses[i], 0), VECTOR_PF + 1);
	}
	space_load(NULL);
	space_destroy(&space);
}

static u64 shared_va, shared_want, remote_flushes;

static void flush_kernel_here(struct regs *regs)
{
	(void)regs;
	vmi.mmu_flush_kernel_range(shared_va, shared_va + PAGE_SIZE);
	atomic_add(&remote_flushes, 1);
}

static void read_kernel_value(void *argument)
{
	(void)argument;
	CHECK_EQ(kernel_value(shared_va), identity(shared_want));
}

static void interrupt_others(u64 *counter)
{
	u64 before = atomic_load(counter);

	CHECK_RESULT(vmi.apic_send_ipi(ICR_OTHERS | VECTOR_FLUSH), 0);
	WAIT_UNTIL(atomic_load(counter) == before + machine.vcpus_online - 1);
}

TEST(kernel_everywhere, "mmu.flush_kernel_range.every_vcpu", 2, 0,
     MMU_FLUSH_KERNEL_RANGE)
{
	u64 gpa[2] = { identity_page(), identity_page() }, round;

	shared_va = kernel_area + 8 * PAGE_SIZE;
	set_irq_handler(VECTOR_FLUSH, flush_kernel_here);
	for (round = 0; round < 20; round++) {
		shared_want = gpa[round & 1];
		set_kernel(shared_va, shared_want | PTE_P | PTE_W | PTE_G);
		vmi.mmu_flush_kernel_range(shared_va, shared_va + PAGE_SIZE);
		interrupt_others(&remote_flushes);
		read_kernel_value(NULL);
		run_on_others(machine.vcpus_online, read_kernel_value, NULL);
	}
	set_kernel(shared_va, 0);
	vmi.mmu_flush_kernel_range(shared_va, shared_va + PAGE_SIZE);
	interrupt_others(&remote_flushes);
	free_page(gpa[0]);
	free_page(gpa[1]);
}

/* --- one space on several vCPUs --- */

enum shoot { BY_PAGE, BY_RANGE, BY_ALL, BY_LOAD };

static u64 shoot_kind, shot, stop_reading, readers, wrong_reads, changes, changed;
static u64 page_now, page_before;

static void shoot_here(struct regs *regs)
{
	(void)regs;
	switch (READ_ONCE(shoot_kind)) {
	case BY_PAGE:
		invalidate_page(USER_DATA);
		break;
	case BY_RANGE:
		vmi.mmu_invalidate_range(USER_DATA, USER_DATA + PAGE_SIZE);
		break;
	case BY_ALL:
		vmi.mmu_flush_tlb(VMI_FLUSH_ALL);
		break;
	case BY_LOAD:
		set_cr3(space.root, space.context, READ_ONCE(space.generation));
		break;
	}
	atomic_add(&shot, 1);
}

/*
 * Reads in a loop. Interrupts are on, except between the check of which page it must be and the
 * read: so the read finds that page or, while a change is in progress, the one before. In user code
 * interrupts are always on. If two changes have begun since the last one that had ended before,
 * user code may have found the page between them.
 */
static void read_shared(void *argument)
{
	bool user = argument;

	this_cpu()->space = &space;
	set_cr3(space.root, space.context, space.generation);
	atomic_add(&readers, 1);
	while (!READ_ONCE(stop_reading)) {
		u64 first, value, last, before;

		irq_disable();
		before = atomic_load(&changed);
		first = atomic_load(&page_before);
		value = user ? user_call(u_load, USER_DATA, 0) :
			       *(volatile u64 *)USER_DATA;
		last = atomic_load(&page_now);
		if (value != identity(first) && value != identity(last) &&
		    value != identity(atomic_load(&page_before)) &&
		    atomic_load(&changes) - before < 2)
			atomic_add(&wrong_reads, 1);
		irq_enable();
		pause();
		watch("reading");
	}
	irq_disable();
	space_load(NULL);
}

#define SHOOT_BUDGET	NS_PER_S
#define SHOOT_ROUNDS	150
#define SHOOT_MINIMUM	6

/* If there are more vCPUs than processors, each round waits until all are scheduled. */
static bool enough_rounds(u64 done, u64 start)
{
	return done >= SHOOT_ROUNDS ||
	       (done >= SHOOT_MINIMUM && now() > start + SHOOT_BUDGET);
}

static void shoot_down(u64 argument)
{
	u64 gpa[2] = { identity_page(), identity_page() }, i, start;
	bool user = argument & 8;

	shoot_kind = argument & 7;
	stop_reading = readers = wrong_reads = 0;
	changed = changes;
	space_create(&space);
	page_now = page_before = gpa[0];
	space_set(&space, USER_DATA, gpa[0] | USER_RW, VMI_LEVEL_PT);
	set_irq_handler(VECTOR_FLUSH, shoot_here);
	for (i = 1; i < machine.vcpus_online; i++)
		run_on(i, read_shared, (void *)(u64)user);
	WAIT_UNTIL(atomic_load(&readers) == machine.vcpus_online - 1);
	start = now();
	for (i = 1; !enough_rounds(i, start); i++) {
		atomic_add(&changes, 1);
		atomic_store(&page_now, gpa[i & 1]);
		WRITE_ONCE(*space_pte(&space, USER_DATA, 1), gpa[i & 1] | USER_RW);
		if (shoot_kind == BY_LOAD)
			atomic_add(&space.generation, 1);
		interrupt_others(&shot);
		/* After this no vCPU may see the old page. */
		atomic_store(&page_before, gpa[i & 1]);
		atomic_store(&changed, atomic_load(&changes));
		delay_ns(20 * NS_PER_US);
		CHECK_EQ(atomic_load(&wrong_reads), 0);
	}
	atomic_store(&stop_reading, 1);
	for (i = 1; i < machine.vcpus_online; i++)
		wait_for(i);
	CHECK_EQ(wrong_reads, 0);
	space_destroy(&space);
	free_page(gpa[0]);
	free_page(gpa[1]);
}
TEST_OF(shoot_page, "memory.shootdown.page", shoot_down, BY_PAGE, 2, 0, MMU_INVALIDATE_PAGE);
TEST_OF(shoot_range, "memory.shootdown.range", shoot_down, BY_RANGE, 2, 0,
	MMU_INVALIDATE_RANGE);
TEST_OF(shoot_all, "memory.shootdown.all", shoot_down, BY_ALL, 2, 0, MMU_FLUSH_TLB);
TEST_OF(shoot_load, "memory.shootdown.load", shoot_down, BY_LOAD, 2, 0, MMU_SET_CR3);
TEST_OF(shoot_user, "memory.shootdown.user", shoot_down, BY_PAGE | 8, 2, 0,
	MMU_INVALIDATE_PAGE);
TEST_OF(shoot_user_all, "memory.shootdown.user_all", shoot_down, BY_ALL | 8, 2, 0,
	MMU_FLUSH_TLB);

/* --- mmu.flush_space --- */

TEST(flush_space_errors, "mmu.flush_space.errors", 1, 0, MMU_FLUSH_SPACE)
{
	int result;

	space_create(&space);
	result = vmi.mmu_flush_space(space.root, space.context, 2, 0x2000, 0x1000);
	if (layer_features(VMI_SECTION_MMU) & VMI_MMU_FLUSH_SPACE)
		CHECK_RESULT(result, -VMI_EINVAL);
	else
		CHECK_RESULT(result, -VMI_ENOSYS);
	if (!(layer_features(VMI_SECTION_MMU) & VMI_MMU_FLUSH_SPACE))
		CHECK_RESULT(vmi.mmu_flush_space(space.root, space.context, 2, 0,
						 0x1000), -VMI_ENOSYS);
	space_destroy(&space);
}

enum { AWAY, LOADED, BY_FILL };

/*
 * Loaded elsewhere: flushed there before the call returns, without an interrupt from this kernel.
 */
static void flush_space(u64 how)
{
	u64 gpa[2] = { identity_page(), identity_page() }, i, start;
	bool loaded = how != AWAY;

	if (!(layer_features(VMI_SECTION_MMU) & (how == BY_FILL ? VMI_MMU_FILL_REPLACES :
						 VMI_MMU_FLUSH_SPACE)))
		test_skip("the layer does not offer it");
	stop_reading = readers = wrong_reads = 0;
	changed = changes;
	space_create(&space);
	page_now = page_before = gpa[0];
	space_set(&space, USER_DATA, gpa[0] | USER_RW, VMI_LEVEL_PT);
	if (loaded)
		for (i = 1; i < machine.vcpus_online; i++)
			run_on(i, read_shared, NULL);
	if (loaded)
		WAIT_UNTIL(atomic_load(&readers) == machine.vcpus_online - 1);
	if (how == BY_FILL)
		space_load(&space);
	start = now();
	for (i = 1; !enough_rounds(i, start); i++) {
		if (!loaded) {
			space_load(&space);
			expect_page(USER_DATA, gpa[~i & 1]);
			space_load(NULL);
		}
		/*
		 * A reader that the host stopped during two changes may have read what was correct
		 * in between.
		 */
		atomic_add(&changes, 1);
		atomic_store(&page_now, gpa[i & 1]);
		WRITE_ONCE(*space_pte(&space, USER_DATA, 1), gpa[i & 1] | USER_RW);
		if (how == BY_FILL)
			vmi.mmu_fill(USER_DATA, space_pte(&space, USER_DATA, 1), 1);
		else
			CHECK_RESULT(vmi.mmu_flush_space(space.root, space.context,
							 atomic_add(&space.generation, 1),
							 USER_DATA, USER_DATA + PAGE_SIZE), 0);
		atomic_store(&page_before, gpa[i & 1]);
		atomic_store(&changed, atomic_load(&changes));
		if (!loaded) {
			space_load(&space);
			expect_page(USER_DATA, gpa[i & 1]);
			space_load(NULL);
		} else {
			delay_ns(20 * NS_PER_US);
			CHECK_EQ(atomic_load(&wrong_reads), 0);
		}
	}
	atomic_store(&stop_reading, 1);
	for (i = 1; loaded && i < machine.vcpus_online; i++)
		wait_for(i);
	if (how == BY_FILL)
		space_load(NULL);
	space_destroy(&space);
	free_page(gpa[0]);
	free_page(gpa[1]);
}
TEST_OF(flush_space_loaded, "mmu.flush_space.loaded", flush_space, LOADED, 2, 0,
	MMU_FLUSH_SPACE);
TEST_OF(flush_space_away, "mmu.flush_space.away", flush_space, AWAY, 1, 0, MMU_FLUSH_SPACE);
TEST_OF(fill_replaces_loaded, "mmu.fill.replaces_elsewhere", flush_space, BY_FILL, 2, 0, MMU_FILL);

/* --- spaces that move between vCPUs --- */

static u64 wander_pages[4];

static void wander(void *argument)
{
	u64 first = (u64)argument, n;

	this_cpu()->space = &space;
	set_cr3(space.root, space.context, space.generation);
	for (n = 0; n < 4; n++)
		expect_page(USER_DATA + n * PAGE_SIZE, wander_pages[(n + first) % 4]);
	expect_page_user(USER_DATA, wander_pages[first % 4]);
	/* The next vCPU must see what this one changes. */
	for (n = 0; n < 4; n++)
		space_set(&space, USER_DATA + n * PAGE_SIZE,
			  wander_pages[(n + first + 1) % 4] | USER_RW, VMI_LEVEL_PT);
	vmi.mmu_flush_tlb(VMI_FLUSH_USER);
	space.generation++;
	for (n = 0; n < 4; n++)
		expect_page(USER_DATA + n * PAGE_SIZE,
			    wander_pages[(n + first + 1) % 4]);
	space_load(NULL);
}

TEST(wandering, "memory.spaces.wandering", 2, 0, MMU_SET_CR3)
{
	u64 i;

	space_create(&space);
	for (i = 0; i < 4; i++) {
		wander_pages[i] = identity_page();
		space_set(&space, USER_DATA + i * PAGE_SIZE,
			  wander_pages[i] | USER_RW, VMI_LEVEL_PT);
	}
	for (i = 0; i < 200; i++) {
		u32 vcpu = i % machine.vcpus_online;

		if (!vcpu) {
			wander((void *)i);
		} else {
			run_on(vcpu, wander, (void *)i);
			wait_for(vcpu);
		}
	}
	space_destroy(&space);
	for (i = 0; i < 4; i++)
		free_page(wander_pages[i]);
}

/* Every vCPU has a space of its own at the same addresses. */
static void own_space(void *argument)
{
	static struct space own[MAX_VCPUS];
	struct space *mine = &own[this_vcpu()];
	u64 seed = this_vcpu() + 1, gpa[4], i, n;

	(void)argument;
	space_create(mine);
	for (n = 0; n < 4; n++)
		gpa[n] = identity_page();
	space_load(mine);
	for (i = 0; i < 150; i++) {
		n = random64(&seed) % 4;
		space_set(mine, USER_DATA, gpa[n] | USER_RW, VMI_LEVEL_PT);
		invalidate_page(USER_DATA);
		expect_page(USER_DATA, gpa[n]);
		expect_page_user(USER_DATA, gpa[n]);
		if (i % 16 == 0) {
			space_load(NULL);
			space_load(mine);
		}
	}
	space_load(NULL);
	space_destroy(mine);
	for (n = 0; n < 4; n++)
		free_page(gpa[n]);
}

TEST(own_spaces, "memory.spaces.own_per_vcpu", 2, 0, MMU_SET_CR3, MMU_INVALIDATE_PAGE)
{
	u32 i;

	for (i = 1; i < machine.vcpus_online; i++)
		run_on(i, own_space, NULL);
	own_space(NULL);
	for (i = 1; i < machine.vcpus_online; i++)
		wait_for(i);
}
