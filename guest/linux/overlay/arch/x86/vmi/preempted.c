// SPDX-License-Identifier: GPL-2.0-only
/*
 * Flushes on a layer that knows which CPUs do not run. Such a CPU flushes everything before it runs
 * again, so no interrupt is sent, which it would serve late. The others are interrupted as ever.
 */
#include <linux/cpumask.h>
#include <linux/init.h>
#include <linux/percpu.h>
#include <asm/paravirt.h>
#include <asm/tlb.h>
#include <asm/tlbflush.h>
#include "vmi.h"

/* The CPUs that a flush interrupts. Used with preemption off, and not in interrupts. */
static DEFINE_PER_CPU(struct cpumask, running);

static void vmi_flush_tlb_multi(const struct cpumask *mask, const struct flush_tlb_info *info)
{
	struct cpumask *left = this_cpu_ptr(&running);
	unsigned int cpu;

	cpumask_copy(left, mask);
	for_each_cpu(cpu, left)
		if (vmi.mmu_flush_preempted(cpu) == 1)
			__cpumask_clear_cpu(cpu, left);
	native_flush_tlb_multi(left, info);
}

void __init vmi_init_flush_preempted(void)
{
	if (!(vmi_layer_features(VMI_SECTION_MMU) & VMI_MMU_FLUSH_PREEMPTED) ||
	    !vmi.mmu_flush_preempted)
		return;
	pv_ops.mmu.flush_tlb_multi = vmi_flush_tlb_multi;
	/* Walks without locks rely on an interrupt, which may not come: RCU frees page tables. */
	pv_ops.mmu.tlb_remove_table = tlb_remove_table;
}
