// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Section mmu. */
#include "calls/calls.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "mm/fill.h"
#include "mm/flush.h"
#include "mm/walk.h"
#include "state/event.h"
#include "state/state.h"
#include "vcpu/handover.h"
#include "vcpu/irq.h"
#include "vcpu/remote_flush.h"

static bool table_bad(u64 gpa, u32 level)
{
	return (gpa & ~PAGE_MASK) || level < VMI_LEVEL_PT || level > VMI_LEVEL_PML4;
}

int process_mmu_register_page_table(u64 gpa, u32 level)
{
	bool kernel_root = level & VMI_PT_KERNEL_ROOT;

	level &= ~(u32)VMI_PT_KERNEL_ROOT;
	if (table_bad(gpa, level) || (kernel_root && level != VMI_LEVEL_PML4))
		return -VMI_EINVAL;
	if (kernel_root) {
		WRITE_ONCE(shared->kernel_root, gpa);
		__atomic_fetch_add(&shared->kernel_generation, 1, __ATOMIC_SEQ_CST);
	}
	return 0;
}

int process_mmu_release_page_table(u64 gpa, u32 level)
{
	if (table_bad(gpa, level))
		return -VMI_EINVAL;
	if (level == VMI_LEVEL_PML4 && !space_release(this_vcpu(), gpa))
		return -VMI_EBUSY;
	return 0;
}

void process_mmu_set_pte(u64 *entry, u64 value, u32 flags, u64 va)
{
	(void)flags;
	(void)va;
#if FAULT(DEFER_FORGOTTEN)
	if (flags & VMI_PTE_DEFER && !(*entry & PTE_P))
		tlb_deferred_page = va & PAGE_MASK;
#endif
	WRITE_ONCE(*entry, value);
}

int process_mmu_set_ptes(u64 *entry, u64 value, u32 count, u32 flags, u64 va)
{
	u32 level = flags & VMI_PTE_LEVEL_MASK, i;
	u64 index = (u64)entry / 8 & 511;

	(void)va;
	if (!count || level < VMI_LEVEL_PT || level > VMI_LEVEL_PDPT || index + count > 512)
		return -VMI_EINVAL;
	for (i = 0; i < count; i++)
		WRITE_ONCE(entry[i], value + ((u64)i << (12 + 9 * (level - 1))));
	return 0;
}

static void queue_run(struct vcpu *v)
{
	if (!v->queued)
		return;
	v->queued = 0;
	space_load(v, v->queued_cr3, v->queued_context, v->queued_generation);
}

/*
 * A hand-over in here ends the call: code after space_load() runs only if this process has the
 * space.
 */
void process_mmu_set_cr3(u64 cr3, u64 context, u64 generation)
{
	struct vcpu *v = this_vcpu();

	if (v->lazy_mode == VMI_LAZY_CPU) {
		v->queued_cr3 = cr3;
		v->queued_context = context;
		v->queued_generation = generation;
		v->queued = 1;
		return;
	}
	space_load(v, cr3, context, generation);
}

u64 process_mmu_get_cr3(void)
{
	const struct vcpu *v = this_vcpu();

	return v->queued ? v->queued_cr3 & ~CR3_FLAGS : v->cr3;
}

void process_mmu_invalidate_page(u64 va)
{
	struct vcpu *v = this_vcpu();
	bool kernel = kernel_address(va);

	va &= PAGE_MASK;
	event(v, PHV_EVENT_FLUSH, va, va + PAGE_SIZE);
	if (kernel)
		tlb_flush_kernel(v, va, va + PAGE_SIZE);
	else
		tlb_flush(v, va, va + PAGE_SIZE);
}

int process_mmu_invalidate_range(u64 start, u64 end)
{
	if (end < start)
		return -VMI_EINVAL;
	event(this_vcpu(), PHV_EVENT_FLUSH, start, end);
	if (end > user_end() || (start < PHV_IMAGE_START && end > PHV_HOLE_START))
		tlb_flush_kernel(this_vcpu(), start, end);
	else
		tlb_flush(this_vcpu(), start, end);
	return 0;
}

int process_mmu_flush_tlb(u32 flags)
{
	struct vcpu *v = this_vcpu();

	if (flags != VMI_FLUSH_USER && flags != VMI_FLUSH_ALL)
		return -VMI_EINVAL;
	event(v, PHV_EVENT_FLUSH, PHV_USER_START,
	      flags == VMI_FLUSH_ALL ? PHV_KERNEL_END : user_end());
	/*
	 * Kernel translations are flushed too unless all of them are global, as they are in most
	 * kernels.
	 */
	if (flags == VMI_FLUSH_ALL || READ_ONCE(shared->kernel_local)) {
		tlb_flush_kernel(v, PHV_USER_START, PHV_KERNEL_END);
	} else {
		tlb_flush(v, PHV_USER_START, user_end());
	}
	/* These pages may have been the last reason for the slow way to user mode. */
	if (FAST(v, F_FORCE) & FORCE_PAGES)
		irq_refresh(v);
	return 0;
}

int process_mmu_flush_kernel_range(u64 start, u64 end)
{
	if (end < start)
		return -VMI_EINVAL;
	event(this_vcpu(), PHV_EVENT_FLUSH, start, end);
	tlb_flush_kernel(this_vcpu(), start, end);
	return 0;
}

int process_mmu_flush_space(u64 cr3, u64 context, u64 generation, u64 start, u64 end)
{
	if (end < start)
		return -VMI_EINVAL;
	event(this_vcpu(), PHV_EVENT_FLUSH, start, end);
	if (!FAULT(FLUSH_SPACE_NOTHING))
		space_flush(this_vcpu(), cr3 & PTE_ADDR, context, generation, start, end);
	return 0;
}

int process_mmu_set_lazy_mode(u32 mode)
{
	struct vcpu *v = this_vcpu();

	if (mode > VMI_LAZY_CPU)
		return -VMI_EINVAL;
	if (mode != VMI_LAZY_NONE && v->lazy_mode != VMI_LAZY_NONE) {
		if (FAULT(LAZY_MMU_LEFT) && v->lazy_mode == VMI_LAZY_MMU)
			v->lazy_mode = VMI_LAZY_NONE;
		return -VMI_EPERM;
	}
	v->lazy_mode = mode;
	if (mode == VMI_LAZY_NONE)
		queue_run(v);
	return 0;
}

void process_mmu_flush_queue(void)
{
	if (!FAULT(FLUSH_QUEUE_NOTHING))
		queue_run(this_vcpu());
}

int process_mmu_expect_space(u64 cr3, u64 exec_hint)
{
	struct vcpu *v = this_vcpu();

	if (cr3 & ~PAGE_MASK)
		return -VMI_EINVAL;
	v->expected_cr3 = cr3;
	v->expected_hint = exec_hint;
	return 0;
}

void process_mmu_fill(u64 va, const u64 *entry, u32 count)
{
	u64 room = 512 - ((u64)entry / 8 & 511);

	if (count && (count <= room || FAULT(FILL_BEYOND)) && !kernel_address(va))
		tlb_fill(this_vcpu(), va, count);
}

int process_mmu_flush_preempted(u32 vcpu)
{
	(void)vcpu;
	/* mmu.flush_space does it for every vCPU. */
	return -VMI_ENOSYS;
}

int process_mmu_flush_kernel_everywhere(u64 start, u64 end)
{
	if (end < start)
		return -VMI_EINVAL;
	event(this_vcpu(), PHV_EVENT_FLUSH, start, end);
	kernel_flush(this_vcpu(), start, end);
	return 0;
}
