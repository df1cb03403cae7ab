// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fewer faults: a layer's translation may cost several microseconds, a fault more, and a copied page a third of one. So the layer is told what
 * will be used (mmu.fill), faults do more at once, and fork copies what parent and child would both fault on.
 */
#include <linux/dear_faults.h>
#include <linux/huge_mm.h>
#include <linux/mm.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/userfaultfd_k.h>
#include <asm/mmu_context.h>
#include <asm/tlbflush.h>
#include <asm/vmi.h>
#include "../../../mm/internal.h"
#include "vmi.h"

/* A program's text and tables mostly fit, and a fault on what the page cache has costs little more for it. */
#define FILE_PAGES 128

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

/* The mmap lock is held, or nobody else has the mm. */
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

/* Pages for faults that follow each other, and for what is written to a file in memory. */
#define RESERVE_ORDER 4
struct reserve {
	struct page *next;
	unsigned int count;
};
static DEFINE_PER_CPU(struct reserve[2], reserves);

static struct page *reserve_take(bool file)
{
	struct reserve *r = &get_cpu_var(reserves)[file];
	struct page *page = NULL;

	if (r->count) {
		r->count--;
		page = r->next++;
	}
	put_cpu_var(reserves);
	return page;
}

/* Keeps pages, or gives them back where there are some already. */
static void reserve_put(bool file, struct page *page, unsigned int count)
{
	struct reserve *r = &get_cpu_var(reserves)[file];

	if (!r->count) {
		*r = (struct reserve){ page, count };
		count = 0;
	}
	put_cpu_var(reserves);
	while (count--)
		__free_page(page++);
}

struct folio *vmi_next_page(bool file)
{
	struct page *page = reserve_take(file);

	if (!page) {
		page = alloc_pages(GFP_HIGHUSER_MOVABLE | __GFP_NOWARN | __GFP_NORETRY, RESERVE_ORDER);
		if (!page)
			return NULL;
		split_page(page, RESERVE_ORDER);
		reserve_put(file, page + 1, (1 << RESERVE_ORDER) - 1);
	}
	return page_folio(page);
}

/* What a program has on its stack before it has done anything. */
#define STACK_BELOW (3 * PAGE_SIZE)

void vmi_stack_populate(unsigned long sp)
{
	mm_populate((sp & PAGE_MASK) - STACK_BELOW, STACK_BELOW + 2 * PAGE_SIZE);
}

/* The layer has VMI_MMU_FILL_REPLACES. */
static bool fill_replaces __ro_after_init;

bool vmi_fill_replaces(struct vm_area_struct *vma)
{
	return fill_replaces && loaded(vma->vm_mm);
}

/*
 * What fork has copied for a process that has not run yet, by the number of its address space. Two that share a place take it from each
 * other, and fill less, or nothing that harms.
 */
static struct hot {
	u64 context;
	unsigned int count;
	unsigned long address[13];
} hot_pages[32];
static DEFINE_SPINLOCK(hot_lock);

static struct hot *hot_of(const struct mm_struct *mm)
{
	return &hot_pages[mm->context.ctx_id % ARRAY_SIZE(hot_pages)];
}

/* Room for one more; the last place is the stack's. */
static bool hot_add(const struct mm_struct *mm, unsigned long addr, bool stack)
{
	struct hot *hot = hot_of(mm);
	bool added = true;

	spin_lock(&hot_lock);
	if (hot->context != mm->context.ctx_id) {
		hot->context = mm->context.ctx_id;
		hot->count = 0;
	}
	/* Fork asks twice, since the second time there is a page to copy to. */
	if (!hot->count || hot->address[hot->count - 1] != addr) {
		added = hot->count < ARRAY_SIZE(hot->address) - !stack;
		if (added)
			hot->address[hot->count++] = addr;
	}
	spin_unlock(&hot_lock);
	return added;
}

/*
 * Pages that a program has written since its last fork, if they are few, and the top of its stack: most probably both go on writing to them.
 * Shared, such a page costs a flush and a fault in the parent and another in the child; copied, a third of a microsecond. Not where other threads
 * could write to it meanwhile: they would find half of something in the child.
 */
bool vmi_fork_copies(struct vm_area_struct *dst, struct vm_area_struct *src, struct folio *folio,
		     unsigned long addr, pte_t pte, int *max_nr)
{
	struct mm_struct *mm = src->vm_mm;
	unsigned long stack;

	if (!is_cow_mapping(src->vm_flags) || !pte_write(pte) || !pte_dirty(pte) ||
	    !folio_test_anon(folio) || mm != current->mm || atomic_read(&mm->mm_users) != 1 ||
	    userfaultfd_wp(dst))
		return false;
	stack = current_pt_regs()->sp & PAGE_MASK;
	if (addr != stack && folio_test_large(folio)) {
		if (stack > addr && (stack - addr) >> PAGE_SHIFT < *max_nr)
			*max_nr = (stack - addr) >> PAGE_SHIFT;
		return false;
	}
	return hot_add(dst->vm_mm, addr, addr == stack);
}

/* A new process, before it sees user mode: what was copied for it, and where it goes on. */
void vmi_fork_fill(const struct pt_regs *regs)
{
	struct mm_struct *mm = current->mm;
	unsigned int i, count;
	struct hot hot;

	if (!mm || hot_of(mm)->context != mm->context.ctx_id)
		return;
	spin_lock(&hot_lock);
	hot = *hot_of(mm);
	hot_of(mm)->context = 0;
	spin_unlock(&hot_lock);
	if (hot.context != mm->context.ctx_id)
		return;
	for (i = 0; i < hot.count; i += count) {
		for (count = 1; i + count < hot.count; count++)
			if (hot.address[i + count] != hot.address[i] + count * PAGE_SIZE)
				break;
		vmi_fill_range(mm, hot.address[i], count);
	}
	vmi_fill_range(mm, regs->ip, 1);
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
