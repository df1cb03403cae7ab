// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fewer faults. A layer's translation may cost several microseconds, a fault more, and copying a
 * page a third of one. So the kernel tells the layer which entries will be used (mmu.fill), and
 * one fault does more.
 */
#include <linux/prefault.h>
#include <linux/huge_mm.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/shmem_fs.h>
#include <asm/tlbflush.h>
#include <asm/vmi.h>
#include <asm/vmi_cost.h>
#include "vmi.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

bool vmi_populate __read_mostly;
module_param_named(populate, vmi_populate, bool, 0644);
MODULE_PARM_DESC(populate, "populate small data and the beginning of a heap");

bool vmi_neighbours __read_mostly;
module_param_named(neighbours, vmi_neighbours, bool, 0644);
MODULE_PARM_DESC(neighbours, "take neighbouring pages for faults and for files");

static bool loaded(const struct mm_struct *mm)
{
	return mm == this_cpu_read(cpu_tlbstate.loaded_mm);
}

/* A fault that maps what the page cache has around it fills once at its end, or its caller does. */
static bool in_fault_around(const struct vm_fault *vmf, const struct vm_area_struct *vma)
{
	return vmf && !vmf->page && vma->vm_ops && vma->vm_ops->map_pages;
}

/*
 * Not a fault of the program's own: vmi_fill_range() fills once when all pages are there. A page
 * that replaces another one is filled at once, since that also flushes (vmi_fill_replaces()).
 */
static bool in_populate(const struct vm_fault *vmf)
{
	return vmf && !(vmf->flags & FAULT_FLAG_INTERRUPTIBLE) && pte_none(vmf->orig_pte);
}

/* A page that was just written, or that the program asked for, will be used at once. */
void vmi_fill(struct vm_fault *vmf, struct vm_area_struct *vma, unsigned long addr, pte_t *ptep,
	      unsigned int nr)
{
	if (!loaded(vma->vm_mm) || in_populate(vmf))
		return;
	addr &= PAGE_MASK;
	if (!pte_dirty(*ptep)) {
		unsigned long index = vmf ? (vmf->address - addr) >> PAGE_SHIFT : nr;

		if (index >= nr || in_fault_around(vmf, vma))
			return;
		addr += index << PAGE_SHIFT;
		ptep += index;
		nr = 1;
	}
	vmi.mmu_fill(addr, (const u64 *)ptep, nr);
}

void vmi_fill_pmd(struct vm_area_struct *vma, unsigned long addr, pmd_t *pmd)
{
	if (pmd_dirty(*pmd) && loaded(vma->vm_mm))
		vmi.mmu_fill(addr & PAGE_MASK, (const u64 *)pmd, 1);
}

/*
 * Entries of one page table. The layer maps long runs of neighbours. The page that was asked for
 * may be in none of them.
 */
void vmi_fill_around(struct vm_fault *vmf, unsigned long start, unsigned long count)
{
	pmd_t pmd = pmdp_get_lockless(vmf->pmd);
	const u64 *table;

	if (!loaded(vmf->vma->vm_mm) || in_populate(vmf) || !pmd_present(pmd) || pmd_leaf(pmd))
		return;
	table = (const u64 *)pmd_page_vaddr(pmd);
	vmi.mmu_fill(start, table + pte_index(start), count);
	vmi.mmu_fill(vmf->address & PAGE_MASK, table + pte_index(vmf->address), 1);
}

/* The caller holds the mmap lock or the RCU read lock. */
void vmi_fill_range(struct mm_struct *mm, unsigned long start, unsigned long count)
{
	unsigned long piece;
	pmd_t *pmd;

	for (start &= PAGE_MASK; count && loaded(mm); start += piece * PAGE_SIZE, count -= piece) {
		piece = min(count, PTRS_PER_PTE - pte_index(start));
		pmd = mm_find_pmd(mm, start);
		if (pmd && pmd_present(*pmd) && !pmd_leaf(*pmd))
			vmi.mmu_fill(start, (const u64 *)pte_offset_kernel(pmd, start), piece);
	}
}

/* Neighbouring pages of which the next faults take one each. */
struct reserve {
	struct page *next;
	unsigned int count;
	unsigned int pause;	/* pages until the next attempt: memory is fragmented */
};

static DEFINE_PER_CPU(struct reserve[2], reserves);

/* Of the pieces for files. A small machine has small ones. */
static unsigned int file_order __ro_after_init = VMI_RESERVE_ORDER;

static bool takes_last(enum prefault_page use)
{
	return use == PREFAULT_STACK || use == PREFAULT_EXEC;
}

static struct page *reserve_take(enum prefault_page use)
{
	struct reserve *r = &get_cpu_var(reserves)[use == PREFAULT_FILE];
	struct page *page = NULL;

	/* Starts a new piece, so that all pages that exec prepares are neighbours. */
	if (use == PREFAULT_EXEC && r->count < VMI_EXEC_PAGES)
		while (r->count) {
			r->count--;
			__free_page(r->next++);
		}
	if (r->count) {
		r->count--;
		page = takes_last(use) ? r->next + r->count : r->next++;
	}
	put_cpu_var(reserves);
	return page;
}

/* Keeps pages, or frees them if the reserve is not empty. */
static void reserve_put(enum prefault_page use, struct page *page, unsigned int count)
{
	struct reserve *r = &get_cpu_var(reserves)[use == PREFAULT_FILE];

	if (!r->count) {
		r->next = page;
		r->count = count;
		count = 0;
	}
	put_cpu_var(reserves);
	while (count--)
		__free_page(page++);
}

/* Whether to try to allocate another piece. @found says whether the last attempt succeeded. */
static bool reserve_hope(enum prefault_page use, bool found)
{
	struct reserve *r = &get_cpu_var(reserves)[use == PREFAULT_FILE];
	bool hope = !r->pause;

	if (!found)
		r->pause = VMI_RESERVE_PAUSE;
	else if (r->pause)
		r->pause--;
	put_cpu_var(reserves);
	return hope;
}

/*
 * Allocates the next piece. The pieces of files are larger, so there may be small ones only. Never
 * reclaims memory: neighbouring pages are not worth that.
 */
static struct page *piece_alloc(enum prefault_page use, unsigned int *order)
{
	const gfp_t gfp = (GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) | __GFP_NOWARN;
	struct page *page;

	if (use == PREFAULT_FILE && file_order > VMI_RESERVE_ORDER) {
		*order = file_order;
		page = alloc_pages(gfp, *order);
		if (page)
			return page;
	}
	*order = VMI_RESERVE_ORDER;
	return alloc_pages(gfp, *order);
}

struct folio *vmi_next_page(enum prefault_page use)
{
	unsigned int order, last;
	struct page *page;

	if (!vmi_neighbours)
		return NULL;
	page = reserve_take(use);
	if (page)
		return page_folio(page);
	if (!reserve_hope(use, true))
		return NULL;
	page = piece_alloc(use, &order);
	if (!page) {
		reserve_hope(use, false);
		return NULL;
	}
	split_page(page, order);
	last = (1U << order) - 1;
	if (takes_last(use)) {
		reserve_put(use, page, last);
		page += last;
	} else {
		reserve_put(use, page + 1, last);
	}
	return page_folio(page);
}

/* The layer offers VMI_MMU_FILL_REPLACES. */
static bool fill_replaces __ro_after_init;

bool vmi_fill_replaces(struct vm_area_struct *vma)
{
	return fill_replaces && loaded(vma->vm_mm);
}

#ifdef CONFIG_TRANSPARENT_HUGEPAGE
static unsigned long huge_flags __initdata;

static int __init vmi_note_huge_flags(void)
{
	huge_flags = transparent_hugepage_flags;
	return 0;
}
arch_initcall(vmi_note_huge_flags);

/*
 * Where translations of neighbours are cheap, anonymous memory comes in folios, unless the command
 * line says otherwise (thp_anon=, transparent_hugepage=never). This holds even on a machine with so
 * little memory that Linux turns off huge pages of 2 MiB. Shared memory does only if it has not.
 */
static int __init vmi_default_folios(void)
{
	const unsigned long enabled = BIT(TRANSPARENT_HUGEPAGE_FLAG) |
				      BIT(TRANSPARENT_HUGEPAGE_REQ_MADV_FLAG);

	if (vmi_costs.run_pages < VMI_USEFUL_RUN || !(huge_flags & enabled))
		return 0;
	if (huge_anon_orders_inherit == BIT(PMD_ORDER) && !huge_anon_orders_always &&
	    !huge_anon_orders_madvise)
		huge_anon_orders_always = VMI_ANON_ORDERS;
	if (IS_ENABLED(CONFIG_SHMEM) && transparent_hugepage_flags & enabled)
		shmem_default_orders(VMI_SHARED_ORDERS);
	return 0;
}
fs_initcall(vmi_default_folios);
#endif

static int __init vmi_fill_init(void)
{
	unsigned long share;

	if (!vmi_low)
		return 0;
	fill_replaces = vmi_layer_features(VMI_SECTION_MMU) & VMI_MMU_FILL_REPLACES;
	if (vmi_costs.page_fault >= VMI_COSTLY_FAULT)
		fault_around_pages = VMI_FAULT_AROUND_PAGES;
	share = totalram_pages() / VMI_FILE_SHARE / num_possible_cpus();
	if (share >= 1UL << VMI_RESERVE_ORDER)
		file_order = min_t(unsigned int, ilog2(share), VMI_FILE_ORDER);
	return 0;
}
core_initcall(vmi_fill_init);
