// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Address spaces: loading, generations, large numbers, reuse of their tables. */
#include "harness.h"
#include "pages.h"
#include "test.h"

#define SPACES		64
#define PAGES		4

static struct space space, other, spaces[SPACES];

TEST(get_cr3_value, "mmu.get_cr3.what_was_set", 1, 0, MMU_GET_CR3, MMU_SET_CR3)
{
	CHECK_EQ(get_cr3(), to_gpa(kernel_root));
	space_create(&space);
	space_load(&space);
	CHECK_EQ(get_cr3(), space.root);
	if (vmi.mmu_get_cr3)
		CHECK_EQ(vmi.mmu_get_cr3(), space.root);
	space_load(NULL);
	CHECK_EQ(get_cr3(), to_gpa(kernel_root));
	space_destroy(&space);
}

#define SELECTOR(name)							\
static u32 get_##name(void)						\
{									\
	u32 selector;							\
									\
	asm volatile("movl %%" #name ", %0" : "=r"(selector));		\
	return selector;						\
}									\
static void set_##name(u32 selector)					\
{									\
	asm volatile("movl %0, %%" #name : : "r"(selector));		\
}
SELECTOR(ds)
SELECTOR(es)
SELECTOR(fs)

/*
 * Selectors belong to the vCPU: a kernel reads those of the old program after it has loaded the new
 * space.
 */
TEST(set_cr3_selectors, "mmu.set_cr3.selectors", 1, 0, MMU_SET_CR3)
{
	u64 base = vmi.cpu_get_fs_base();
	u32 i;

	space_create(&space);
	space_create(&other);
	for (i = 0; i < 8; i++) {
		u32 selector = i & 2 ? USER_SS : 0;

		set_ds(selector);
		set_es(selector);
		set_fs(selector);
		CHECK_RESULT(vmi.cpu_set_fs_base(0x1234000 + i), 0);
		space_load(i & 1 ? &other : &space);
		CHECK_EQ(get_ds(), selector);
		CHECK_EQ(get_es(), selector);
		CHECK_EQ(get_fs(), selector);
		CHECK_EQ(vmi.cpu_get_fs_base(), 0x1234000 + i);
	}
	/* The segments at boot may be in no table of this kernel. */
	set_ds(0);
	set_es(0);
	set_fs(0);
	CHECK_RESULT(vmi.cpu_set_fs_base(base), 0);
	space_load(NULL);
	space_destroy(&space);
	space_destroy(&other);
}

/* The call through its entry, and context 0, which keeps no translations. */
TEST(set_cr3_entry, "mmu.set_cr3.context_0", 1, 0, MMU_SET_CR3)
{
	u64 a = identity_page(), b = identity_page(), i;

	space_create(&space);
	space_create(&other);
	for (i = 0; i < 20; i++) {
		space_set(&space, USER_DATA, (i & 1 ? a : b) | USER_RW, VMI_LEVEL_PT);
		if (i & 2 && vmi.mmu_set_cr3)
			vmi.mmu_set_cr3(space.root, 0, i & 4 ? 9 : 0);
		else
			set_cr3(space.root, 0, i & 4 ? 9 : 0);
		expect_page(USER_DATA, i & 1 ? a : b);
		expect_page_user(USER_DATA, i & 1 ? a : b);
		if (i & 8)
			space_load(&other);
	}
	space_load(NULL);
	space_destroy(&space);
	space_destroy(&other);
	free_page(a);
	free_page(b);
}

/* Unchanged tables with the same generation: the translations are still valid. */
TEST(same_generation, "mmu.set_cr3.same_generation", 1, 0, MMU_SET_CR3)
{
	u64 a = identity_page(), b = identity_page(), i;

	space_create(&space);
	space_create(&other);
	space_set(&space, USER_DATA, a | USER_RW, VMI_LEVEL_PT);
	space_set(&other, USER_DATA, b | USER_RW, VMI_LEVEL_PT);
	for (i = 0; i < 50; i++) {
		space_load(&space);
		expect_page(USER_DATA, a);
		expect_page_user(USER_DATA, a);
		expect_fault(KERNEL_READ, USER_DATA + PAGE_SIZE, 0);
		space_load(&other);
		expect_page(USER_DATA, b);
		expect_page_user(USER_DATA, b);
	}
	space_load(NULL);
	space_destroy(&space);
	space_destroy(&other);
	free_page(a);
	free_page(b);
}

/* An entry that has become present is used, although the generation is the same. */
TEST(same_generation_new, "mmu.set_cr3.same_generation_new_page", 1, 0, MMU_SET_CR3)
{
	u64 gpa = identity_page(), i;

	space_create(&space);
	space_create(&other);
	for (i = 0; i < 20; i++) {
		u64 va = USER_DATA + i * PAGE_SIZE;

		space_load(&space);
		expect_fault(KERNEL_READ, va, 0);
		expect_fault(USER_READ, va, PF_U);
		space_load(&other);
		space_set(&space, va, gpa | USER_RW, VMI_LEVEL_PT);
		space_load(&space);
		expect_page(va, gpa);
		expect_page_user(va, gpa);
	}
	space_load(NULL);
	space_destroy(&space);
	space_destroy(&other);
	free_page(gpa);
}

/* A queued load: get_cr3 returns the new value at once, user addresses change at the end. */
TEST(lazy_cpu, "mmu.set_lazy_mode.cpu", 1, 0, MMU_SET_LAZY_MODE, MMU_SET_CR3,
     MMU_FLUSH_QUEUE)
{
	u64 a = identity_page(), b = identity_page(), i;

	space_create(&space);
	space_create(&other);
	space_set(&space, USER_DATA, a | USER_RW, VMI_LEVEL_PT);
	space_set(&other, USER_DATA, b | USER_RW, VMI_LEVEL_PT);
	for (i = 0; i < 50; i++) {
		struct space *next = i & 1 ? &space : &other;

		CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_CPU), 0);
		space_load(next);
		CHECK_EQ(get_cr3(), next->root);
		/* Kernel addresses are the same in both. */
		CHECK_EQ(*(u64 *)to_linear(a), identity(a));
		if (i & 2) {
			vmi.mmu_flush_queue();
			expect_page(USER_DATA, i & 1 ? a : b);
		}
		CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_NONE), 0);
		CHECK_EQ(get_cr3(), next->root);
		expect_page(USER_DATA, i & 1 ? a : b);
		expect_page_user(USER_DATA, i & 1 ? a : b);
	}
	space_load(NULL);
	space_destroy(&space);
	space_destroy(&other);
	free_page(a);
	free_page(b);
}

/* Vector registers survive loads, immediate and queued. */
static void loads_keep_fpu(u64 lazy)
{
	static struct fpu_state before, after;
	enum fpu_level level = fpu_level();
	u64 i;

	space_create(&space);
	space_create(&other);
	for (i = 1; i <= 20; i++) {
		fpu_fill(&before, i * 1234567);
		fpu_load(&before, level);
		if (lazy)
			vmi.mmu_set_lazy_mode(VMI_LAZY_CPU);
		set_cr3(space.root, space.context, space.generation);
		set_cr3(other.root, other.context, i & 1 ? 0 : other.generation);
		if (lazy)
			vmi.mmu_set_lazy_mode(VMI_LAZY_NONE);
		fpu_store(&after, level);
		fpu_compare(&before, &after, "after loading CR3");
	}
	space_load(NULL);
	space_destroy(&space);
	space_destroy(&other);
}
/* Declared dead at one load, they are preserved again at the next. */
static void drop_fpu(u64 lazy, u64 flag)
{
	static struct fpu_state before, after;
	enum fpu_level level = fpu_level();
	u64 i;

	space_create(&space);
	space_create(&other);
	for (i = 1; i <= 20; i++) {
		if (lazy)
			vmi.mmu_set_lazy_mode(VMI_LAZY_CPU);
		set_cr3(space.root | flag, space.context, space.generation);
		CHECK_EQ(get_cr3(), space.root);
		if (lazy)
			vmi.mmu_set_lazy_mode(VMI_LAZY_NONE);
		CHECK_EQ(get_cr3(), space.root);
		fpu_fill(&before, i * 7654321);
		fpu_load(&before, level);
		set_cr3(other.root, other.context, other.generation);
		fpu_store(&after, level);
		fpu_compare(&before, &after, "after loading CR3");
		/* This space is loaded already: the layer need not do anything. */
		set_cr3(other.root | flag, other.context, other.generation);
		CHECK_EQ(get_cr3(), other.root);
	}
	space_load(NULL);
	space_destroy(&space);
	space_destroy(&other);
}

static void loads_drop_fpu(u64 lazy)
{
	if (!(layer_features(VMI_SECTION_MMU) & VMI_MMU_NO_VECTORS))
		test_skip("the layer does not offer it");
	drop_fpu(lazy, VMI_CR3_NO_VECTORS);
}

/* The flag of kernels that were written for section version 2. */
static void loads_drop_fpu_2(u64 lazy)
{
	if (!(layer_features(VMI_SECTION_MMU) & VMI_MMU_NO_VECTORS_2))
		test_skip("the layer does not offer it");
	drop_fpu(lazy, VMI_CR3_NO_VECTORS_2);
}
TEST_OF(fpu_drop_now_2, "mmu.set_cr3.no_vectors_2", loads_drop_fpu_2, 0, 1, 0, MMU_SET_CR3);
TEST_OF(fpu_drop_lazy_2, "mmu.set_cr3.no_vectors_2_lazy", loads_drop_fpu_2, 1, 1, 0, MMU_SET_CR3);
TEST_OF(fpu_drop_now, "mmu.set_cr3.no_vectors", loads_drop_fpu, 0, 1, 0, MMU_SET_CR3);
TEST_OF(fpu_drop_lazy, "mmu.set_cr3.no_vectors_lazy", loads_drop_fpu, 1, 1, 0, MMU_SET_CR3);
TEST_OF(fpu_load_now, "mmu.set_cr3.fpu", loads_keep_fpu, 0, 1, 0, MMU_SET_CR3);
TEST_OF(fpu_load_lazy, "mmu.set_cr3.fpu_lazy", loads_keep_fpu, 1, 1, 0, MMU_SET_CR3);

static u64 page_of[SPACES][PAGES];

static void create_many(void)
{
	u32 i, n;

	for (i = 0; i < SPACES; i++) {
		space_create(&spaces[i]);
		for (n = 0; n < PAGES; n++) {
			page_of[i][n] = identity_page();
			space_set(&spaces[i], USER_DATA + n * PAGE_SIZE,
				  page_of[i][n] | USER_RW, VMI_LEVEL_PT);
		}
	}
}

static void destroy_many(void)
{
	u32 i, n;

	space_load(NULL);
	for (i = 0; i < SPACES; i++) {
		space_destroy(&spaces[i]);
		for (n = 0; n < PAGES; n++)
			free_page(page_of[i][n]);
	}
}

/*
 * More spaces than any cache holds, in random order. While they are not loaded, pages move and
 * generations increase.
 */
TEST(many_spaces, "memory.spaces.many", 1, 0, MMU_SET_CR3, MMU_SET_PTE,
     MMU_REGISTER_PAGE_TABLE, MMU_RELEASE_PAGE_TABLE)
{
	u64 seed = 2024, round;

	create_many();
	for (round = 0; round < 1500; round++) {
		u32 i = random64(&seed) % SPACES, n = random64(&seed) % PAGES;
		u32 change = random64(&seed) % SPACES;

		space_load(&spaces[i]);
		expect_page(USER_DATA + n * PAGE_SIZE, page_of[i][n]);
		if (round % 4 == 0)
			expect_page_user(USER_DATA + n * PAGE_SIZE, page_of[i][n]);
		expect_fault(KERNEL_READ, USER_DATA + PAGES * PAGE_SIZE, 0);
		if (change == i)
			continue;
		/* Two pages of another space change places. */
		n = random64(&seed) % (PAGES - 1);
		space_set(&spaces[change], USER_DATA + n * PAGE_SIZE,
			  page_of[change][n + 1] | USER_RW, VMI_LEVEL_PT);
		space_set(&spaces[change], USER_DATA + (n + 1) * PAGE_SIZE,
			  page_of[change][n] | USER_RW, VMI_LEVEL_PT);
		spaces[change].generation++;
		page_of[change][n] ^= page_of[change][n + 1];
		page_of[change][n + 1] ^= page_of[change][n];
		page_of[change][n] ^= page_of[change][n + 1];
	}
	destroy_many();
}

/* Tables of a destroyed space become data of the next one, and the reverse. */
TEST(reuse, "memory.spaces.reuse", 1, 0, MMU_REGISTER_PAGE_TABLE,
     MMU_RELEASE_PAGE_TABLE)
{
	u64 in_use = pages_in_use(), round;

	for (round = 0; round < 100; round++) {
		u64 gpa[8], i;

		space_create(&space);
		for (i = 0; i < 8; i++) {
			gpa[i] = identity_page();
			space_set(&space, USER_DATA + i * LARGE_SIZE,
				  gpa[i] | USER_RW, VMI_LEVEL_PT);
		}
		space_load(&space);
		for (i = 0; i < 8; i++) {
			expect_page(USER_DATA + i * LARGE_SIZE, gpa[i]);
			expect_page_user(USER_DATA + i * LARGE_SIZE, gpa[i]);
		}
		space_load(NULL);
		/* In another order each time, so that they change roles. */
		if (round & 1)
			space_destroy(&space);
		for (i = 0; i < 8; i++)
			free_page(gpa[round & 2 ? i : 7 - i]);
		if (!(round & 1))
			space_destroy(&space);
	}
	CHECK_EQ(pages_in_use(), in_use);
}

/* A table is taken out of a loaded space and freed. */
TEST(table_away, "mmu.release_page_table.in_use", 1, 0, MMU_RELEASE_PAGE_TABLE)
{
	u64 a = identity_page(), b = identity_page(), table, round;

	space_create(&space);
	space_load(&space);
	for (round = 0; round < 20; round++) {
		u64 *pte = space_pte(&space, USER_DATA, VMI_LEVEL_PT);

		space_set(&space, USER_DATA, (round & 1 ? a : b) | USER_RW, 1);
		expect_page(USER_DATA, round & 1 ? a : b);
		expect_page_user(USER_DATA, round & 1 ? a : b);
		table = to_gpa(pte) & PTE_ADDRESS;
		space_set(&space, USER_DATA, 0, VMI_LEVEL_PD);
		CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
		CHECK_RESULT(vmi.mmu_release_page_table(table, VMI_LEVEL_PT), 0);
		space.table_count--;
		free_page(table);
		expect_fault(KERNEL_READ, USER_DATA, 0);
		expect_fault(USER_READ, USER_DATA, PF_U);
	}
	space_load(NULL);
	space_destroy(&space);
	free_page(a);
	free_page(b);
}

TEST(table_errors, "mmu.register_page_table.errors", 1, 0,
     MMU_REGISTER_PAGE_TABLE, MMU_RELEASE_PAGE_TABLE)
{
	u64 gpa = alloc_page();
	u32 level;

	for (level = 1; level <= 4; level++) {
		CHECK_RESULT(vmi.mmu_register_page_table(gpa + 8, level), -VMI_EINVAL);
		CHECK_RESULT(vmi.mmu_release_page_table(gpa + 8, level), -VMI_EINVAL);
		CHECK_RESULT(vmi.mmu_register_page_table(gpa, level), 0);
		CHECK_RESULT(vmi.mmu_release_page_table(gpa, level), 0);
	}
	CHECK_RESULT(vmi.mmu_register_page_table(gpa, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_register_page_table(gpa, 5), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_release_page_table(gpa, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_release_page_table(gpa, 5), -VMI_EINVAL);
	for (level = 1; level < 4; level++)
		CHECK_RESULT(vmi.mmu_register_page_table(gpa, level |
							 VMI_PT_KERNEL_ROOT),
			     -VMI_EINVAL);
	free_page(gpa);
}

TEST(release_loaded, "mmu.release_page_table.loaded", 1, 0, MMU_RELEASE_PAGE_TABLE)
{
	u64 gpa = identity_page();

	space_create(&space);
	space_set(&space, USER_DATA, gpa | USER_RW, VMI_LEVEL_PT);
	space_load(&space);
	CHECK_RESULT(vmi.mmu_release_page_table(space.root, VMI_LEVEL_PML4),
		     -VMI_EBUSY);
	expect_page(USER_DATA, gpa);
	expect_page_user(USER_DATA, gpa);
	space_load(NULL);
	space_destroy(&space);
	free_page(gpa);
}
