// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * No stale translation: every kind of change, followed by every kind of flush, for kernel and user
 * accesses, with the entry written by the call and by a plain store. The translation is used
 * before, so that there is one that could be stale.
 */
#include "pages.h"
#include "test.h"

static struct space space, other;

enum flush {
	PAGE_SITE, PAGE_ENTRY, RANGE, RANGE_LARGE, TLB_USER, TLB_ALL,
	LOAD_ZERO, LOAD_NEXT, LOAD_AWAY, FLUSH_COUNT,
};

static void flush(u64 kind, u64 va)
{
	switch (kind) {
	case PAGE_SITE:
		invalidate_page(va + 123);
		break;
	case PAGE_ENTRY:
		if (!vmi.mmu_invalidate_page)
			test_skip("the layer has no entry for it");
		vmi.mmu_invalidate_page(va);
		break;
	case RANGE:
		CHECK_RESULT(vmi.mmu_invalidate_range(va - PAGE_SIZE,
						      va + PAGE_SIZE), 0);
		break;
	case RANGE_LARGE:
		CHECK_RESULT(vmi.mmu_invalidate_range(va - 100 * PAGE_SIZE,
						      va + 1), 0);
		break;
	case TLB_USER:
		CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
		break;
	case TLB_ALL:
		CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_ALL), 0);
		break;
	case LOAD_ZERO:
		set_cr3(space.root, space.context, 0);
		break;
	case LOAD_NEXT:
		space.generation++;
		space_load(&space);
		break;
	case LOAD_AWAY:
		/* The space is not loaded while its generation changes. */
		space_load(&other);
		space.generation++;
		space_load(&space);
		break;
	}
}

struct change {
	u64 before, after;		/* values of the entry */
	bool other_page;		/* the entry then maps another page */
	enum access access;		/* the affected access: user code only, or both */
	u64 error;			/* of its page fault afterwards, in kernel mode */
	u64 user_error;
};

static const struct change changes[] = {
	{ USER_RW, USER_RW, true, KERNEL_READ, NO_FAULT, NO_FAULT },
	{ USER_RW, 0, false, KERNEL_READ, 0, PF_U },
	{ USER_RW, USER_RO, false, KERNEL_WRITE, PF_P | PF_W, PF_P | PF_W | PF_U },
	{ USER_RW, USER_RW | PTE_NX, false, USER_EXECUTE, 0, PF_P | PF_I | PF_U },
	{ USER_RW, PTE_P | PTE_W, false, KERNEL_READ, NO_FAULT, PF_P | PF_U },
	{ USER_RO, USER_RW, false, KERNEL_WRITE, NO_FAULT, NO_FAULT },
	{ USER_RW | PTE_NX, USER_RW, false, USER_EXECUTE, NO_FAULT, NO_FAULT },
};

static void write_entry(u64 va, u64 value, bool by_call)
{
	if (by_call)
		space_set(&space, va, value, VMI_LEVEL_PT);
	else
		WRITE_ONCE(*space_pte(&space, va, VMI_LEVEL_PT), value);
}

/* A program of one instruction: syscall. */
static void make_code(u64 gpa)
{
	u8 *page = to_linear(gpa);

	page[0] = 0x0f;
	page[1] = 0x05;
}

static void one(const struct change *c, u64 kind, bool user, bool by_call)
{
	enum access access = c->access;
	u64 a = identity_page(), b = identity_page(), va = USER_DATA + 7 * PAGE_SIZE;
	u64 value = 0, error;

	/* The kernel does not execute user memory. */
	if (access >= USER_READ)
		user = true;
	else if (user)
		access += USER_READ;
	make_code(b);
	make_code(a);
	write_entry(va, a | c->before, by_call);
	flush(kind, va);
	/* Use the translation in the way that will change, if it allows that. */
	value = *(u64 *)to_linear(a);
	error = try_access(access, va, &value);
	if (c->before == USER_RW)
		CHECK_EQ(error, NO_FAULT);
	write_entry(va, (c->other_page ? b : a) | c->after, by_call);
	flush(kind, va);
	value = 0;
	error = try_access(access, va, &value);
	CHECK_EQ(error, user ? c->user_error : c->error);
	if (c->other_page) {
		u64 want = *(u64 *)to_linear(b);

		*(u64 *)to_linear(b) = want + (1ull << 32);
		error = try_access(access, va, &value);
		CHECK_EQ(value, want + (1ull << 32));
	}
	write_entry(va, 0, by_call);
	flush(kind, va);
	free_page(a);
	free_page(b);
}

static void change_and_flush(u64 argument)
{
	const struct change *c = &changes[argument / FLUSH_COUNT];
	u64 kind = argument % FLUSH_COUNT;
	u32 round;

	space_create(&space);
	space_create(&other);
	space_load(&space);
	for (round = 0; round < 8; round++)
		one(c, kind, round & 1, round & 2);
	space_load(NULL);
	space_destroy(&space);
	space_destroy(&other);
}

#define CHANGES(flush, name, call)					\
	TEST_OF(remap_##flush, "mmu." name ".remap", change_and_flush,	\
		0 * FLUSH_COUNT + flush, 1, 0, call, MMU_SET_PTE);	\
	TEST_OF(unmap_##flush, "mmu." name ".unmap", change_and_flush,	\
		1 * FLUSH_COUNT + flush, 1, 0, call, MMU_SET_PTE);	\
	TEST_OF(protect_##flush, "mmu." name ".write_protect", change_and_flush, \
		2 * FLUSH_COUNT + flush, 1, 0, call, MMU_SET_PTE);	\
	TEST_OF(nx_##flush, "mmu." name ".no_execute", change_and_flush, \
		3 * FLUSH_COUNT + flush, 1, 0, call, MMU_SET_PTE);	\
	TEST_OF(user_##flush, "mmu." name ".not_for_user", change_and_flush, \
		4 * FLUSH_COUNT + flush, 1, 0, call, MMU_SET_PTE);	\
	TEST_OF(write_##flush, "mmu." name ".now_writable", change_and_flush, \
		5 * FLUSH_COUNT + flush, 1, 0, call, MMU_SET_PTE);	\
	TEST_OF(x_##flush, "mmu." name ".now_executable", change_and_flush, \
		6 * FLUSH_COUNT + flush, 1, 0, call, MMU_SET_PTE)

CHANGES(PAGE_SITE, "invalidate_page.site", MMU_INVALIDATE_PAGE);
CHANGES(PAGE_ENTRY, "invalidate_page.entry", MMU_INVALIDATE_PAGE);
CHANGES(RANGE, "invalidate_range.few", MMU_INVALIDATE_RANGE);
CHANGES(RANGE_LARGE, "invalidate_range.many", MMU_INVALIDATE_RANGE);
CHANGES(TLB_USER, "flush_tlb.user", MMU_FLUSH_TLB);
CHANGES(TLB_ALL, "flush_tlb.all", MMU_FLUSH_TLB);
CHANGES(LOAD_ZERO, "set_cr3.generation_0", MMU_SET_CR3);
CHANGES(LOAD_NEXT, "set_cr3.generation_next", MMU_SET_CR3);
CHANGES(LOAD_AWAY, "set_cr3.changed_while_away", MMU_SET_CR3);

/* The bounds of a range are as specified: start inclusive, end exclusive. */
TEST(range_ends, "mmu.invalidate_range.ends", 1, 0, MMU_INVALIDATE_RANGE)
{
	u64 old[5], new[5], va = USER_DATA;
	u32 i, n;

	space_create(&space);
	space_load(&space);
	for (n = 1; n <= 5; n++) {
		for (i = 0; i < 5; i++) {
			old[i] = identity_page();
			new[i] = identity_page();
			space_set(&space, va + i * PAGE_SIZE, old[i] | USER_RW, 1);
			expect_page(va + i * PAGE_SIZE, old[i]);
		}
		for (i = 0; i < n; i++)
			space_set(&space, va + i * PAGE_SIZE, new[i] | USER_RW, 1);
		/* The bounds need not be aligned: the last byte counts. */
		CHECK_RESULT(vmi.mmu_invalidate_range(va + (n > 1 ? 5 : 0),
						      va + (n - 1) * PAGE_SIZE +
						      1), 0);
		for (i = 0; i < 5; i++)
			expect_page(va + i * PAGE_SIZE, i < n ? new[i] : old[i]);
		for (i = 0; i < 5; i++) {
			space_set(&space, va + i * PAGE_SIZE, 0, 1);
			free_page(old[i]);
			free_page(new[i]);
		}
		CHECK_RESULT(vmi.mmu_invalidate_range(va, va + 5 * PAGE_SIZE), 0);
	}
	CHECK_RESULT(vmi.mmu_invalidate_range(va, va), 0);
	space_load(NULL);
	space_destroy(&space);
}

/* Global translations: gone after the flushes that cover them. */
static void global(u64 kind)
{
	u64 a = identity_page(), b = identity_page(), va = USER_DATA;

	space_create(&space);
	space_load(&space);
	space_set(&space, va, a | USER_RW | PTE_G, VMI_LEVEL_PT);
	expect_page(va, a);
	space_set(&space, va, b | USER_RW | PTE_G, VMI_LEVEL_PT);
	if (kind == 0)
		invalidate_page(va);
	else if (kind == 1)
		CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_ALL), 0);
	else if (kind == 2)
		set_cr4(get_cr4() & ~CR4_PGE);
	else
		CHECK_RESULT(vmi.mmu_invalidate_range(va, va + PAGE_SIZE), 0);
	expect_page(va, b);
	expect_page_user(va, b);
	set_cr4(cpu_cr4());
	space_set(&space, va, 0, VMI_LEVEL_PT);
	CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_ALL), 0);
	expect_fault(KERNEL_READ, va, 0);
	space_load(NULL);
	space_destroy(&space);
	free_page(a);
	free_page(b);
}
TEST_OF(global_page, "mmu.invalidate_page.global", global, 0, 1, 0, MMU_INVALIDATE_PAGE);
TEST_OF(global_all, "mmu.flush_tlb.global", global, 1, 1, 0, MMU_FLUSH_TLB);
TEST_OF(global_pge, "cpu.set_cr4.global", global, 2, 1, 0, CPU_SET_CR4);
TEST_OF(global_range, "mmu.invalidate_range.global", global, 3, 1, 0,
	MMU_INVALIDATE_RANGE);

TEST(flush_errors, "mmu.flush_tlb.errors", 1, 0, MMU_FLUSH_TLB,
     MMU_INVALIDATE_RANGE, MMU_FLUSH_KERNEL_RANGE)
{
	CHECK_RESULT(vmi.mmu_flush_tlb(0), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_flush_tlb(2), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_flush_tlb(4), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_flush_tlb(0xffffffff), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_invalidate_range(0x2000, 0x1fff), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_flush_kernel_range(kernel_area + 1, kernel_area),
		     -VMI_EINVAL);
}

/* Deferred writes: the entry changes at once, its effect comes after each of these. */
static void deferred(u64 kind)
{
	u64 gpa[16], va = USER_DATA, i, round;

	space_create(&space);
	space_load(&space);
	for (i = 0; i < 16; i++)
		gpa[i] = identity_page();
	for (round = 0; round < 10; round++) {
		if (kind >= 2)
			CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_MMU), 0);
		for (i = 0; i < 16; i++) {
			u64 value = gpa[(i + round) % 16] | USER_RW;

			space_set_flags(&space, va + i * PAGE_SIZE, value,
					VMI_LEVEL_PT,
					kind < 2 ? VMI_PTE_DEFER : 0);
			CHECK_EQ(*space_pte(&space, va + i * PAGE_SIZE, 1), value);
		}
		CHECK_RESULT(vmi.mmu_invalidate_range(va, va + 16 * PAGE_SIZE), 0);
		if (kind == 0 || kind == 2)
			vmi.mmu_flush_queue();
		if (kind >= 2)
			CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_NONE), 0);
		for (i = 0; i < 16; i++) {
			expect_page(va + i * PAGE_SIZE, gpa[(i + round) % 16]);
			expect_page_user(va + i * PAGE_SIZE, gpa[(i + round) % 16]);
		}
	}
	space_load(NULL);
	space_destroy(&space);
	for (i = 0; i < 16; i++)
		free_page(gpa[i]);
}
TEST_OF(deferred_queue, "mmu.set_pte.deferred_queue", deferred, 0, 1, 0,
	MMU_FLUSH_QUEUE, MMU_SET_PTE);
TEST_OF(deferred_flush, "mmu.set_pte.deferred_flush", deferred, 1, 1, 0, MMU_SET_PTE);
TEST_OF(lazy_queue, "mmu.flush_queue.lazy", deferred, 2, 1, 0, MMU_FLUSH_QUEUE,
	MMU_SET_LAZY_MODE);
TEST_OF(lazy_leave, "mmu.set_lazy_mode.mmu", deferred, 3, 1, 0, MMU_SET_LAZY_MODE);

/* A change from absent to present needs no flush, deferred or not, once it is carried out. */
static void deferred_new(u64 kind)
{
	u64 gpa = identity_page(), va = USER_DATA, round;

	space_create(&space);
	space_load(&space);
	for (round = 0; round < 20; round++) {
		u64 at = va + round * PAGE_SIZE;

		expect_fault(KERNEL_READ, at, 0);
		expect_fault(USER_READ, at, PF_U);
		if (kind)
			CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_MMU), 0);
		space_set_flags(&space, at, gpa | USER_RW, VMI_LEVEL_PT,
				kind ? 0 : VMI_PTE_DEFER);
		if (kind)
			CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_NONE), 0);
		else
			vmi.mmu_flush_queue();
		expect_page(at, gpa);
		expect_page_user(at, gpa);
	}
	space_load(NULL);
	space_destroy(&space);
	free_page(gpa);
}
/* No flush helps here: a layer that defers changes must make them at flush_queue. */
TEST_OF(new_deferred, "mmu.flush_queue.deferred", deferred_new, 0, 1, 0, MMU_SET_PTE,
	MMU_FLUSH_QUEUE);
TEST_OF(new_lazy, "mmu.set_lazy_mode.mmu_new", deferred_new, 1, 1, 0,
	MMU_SET_LAZY_MODE);

TEST(lazy_errors, "mmu.set_lazy_mode.errors", 1, 0, MMU_SET_LAZY_MODE)
{
	CHECK_RESULT(vmi.mmu_set_lazy_mode(3), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(0xffffffff), -VMI_EINVAL);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_NONE), 0);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_MMU), 0);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_MMU), -VMI_EPERM);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_CPU), -VMI_EPERM);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_NONE), 0);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_CPU), 0);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_MMU), -VMI_EPERM);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(99), -VMI_EINVAL);
	vmi.mmu_flush_queue();
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_CPU), -VMI_EPERM);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_NONE), 0);
}
