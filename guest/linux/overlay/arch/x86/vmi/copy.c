// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copies ahead of a program that writes to one page of a private mapping after the other: a dynamic
 * linker that relocates a table, a run-time environment that does so to a heap which it has mapped,
 * a process that goes on with data which it shares with its parent or its child. Each first write
 * copies a page, and its fault costs as much as ten copies. So once two pages in a row were
 * written, a fault copies the next ones, too: as many as the row has, and no more than
 * VMI_COPY_AHEAD_PAGES. A row that ends has wasted as many copies as it has pages, at most.
 *
 * A page of a private mapping shows what others write to the file, up to the first write to it by
 * the program. A copy ahead would end that early, so a file that is open for writing is left alone.
 * POSIX leaves open what is seen of later changes.
 */
#include <linux/prefault.h>
#include <linux/highmem.h>
#include <linux/hugetlb.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mmu_notifier.h>
#include <linux/moduleparam.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/swap.h>
#include <linux/userfaultfd_k.h>
#include <asm/tlbflush.h>
#include <asm/vmi_cost.h>
#include "vmi.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

bool vmi_copy_ahead __read_mostly;
module_param_named(copy_ahead, vmi_copy_ahead, bool, 0644);
MODULE_PARM_DESC(copy_ahead, "copy the next pages of what a program writes page by page");

/* A page to copy. */
struct ahead_page {
	pte_t pte;		/* its entry, when it was looked at */
	struct page *from;	/* the page that was shown or is cached; a reference */
	bool locked;		/* without an entry: the lock keeps the page in the file */
	struct folio *to;
};

struct ahead {
	struct vm_area_struct *vma;
	unsigned long start;
	pmd_t *pmd;
	unsigned int count;
	struct ahead_page page[VMI_COPY_AHEAD_PAGES];
};

static bool may_be_written(const struct file *file)
{
	return file->f_mode & FMODE_WRITE || inode_is_open_for_write(file_inode(file)) ||
	       mapping_writably_mapped(file->f_mapping);
}

static unsigned long ahead_addr(const struct ahead *a, unsigned int i)
{
	return a->start + i * PAGE_SIZE;
}

/* Whether a write would copy this anonymous page. Others are the process's own. */
static bool is_shared(struct page *page)
{
	struct folio *folio = page_folio(page);

	return !PageAnonExclusive(page) && !folio_test_ksm(folio) &&
	       (folio_test_large(folio) || folio_mapcount(folio) > 1);
}

/* The page that an entry shows, and that a write would copy, or NULL. */
static struct page *shown_page(struct vm_area_struct *vma, unsigned long addr, pte_t pte)
{
	struct page *page;

	if (!pte_present(pte) || pte_write(pte) || pte_uffd_wp(pte))
		return NULL;
	page = vm_normal_page(vma, addr, pte);
	return page && (!PageAnon(page) || is_shared(page)) ? page : NULL;
}

/* Notes the entries, and the pages that they show. Ends at one that is of another kind. */
static bool look_at_entries(struct ahead *a)
{
	spinlock_t *lock;
	pte_t *pte = pte_offset_map_lock(a->vma->vm_mm, a->pmd, a->start, &lock);
	unsigned int i;

	if (!pte)
		return false;
	for (i = 0; i < a->count; i++) {
		struct ahead_page *p = &a->page[i];

		p->pte = ptep_get(pte + i);
		if (pte_none(p->pte) && a->vma->vm_file)
			continue;
		p->from = shown_page(a->vma, ahead_addr(a, i), p->pte);
		if (!p->from)
			break;
		get_page(p->from);
	}
	a->count = i;
	pte_unmap_unlock(pte, lock);
	return true;
}

/* The file's page for an address without an entry, locked; NULL if it is not cached or is busy. */
static struct page *cached_page(struct vm_area_struct *vma, unsigned long addr)
{
	struct address_space *mapping = vma->vm_file->f_mapping;
	pgoff_t index = linear_page_index(vma, addr);
	struct folio *folio = filemap_get_folio(mapping, index);

	if (IS_ERR(folio))
		return NULL;
	if (folio_trylock(folio)) {
		if (folio->mapping == mapping && folio_test_uptodate(folio) &&
		    index < DIV_ROUND_UP(i_size_read(mapping->host), PAGE_SIZE))
			return folio_file_page(folio, index);
		folio_unlock(folio);
	}
	folio_put(folio);
	return NULL;
}

/*
 * Neighbouring pages for the copies, so that one translation can cover them. Never reclaims memory:
 * the program may not need them.
 */
static void take_pages(struct ahead *a)
{
	struct mm_struct *mm = a->vma->vm_mm;
	unsigned int order = order_base_2(a->count), i;
	struct page *page = alloc_pages((GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) | __GFP_NOWARN,
					order);
	bool takes = true;

	if (!page) {
		a->count = 0;
		return;
	}
	split_page(page, order);
	for (i = 0; i < 1U << order; i++) {
		struct folio *folio = page_folio(page + i);

		takes = takes && i < a->count && !mem_cgroup_charge(folio, mm, GFP_NOWAIT);
		if (takes)
			a->page[i].to = folio;
		else
			folio_put(folio);
		if (!takes && i < a->count)
			a->count = i;
	}
}

static void copy_pages(struct ahead *a)
{
	unsigned int i;

	for (i = 0; i < a->count; i++) {
		struct ahead_page *p = &a->page[i];

		if (!p->from) {
			p->from = cached_page(a->vma, ahead_addr(a, i));
			p->locked = p->from;
		}
		if (!p->from || PageHWPoison(p->from) ||
		    copy_mc_user_highpage(folio_page(p->to, 0), p->from, ahead_addr(a, i), a->vma))
			break;
		__folio_mark_uptodate(p->to);
	}
	a->count = i;
}

/* One copy takes the place of a page. The page-table lock is held. */
static void put_copy(struct ahead *a, unsigned int i, pte_t *pte)
{
	struct vm_area_struct *vma = a->vma;
	struct ahead_page *p = &a->page[i];
	pte_t entry = mk_pte(folio_page(p->to, 0), vma->vm_page_prot);

	entry = maybe_mkwrite(pte_mkdirty(pte_sw_mkyoung(entry)), vma);
	inc_mm_counter(vma->vm_mm, MM_ANONPAGES);
	folio_add_new_anon_rmap(p->to, vma, ahead_addr(a, i), RMAP_EXCLUSIVE);
	folio_add_lru_vma(p->to, vma);
	set_pte_at(vma->vm_mm, ahead_addr(a, i), pte, entry);
	p->to = NULL;
	/* Only after the flush and the new entry may the old page look unused. */
	if (!p->locked) {
		dec_mm_counter(vma->vm_mm, mm_counter(page_folio(p->from)));
		folio_remove_rmap_pte(page_folio(p->from), p->from, vma);
		/* The old entry's reference. That of look_at_entries() is still there. */
		put_page(p->from);
	}
}

/*
 * Puts the copies in place, up to the first entry that has changed. What the entries showed is
 * flushed before a copy can be written to, and before its page can be used for something else.
 */
static void put_copies(struct ahead *a)
{
	struct mm_struct *mm = a->vma->vm_mm;
	struct mmu_notifier_range range;
	bool flush = false;
	spinlock_t *lock;
	unsigned int i;
	pte_t *pte;

	mmu_notifier_range_init(&range, MMU_NOTIFY_CLEAR, 0, mm, a->start,
				ahead_addr(a, a->count));
	mmu_notifier_invalidate_range_start(&range);
	pte = pte_offset_map_lock(mm, a->pmd, a->start, &lock);
	if (!pte) {
		a->count = 0;
		goto end;
	}
	for (i = 0; i < a->count && pte_same(ptep_get(pte + i), a->page[i].pte); i++) {
		if (a->page[i].locked)
			continue;
		ptep_get_and_clear(mm, ahead_addr(a, i), pte + i);
		flush = true;
	}
	a->count = i;
	if (flush)
		flush_tlb_range(a->vma, a->start, ahead_addr(a, i));
	for (i = 0; i < a->count; i++)
		put_copy(a, i, pte + i);
	if (a->count && mm == this_cpu_read(cpu_tlbstate.loaded_mm))
		vmi.mmu_fill(a->start, (const u64 *)pte, a->count);
	pte_unmap_unlock(pte, lock);
end:
	mmu_notifier_invalidate_range_end(&range);
}

/* Copies up to a number of pages of one page table. Returns how many it has copied. */
static unsigned int copy_from(struct vm_area_struct *vma, unsigned long start, unsigned int count)
{
	struct ahead a = {
		.vma = vma,
		.start = start,
		.pmd = mm_find_pmd(vma->vm_mm, start),
		.count = count,
	};
	unsigned int i;

	if (!a.pmd || !look_at_entries(&a))
		return 0;
	if (a.count)
		take_pages(&a);
	if (a.count)
		copy_pages(&a);
	if (a.count)
		put_copies(&a);
	/* Pages that were not copied have references, too. */
	for (i = 0; i < count; i++) {
		struct ahead_page *p = &a.page[i];

		if (p->to)
			folio_put(p->to);
		if (p->locked)
			unlock_page(p->from);
		if (p->from)
			put_page(p->from);
	}
	return a.count;
}

/*
 * The current process has written to a page, and had a fault. The mapping is one that
 * write_fault_done() has looked at, and its lock or the mmap lock is held. The row is a guess that
 * two threads may both change.
 */
void vmi_write_fault(struct vm_area_struct *vma, unsigned long addr)
{
	struct vmi_row *row = &vma->vm_mm->context.vmi.row;
	unsigned long next = (addr & PAGE_MASK) + PAGE_SIZE, end;
	unsigned int ahead = READ_ONCE(row->ahead);

	if (READ_ONCE(row->next) != next - PAGE_SIZE || !ahead) {
		WRITE_ONCE(row->ahead, 1);
		WRITE_ONCE(row->next, next);
		return;
	}
	ahead = min(2 * ahead, VMI_COPY_AHEAD_PAGES);
	end = min3(next + ahead * PAGE_SIZE, vma->vm_end, ALIGN(next, PMD_SIZE));
	/* The first copy has made the mapping ready for anonymous pages. */
	if (end > next && vma->anon_vma && !userfaultfd_armed(vma) &&
	    !(vma->vm_file && may_be_written(vma->vm_file)))
		next += copy_from(vma, next, (end - next) >> PAGE_SHIFT) * PAGE_SIZE;
	WRITE_ONCE(row->ahead, ahead);
	WRITE_ONCE(row->next, next);
}
