/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Section mmu. The processor walks the kernel's tables itself by its own rules, so most calls are a
 * store or nothing. set_cr3, get_cr3 and invalidate_page are in primitives.S.
 */
#include "native.h"

#define PAGE_SHIFT 12
#define PAGE_MASK ((1ULL << PAGE_SHIFT) - 1)
#define TABLE_ENTRIES 512
#define SINGLE_PAGES 33 /* above this many pages a full flush is used */

static bool table_good(u64 gpa, u32 level)
{
	return !(gpa & PAGE_MASK) && level >= VMI_LEVEL_PT && level <= VMI_LEVEL_PML4;
}

int native_mmu_register_page_table(u64 gpa, u32 level)
{
	u32 plain = level & ~VMI_PT_KERNEL_ROOT;

	if (FAULT(REGISTER_ANY_LEVEL) && plain > VMI_LEVEL_PML4)
		return 0;
	if (!table_good(gpa, plain) || (plain != level && plain != VMI_LEVEL_PML4))
		return -VMI_EINVAL;
	return 0;
}

int native_mmu_release_page_table(u64 gpa, u32 level)
{
	if (!table_good(gpa, level))
		return -VMI_EINVAL;
	if (FAULT(RELEASE_ONCE)) {
		static u64 released;

		if (gpa == released)
			return -VMI_ENOENT;
		released = gpa;
	}
	if (level == VMI_LEVEL_PML4 && (cpu_cr3() & CR3_ADDRESS) == gpa)
		return FAULT(RELEASE_LOADED) ? 0 : -VMI_EBUSY;
	return 0;
}

void native_mmu_set_pte(u64 *slot, u64 value, u32 flags, u64 va)
{
	(void)va;
	if (FAULT(SET_PTE_DEFERS_STORE) && flags & VMI_PTE_DEFER)
		return;
	WRITE_ONCE(*slot, value);
}

int native_mmu_set_ptes(u64 *slot, u64 value, u32 count, u32 flags, u64 va)
{
	u32 level = flags & VMI_PTE_LEVEL_MASK;
	u64 index = ((u64)slot & PAGE_MASK) / sizeof(*slot), step;

	(void)va;
	if (level < VMI_LEVEL_PT || level > VMI_LEVEL_PDPT)
		return -VMI_EINVAL;
	if (!count || count > TABLE_ENTRIES - index)
		return -VMI_EINVAL;
	step = 1ULL << (PAGE_SHIFT + 9 * (level - VMI_LEVEL_PT));
	if (FAULT(SET_PTES_STRIDE))
		step = 1ULL << PAGE_SHIFT << 1;
	for (u32 i = 0; i < count; i++)
		WRITE_ONCE(slot[i], value + i * step);
	return 0;
}

static void flush_everything(void)
{
	u64 flags = cpu_irq_save(), cr4 = cpu_cr4();

	/*
	 * A change of CR4.PGE in either direction flushes global translations too. Interrupts
	 * are off so that no handler sees, or writes, the CR4 in between.
	 */
	if (cr4 & CR4_PGE && !FAULT(FLUSH_ALL_NOTHING)) {
		cpu_set_cr4(cr4 & ~CR4_PGE);
		cpu_set_cr4(cr4);
	} else if (!FAULT(FLUSH_ALL_NOTHING)) {
		cpu_set_cr3(cpu_cr3());
	}
	cpu_irq_restore(flags);
}

static int flush_range(u64 start, u64 end)
{
	u64 page, last;

	if (end < start)
		return -VMI_EINVAL;
	if (end == start)
		return 0;
	page = start >> PAGE_SHIFT;
	last = (end - 1) >> PAGE_SHIFT;
	if (last - page >= SINGLE_PAGES) {
		flush_everything();
		return 0;
	}
	if (FAULT(INVALIDATE_RANGE_SHORT))
		last--;
	for (; page <= last; page++)
		cpu_invlpg(page << PAGE_SHIFT);
	return 0;
}

int native_mmu_invalidate_range(u64 start, u64 end)
{
	return flush_range(start, end);
}

int native_mmu_flush_tlb(u32 flags)
{
#if FAULT(FLUSH_CLOBBERS_XMM)
	__asm__ volatile("pxor %xmm3, %xmm3");
#endif
	if (flags == VMI_FLUSH_ALL)
		flush_everything();
	else if (flags == VMI_FLUSH_USER)
		cpu_set_cr3(cpu_cr3());
	else
		return -VMI_EINVAL;
	return 0;
}

int native_mmu_flush_kernel_range(u64 start, u64 end)
{
	/* The processor keeps no translations of spaces that are not loaded: PCIDs are off. */
	return flush_range(start, FAULT(FLUSH_KERNEL_NOTHING) && end > start ? start : end);
}

int native_mmu_flush_space(u64 cr3, u64 context, u64 generation, u64 start, u64 end)
{
	/* Interrupts flush the translations of other vCPUs, and those are the kernel's business. */
	(void)cr3;
	(void)context;
	(void)generation;
	(void)start;
	(void)end;
	return -VMI_ENOSYS;
}

int native_mmu_set_lazy_mode(u32 mode)
{
	struct native_percpu *self = native_self();

	if (mode > VMI_LAZY_CPU)
		return -VMI_EINVAL;
	if (mode != VMI_LAZY_NONE && self->lazy_mode != VMI_LAZY_NONE && !FAULT(LAZY_NESTS))
		return -VMI_EPERM;
	/* Only stored, to find kernels that would nest. Nothing is ever queued. */
	self->lazy_mode = mode;
	return 0;
}

void native_mmu_flush_queue(void)
{
	if (FAULT(FLUSH_QUEUE_LEAVES_MODE))
		native_self()->lazy_mode = VMI_LAZY_NONE;
}

void native_mmu_fill(u64 va, const u64 *slot, u32 count)
{
	(void)va;
	(void)slot;
	(void)count;
}

int native_mmu_expect_space(u64 cr3, u64 hint)
{
	(void)hint;
	return cr3 & PAGE_MASK ? -VMI_EINVAL : 0;
}

int native_mmu_flush_preempted(u32 vcpu)
{
	(void)vcpu;
	return FAULT(FLUSH_PREEMPTED_OFFERED) ? 0 : -VMI_ENOSYS;
}

int native_mmu_flush_kernel_everywhere(u64 start, u64 end)
{
	(void)start, (void)end;
	/* As mmu.flush_space. */
	return -VMI_ENOSYS;
}
