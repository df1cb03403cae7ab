// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Rows about page faults, flushes, and the life of a space. */
#include "vmi_bench.h"
#include "pages.h"
#include "test.h"
#include "user_mode.h"

#define PAGES		256		/* in one page table */
#define BATCH		64		/* pages; a few windows of 16 */
#define SPACE_PAGES	32
/* No two adjacent pages are physically adjacent. Odd, so that all pages are used. */
#define STRIDE		37
/* Like an entry that a kernel writes for the first write to a page. */
#define WRITTEN		(USER_RW | PTE_NX | PTE_A | PTE_D)

static struct space space;
static u64 memory;			/* guest-physical, PAGES pages */
static u64 *slots;			/* the entries of USER_DATA */

static u64 scattered(u64 i)
{
	return memory + i * STRIDE % PAGES * PAGE_SIZE;
}

static u64 contiguous(u64 i)
{
	return memory + i * PAGE_SIZE;
}

static bool begin_pages(void)
{
	if (!memory)
		memory = to_gpa(alloc_contiguous(PAGES * PAGE_SIZE));
	space_create(&space);
	space_load(&space);
	slots = space_pte(&space, USER_DATA, VMI_LEVEL_PT);
	/* Use the text before the first batch, too. */
	user_call(u_nop, 0, 0);
	return true;
}

static void end_pages(void)
{
	space_load(NULL);
	space_destroy(&space);
	reset_irq_handlers();
}

static void unmap_all(void)
{
	u64 i;

	for (i = 0; i < PAGES; i++)
		vmi.mmu_set_pte(&slots[i], 0, VMI_LEVEL_PT | VMI_PTE_CURRENT,
				USER_DATA + i * PAGE_SIZE);
	vmi.mmu_invalidate_range(USER_DATA, USER_DATA + PAGES * PAGE_SIZE);
}

static void map_all(u64 ops, u64 (*page)(u64))
{
	u64 i;

	unmap_all();
	for (i = 0; i < ops; i++)
		vmi.mmu_set_pte(&slots[i], page(i) | WRITTEN, VMI_LEVEL_PT | VMI_PTE_CURRENT,
				USER_DATA + i * PAGE_SIZE);
}

static void write_pages(u64 ops)
{
	user_call(u_bench_write, USER_DATA, ops);
}

/*
 * The kernel's part of a first touch: a zeroed page, the entry, and the hint to the layer that it
 * is about to be used.
 */
/* The physical page of a new page: the next one, as from a fresh allocator, or a random one. */
static u64 (*next_page)(u64);

static void first_touch(struct regs *regs)
{
	u64 va = get_cr2() & ~(PAGE_SIZE - 1), i = (va - USER_DATA) / PAGE_SIZE, *page;

	if (i >= PAGES || (slots[i] & PTE_P))
		panic("bench: page fault at %llx, rip %llx", va, regs->rip);
	page = to_linear(next_page(i));
	memset(page, 0, PAGE_SIZE);
	vmi.mmu_set_pte(&slots[i], to_gpa(page) | WRITTEN, VMI_LEVEL_PT | VMI_PTE_CURRENT, va);
	if (vmi.mmu_fill)
		vmi.mmu_fill(va, &slots[i], 1);
}

static bool begin_first_touch(void)
{
	begin_pages();
	next_page = contiguous;
	set_raw_handler(VECTOR_PF, first_touch);
	return true;
}

static bool begin_first_touch_scattered(void)
{
	begin_first_touch();
	next_page = scattered;
	return true;
}

static void prepare_first_touch(u64 ops)
{
	(void)ops;
	unmap_all();
}

static void prepare_hidden(u64 ops)
{
	map_all(ops, scattered);
}

static void prepare_contiguous(u64 ops)
{
	map_all(ops, contiguous);
}

static void prepare_flush(u64 ops)
{
	map_all(ops, scattered);
	write_pages(ops);
}

static void run_flush(u64 ops)
{
	u64 i, va = USER_DATA;

	for (i = 0; i < ops; i++, va += PAGE_SIZE) {
		vmi.mmu_set_pte(&slots[i], 0, VMI_LEVEL_PT | VMI_PTE_CURRENT, va);
		invalidate_page(va);
	}
}

static bool begin_spaces(void)
{
	if (!memory)
		memory = to_gpa(alloc_contiguous(PAGES * PAGE_SIZE));
	return true;
}

/* Like the space of a new process: built, entered, used, left, destroyed. */
static void create_drop(u64 ops, u64 (*page)(u64))
{
	u64 i;

	for (; ops; ops--) {
		space_create(&space);
		slots = space_pte(&space, USER_DATA, VMI_LEVEL_PT);
		for (i = 0; i < SPACE_PAGES; i++)
			vmi.mmu_set_pte(&slots[i], page(i) | WRITTEN, VMI_LEVEL_PT,
					USER_DATA + i * PAGE_SIZE);
		space_load(&space);
		write_pages(SPACE_PAGES);
		space_load(NULL);
		space_destroy(&space);
	}
}

static void run_create_drop(u64 ops)
{
	create_drop(ops, contiguous);
}

static void run_create_drop_scattered(u64 ops)
{
	create_drop(ops, scattered);
}

const struct vmi_row vmi_rows_memory[] = {
	{ "fault_first_touch", 1, BATCH, 201, begin_first_touch, prepare_first_touch, write_pages,
	  end_pages },
	{ "fault_first_touch_scattered", 1, BATCH, 201, begin_first_touch_scattered,
	  prepare_first_touch, write_pages,
	  end_pages },
	{ "fault_hidden", 1, BATCH, 201, begin_pages, prepare_hidden, write_pages, end_pages },
	{ "fault_contiguous_16", 1, BATCH, 201, begin_pages, prepare_contiguous, write_pages,
	  end_pages },
	{ "flush", 1, BATCH, 201, begin_pages, prepare_flush, run_flush, end_pages },
	{ "address_space_create_drop", 1, 10, 1000, begin_spaces, NULL, run_create_drop, NULL },
	{ "address_space_create_drop_scattered", 1, 10, 1000, begin_spaces, NULL,
	  run_create_drop_scattered, NULL },
};
const u32 vmi_rows_memory_count = ARRAY_SIZE(vmi_rows_memory);
