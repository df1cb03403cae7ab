// SPDX-License-Identifier: GPL-2.0-only
/* Page tables: the early ones, and pv_ops.mmu on a layer's section mmu. */
#include <linux/init.h>
#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/smp.h>
#include <asm/fixmap.h>
#include <asm/fpu/api.h>
#include <asm/fpu/sched.h>
#include <asm/fpu/signal.h>
#include <asm/mmu_context.h>
#include <asm/paravirt.h>
#include <asm/pgalloc.h>
#include <asm/sections.h>
#include <asm/tlb.h>
#include <asm/tlbflush.h>
#include <asm/vmi.h>
#include "../kernel/fpu/context.h"
#include "vmi.h"

/* The context number of init_mm. mm_context_t.ctx_id starts above it. */
#define KERNEL_CONTEXT 1

/* Fills the tables of head_64.S for the addresses that the image has. */
unsigned long __init vmi_early_page_tables(void)
{
	unsigned long address, text = (unsigned long)_text, end = PFN_ALIGN(_end);
	unsigned long table = _KERNPG_TABLE_NOENC;
	int i;

	memset(level2_kernel_pgt, 0, PAGE_SIZE);
	for (address = text & PMD_MASK; address < end; address += PMD_SIZE)
		level2_kernel_pgt[pmd_index(address)] =
			__pmd(__pa_symbol(address) | __PAGE_KERNEL_LARGE_EXEC);
	memset(level2_fixmap_pgt, 0, PAGE_SIZE);
	for (i = 0; i < FIXMAP_PMD_NUM; i++)
		level2_fixmap_pgt[FIXMAP_PMD_TOP - i] =
			__pmd((__pa_symbol(level1_fixmap_pgt) +
			       (FIXMAP_PMD_NUM - 1 - i) * PAGE_SIZE) | _PAGE_TABLE_NOENC);
	memset(level3_kernel_pgt, 0, PAGE_SIZE);
	level3_kernel_pgt[pud_index(text)] = __pud(__pa_symbol(level2_kernel_pgt) | table);
	level3_kernel_pgt[pud_index(FIXADDR_TOP)] =
		__pud(__pa_symbol(level2_fixmap_pgt) | _PAGE_TABLE_NOENC);
	/* Image and fixmap share one third-level table: their entries in it differ. */
	memset(init_top_pgt, 0, PAGE_SIZE);
	init_top_pgt[pgd_index(text)] = __pgd(__pa_symbol(level3_kernel_pgt) | table);
	init_top_pgt[pgd_index(FIXADDR_TOP)] =
		__pgd(__pa_symbol(level3_kernel_pgt) | _PAGE_TABLE_NOENC);
	return __pa_symbol(init_top_pgt);
}

static void vmi_flush_tlb_user(void)
{
	vmi.mmu_flush_tlb(VMI_FLUSH_USER);
}

static void vmi_flush_tlb_kernel(void)
{
	vmi.mmu_flush_tlb(VMI_FLUSH_ALL);
}

/*
 * Linux starts with generation 0. To a layer 0 means that nothing is known, and it would compare
 * everything at each load.
 */
static u64 layer_generation(u64 tlb_gen)
{
	return tlb_gen + 1;
}

/* The layer offers mmu.flush_space. */
bool vmi_can_flush __ro_after_init;

/*
 * A layer flushes a space on all CPUs at once, and a generation tells it which flushes it has
 * missed. So no CPU is interrupted. Lockless page-table walks normally rely on that interrupt; here
 * page tables are freed by RCU instead (tlb_remove_table()). Lazy CPUs need not learn of freed
 * tables: they do not touch user addresses, and the layer walks tables for nothing else.
 */
void vmi_flush_mm(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	u64 generation, *loaded = this_cpu_ptr(&cpu_tlbstate.ctxs[0].tlb_gen);
	unsigned long flags;

	generation = inc_mm_tlb_gen(mm);
	/* A dying mm is not used again, and the release of its root drops all translations. */
	if (!atomic_read(&mm->mm_users))
		return;
	local_irq_save(flags);
	vmi.mmu_flush_space(__pa(mm->pgd), mm->context.ctx_id, layer_generation(generation),
			    start & PAGE_MASK, end == TLB_FLUSH_ALL ? end : PAGE_ALIGN(end));
	if (mm == this_cpu_read(cpu_tlbstate.loaded_mm) && *loaded < generation)
		*loaded = generation;
	local_irq_restore(flags);
}

DEFINE_STATIC_KEY_FALSE(vmi_flush_key);

/* A layer in a ROM is started before, one that a hypervisor hands over before there are keys. */
static int __init vmi_enable_flushes(void)
{
	if (vmi_can_flush)
		static_branch_enable(&vmi_flush_key);
	return 0;
}
early_initcall(vmi_enable_flushes);

/* One call flushes a range of any size. @end is TLB_FLUSH_ALL for all of it. */
void vmi_flush_kernel(unsigned long start, unsigned long end)
{
	vmi.mmu_flush_kernel_range(start & PAGE_MASK, end == TLB_FLUSH_ALL ? end : PAGE_ALIGN(end));
}

/* The layer offers mmu.flush_kernel_everywhere. */
static bool can_flush_kernel __ro_after_init;

bool vmi_flush_kernel_everywhere(unsigned long start, unsigned long end)
{
	if (!can_flush_kernel)
		return false;
	vmi.mmu_flush_kernel_everywhere(start & PAGE_MASK,
					end == TLB_FLUSH_ALL ? end : PAGE_ALIGN(end));
	return true;
}

void vmi_wait_for_walks(void)
{
	if (can_flush_kernel)
		kick_all_cpus_sync();
}

/* The layer offers VMI_MMU_NO_VECTORS. */
static bool no_vectors __ro_after_init;

/*
 * A CR3 load carries the vector registers to the next space, although Linux saves them soon after.
 * This saves them first, so that the layer need not carry them. Returns false if that is impossible
 * because the kernel itself uses them.
 */
static bool leave_fpregs(void)
{
	struct task_struct *task = current;

	if (!irq_fpu_usable())
		return false;
	if (!(task->flags & (PF_KTHREAD | PF_USER_WORKER)) &&
	    !test_thread_flag(TIF_NEED_FPU_LOAD)) {
		save_fpregs_to_fpstate(&task->thread.fpu);
		set_thread_flag(TIF_NEED_FPU_LOAD);
	}
	__cpu_invalidate_fpregs_state();
	return true;
}

/*
 * Tells the layer which space the root belongs to, and its generation: the tlb_gen from before this
 * CPU used any translation of the space. switch_mm_irqs_off() leaves both in cpu_tlbstate before it
 * loads CR3. Any other load of CR3 flushes.
 */
static void vmi_write_cr3(unsigned long cr3)
{
	u64 context = 0, generation = 0;
	struct mm_struct *mm;

	if (no_vectors && leave_fpregs())
		cr3 |= VMI_CR3_NO_VECTORS;
	if ((cr3 & CR3_ADDR_MASK) == __pa_symbol(swapper_pg_dir)) {
		/*
		 * It maps nothing in the user range, and has no struct page yet at the first load.
		 */
		vmi.mmu_set_cr3(cr3, KERNEL_CONTEXT, 1);
		return;
	}
	mm = pgd_page_get_mm(pfn_to_page(PHYS_PFN(cr3 & CR3_ADDR_MASK)));
	if (mm) {
		context = mm->context.ctx_id;
		if (this_cpu_read(cpu_tlbstate.ctxs[0].ctx_id) == context)
			generation = layer_generation(this_cpu_read(cpu_tlbstate.ctxs[0].tlb_gen));
	}
	vmi.mmu_set_cr3(cr3, context, generation);
}

static int vmi_pgd_alloc(struct mm_struct *mm)
{
	vmi.mmu_register_page_table(__pa(mm->pgd), VMI_LEVEL_PML4);
	return 0;
}

static void vmi_pgd_free(struct mm_struct *mm, pgd_t *pgd)
{
	WARN_ON_ONCE(vmi.mmu_release_page_table(__pa(pgd), VMI_LEVEL_PML4));
}

void __init vmi_init_mmu_ops(void)
{
	/* With page-table isolation Linux also flushes by means that a layer does not see. */
	bool flushes = vmi_low || !boot_cpu_has(X86_FEATURE_PTI);

	if (flushes) {
		vmi_use(&pv_ops.mmu.flush_tlb_user, VMI_CALL_MMU_FLUSH_TLB, vmi_flush_tlb_user);
		vmi_use(&pv_ops.mmu.flush_tlb_kernel, VMI_CALL_MMU_FLUSH_TLB, vmi_flush_tlb_kernel);
		vmi_use(&pv_ops.mmu.flush_tlb_one_user, VMI_CALL_MMU_INVALIDATE_PAGE,
			vmi.mmu_invalidate_page);
	}
	/* Primitive calls keep at least the registers that a callee-save operation must keep. */
	vmi_use(&pv_ops.mmu.read_cr2, VMI_CALL_CPU_GET_CR2, vmi.cpu_get_cr2);
	vmi_use(&pv_ops.mmu.write_cr2, VMI_CALL_CPU_SET_CR2, vmi.cpu_set_cr2);
	vmi_use(&pv_ops.mmu.read_cr3, VMI_CALL_MMU_GET_CR3, vmi.mmu_get_cr3);
	vmi_use(&pv_ops.mmu.write_cr3, VMI_CALL_MMU_SET_CR3, vmi_write_cr3);
	vmi_use(&pv_ops.mmu.pgd_alloc, VMI_CALL_MMU_REGISTER_PAGE_TABLE, vmi_pgd_alloc);
	vmi_use(&pv_ops.mmu.pgd_free, VMI_CALL_MMU_RELEASE_PAGE_TABLE, vmi_pgd_free);
	if (flushes && vmi_layer_features(VMI_SECTION_MMU) & VMI_MMU_FLUSH_SPACE &&
	    vmi.mmu_flush_space) {
		vmi_can_flush = true;
		if (vmi_boot.vcpu_count > 1)
			pv_ops.mmu.tlb_remove_table = tlb_remove_table;
	}
	can_flush_kernel = flushes && vmi.mmu_flush_kernel_everywhere &&
			   vmi_layer_features(VMI_SECTION_MMU) & VMI_MMU_FLUSH_KERNEL;
	if (!vmi_low)
		return;
	vmi_use(&pv_ops.mmu.enter_mmap, VMI_CALL_MMU_EXPECT_SPACE, vmi_expect_program);
	no_vectors = vmi_layer_features(VMI_SECTION_MMU) & VMI_MMU_NO_VECTORS;
}
