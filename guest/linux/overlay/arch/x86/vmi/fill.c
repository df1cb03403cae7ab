// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fewer faults: a layer's translation may cost several microseconds, a fault more, and a copied page a third of one. So the layer is told what
 * will be used (mmu.fill), and faults do more at once.
 */
#include <linux/prefault.h>
#include <linux/huge_mm.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <asm/tlbflush.h>
#include <asm/vmi.h>
#include "../../../mm/internal.h"
#include "vmi.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

bool vmi_populate __read_mostly = true;
module_param_named(populate, vmi_populate, bool, 0644);
MODULE_PARM_DESC(populate, "small data and the beginning of a heap are populated");

static bool neighbours __read_mostly = true;
module_param_named(neighbours, neighbours, bool, 0644);
MODULE_PARM_DESC(neighbours, "pages of faults and of files are neighbours");

static bool loaded(const struct mm_struct *mm)
{
	return mm == this_cpu_read(cpu_tlbstate.loaded_mm);
}

/* A fault in a file's mapping that looks for what the page cache has: vmi_fill_around() fills when all of it is there. */
static bool in_fault_around(const struct vm_fault *vmf, const struct vm_area_struct *vma)
{
	return vmf && !vmf->page && vma->vm_ops && vma->vm_ops->map_pages;
}

/* Not a fault of the program's: vmi_fill_range() fills when all pages are there. What replaces another page must be filled (vmi_fill_replaces). */
static bool in_populate(const struct vm_fault *vmf)
{
	return vmf && !(vmf->flags & FAULT_FLAG_INTERRUPTIBLE) && pte_none(vmf->orig_pte);
}

/* What was just written, and the page that was asked for, will be used at once. */
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

/* All of one page table. The layer maps long pieces of neighbours; the page itself may be in none. */
void vmi_fill_around(struct vm_fault *vmf, unsigned long start, unsigned long count)
{
	pmd_t pmd = pmdp_get_lockless(vmf->pmd);
	const u64 *table;

	if (!loaded(vmf->vma->vm_mm) || !pmd_present(pmd) || pmd_leaf(pmd))
		return;
	table = (const u64 *)pmd_page_vaddr(pmd);
	vmi.mmu_fill(start, table + pte_index(start), count);
	vmi.mmu_fill(vmf->address & PAGE_MASK, table + pte_index(vmf->address), 1);
}

/* The mmap lock is held, or that of RCU. */
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

/* Pages for faults that follow each other, and for files that are read: as many as exec makes ready, and some. */
#define RESERVE_ORDER 5
/* Of a small program: its arguments, stack, data, and first of the heap. */
#define EXEC_PAGES 20
/* So many pages come one by one when memory is in pieces, before the next attempt. */
#define RESERVE_PAUSE 64
#define RESERVE_LAST ((1 << RESERVE_ORDER) - 1)

struct reserve {
	struct page *next;
	unsigned int count;
	unsigned int pause;	/* so many more are not tried: memory is in pieces */
};
static DEFINE_PER_CPU(struct reserve[2], reserves);

static bool takes_last(enum dear_faults_page what)
{
	return what == DEAR_FAULTS_STACK || what == DEAR_FAULTS_EXEC;
}

static struct page *reserve_take(enum dear_faults_page what)
{
	struct reserve *r = &get_cpu_var(reserves)[what == DEAR_FAULTS_FILE];
	struct page *page = NULL;

	/* What is left goes, so that all that exec makes ready lies in a row. */
	if (what == DEAR_FAULTS_EXEC && r->count < EXEC_PAGES)
		while (r->count) {
			r->count--;
			__free_page(r->next++);
		}
	if (r->count) {
		r->count--;
		page = takes_last(what) ? r->next + r->count : r->next++;
	}
	put_cpu_var(reserves);
	return page;
}

/* Keeps pages, or gives them back where there are some already. */
static void reserve_put(enum dear_faults_page what, struct page *page, unsigned int count)
{
	struct reserve *r = &get_cpu_var(reserves)[what == DEAR_FAULTS_FILE];

	if (!r->count) {
		r->next = page;
		r->count = count;
		count = 0;
	}
	put_cpu_var(reserves);
	while (count--)
		__free_page(page++);
}

/* Whether there is hope for another piece. found: as it was just now. */
static bool reserve_hope(enum dear_faults_page what, bool found)
{
	struct reserve *r = &get_cpu_var(reserves)[what == DEAR_FAULTS_FILE];
	bool hope = !r->pause;

	if (!found)
		r->pause = RESERVE_PAUSE;
	else if (r->pause)
		r->pause--;
	put_cpu_var(reserves);
	return hope;
}

/* Takes what is there: it is not worth reclaiming anything for. */
struct folio *vmi_next_page(enum dear_faults_page what)
{
	struct page *page;

	if (!neighbours)
		return NULL;
	page = reserve_take(what);
	if (page)
		return page_folio(page);
	if (!reserve_hope(what, true))
		return NULL;
	page = alloc_pages((GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) | __GFP_NOWARN, RESERVE_ORDER);
	if (!page) {
		reserve_hope(what, false);
		return NULL;
	}
	split_page(page, RESERVE_ORDER);
	if (takes_last(what)) {
		reserve_put(what, page, RESERVE_LAST);
		page += RESERVE_LAST;
	} else {
		reserve_put(what, page + 1, RESERVE_LAST);
	}
	return page_folio(page);
}

/* The layer has VMI_MMU_FILL_REPLACES. */
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
 * A translation costs the same for 64 KiB as for one page, so anonymous memory comes in such pieces where nobody has said
 * otherwise (thp_anon=, transparent_hugepage=never); also where there is so little memory that large pages of 2 MiB are off.
 */
static int __init vmi_default_folios(void)
{
	const unsigned long enabled = BIT(TRANSPARENT_HUGEPAGE_FLAG) |
				      BIT(TRANSPARENT_HUGEPAGE_REQ_MADV_FLAG);

	if (vmi_low && huge_flags & enabled && huge_anon_orders_inherit == BIT(PMD_ORDER) &&
	    !huge_anon_orders_always && !huge_anon_orders_madvise)
		huge_anon_orders_always = BIT(4) | BIT(3) | BIT(2);
	return 0;
}
fs_initcall(vmi_default_folios);
#endif

static int __init vmi_fill_init(void)
{
	if (!vmi_low)
		return 0;
	fill_replaces = vmi_layer_features(VMI_SECTION_MMU) & VMI_MMU_FILL_REPLACES;
	fault_around_pages = FILE_PAGES;
	return 0;
}
core_initcall(vmi_fill_init);
