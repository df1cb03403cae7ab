// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fewer faults: a layer's translation may cost several microseconds, a fault more, and a copied page a third of one. So the layer is told what
 * will be used (mmu.fill), faults do more at once, and fork copies what parent and child would both fault on.
 */
#include <linux/dear_faults.h>
#include <linux/huge_mm.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/userfaultfd_k.h>
#include <asm/mmu_context.h>
#include <asm/tlbflush.h>
#include <asm/vmi.h>
#include "../../../mm/internal.h"
#include "vmi.h"

/* A program's text and tables mostly fit, and a fault on what the page cache has costs little more for it. */
#define FILE_PAGES 256

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

/* Pages for faults that follow each other, and for what is written to a file in memory: as many as exec makes ready, and some. */
#define RESERVE_ORDER 5
/* Of a small program: its arguments, stack, data, and first of the heap. */
#define EXEC_PAGES 20
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
	struct page *page = reserve_take(what);

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

/* What a program has on its stack before it has done anything. */
#define STACK_BELOW (3 * PAGE_SIZE)

/* From its top down, in which order it gets its pages (fault_page()). */
void vmi_stack_populate(unsigned long sp)
{
	unsigned long start = (sp & PAGE_MASK) - STACK_BELOW, addr;
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;

	mmap_read_lock(mm);
	vma = vma_lookup(mm, start);
	if (vma) {
		for (addr = min(vma->vm_end, start + STACK_BELOW + 2 * PAGE_SIZE); addr > start; addr -= PAGE_SIZE)
			if (get_user_pages(addr - PAGE_SIZE, 1, FOLL_WRITE, NULL) != 1)
				break;
		vmi_fill_range(mm, start, STACK_BELOW / PAGE_SIZE + 2);
	}
	mmap_read_unlock(mm);
}

/* What a file has in memory around an address, without waiting for anything: the read fault makes all ready that its window has. */
static void fill_cached(const struct vm_area_struct *vma, unsigned long addr)
{
	struct folio *folio;
	bool there;

	if (!vma || !vma->vm_file || vma->vm_flags & (VM_WRITE | VM_HUGETLB))
		return;
	folio = filemap_get_folio(vma->vm_file->f_mapping, linear_page_index(vma, addr));
	if (IS_ERR(folio))
		return;
	there = folio_test_uptodate(folio);
	folio_put(folio);
	if (there)
		get_user_pages(addr, 1, FOLL_NOWAIT, NULL);
}

/* The text at addr, and what lies next to it, of the same file most often: headers, and tables that are read. */
static void fill_text(struct mm_struct *mm, unsigned long addr, unsigned long most)
{
	const struct vm_area_struct *vma = vma_lookup(mm, addr);

	if (!vma || vma->vm_end - vma->vm_start > most)
		return;
	fill_cached(vma, addr);
	fill_cached(vma_lookup(mm, vma->vm_start - 1), vma->vm_start - 1);
	fill_cached(vma_lookup(mm, vma->vm_end), vma->vm_end);
}

/* exec, at its end: what the program uses first, without faults. */
void vmi_exec_fill(unsigned long ip)
{
	struct mm_struct *mm = current->mm;
	unsigned long vdso = (unsigned long)mm->context.vdso;

	mmap_read_lock(mm);
	fill_text(mm, ip, ULONG_MAX);
	/* Where ip is the dynamic linker's. */
	if (vma_lookup(mm, ip) != vma_lookup(mm, mm->start_code))
		fill_text(mm, mm->start_code, DEAR_FAULTS_TEXT);
	if (vdso && get_user_pages(vdso, 1, 0, NULL) == 1)
		vmi_fill_range(mm, vdso, 1);
	mmap_read_unlock(mm);
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
	unsigned int file_pages;	/* that entries were copied for, at most */
	unsigned int count;
	unsigned long address[21];
} hot_pages[32];
static DEFINE_SPINLOCK(hot_lock);

static struct hot *hot_of(const struct mm_struct *mm)
{
	return &hot_pages[mm->context.ctx_id % ARRAY_SIZE(hot_pages)];
}

/* The one of a process that is being made. Under the lock. */
static struct hot *hot_begin(const struct mm_struct *mm)
{
	struct hot *hot = hot_of(mm);

	if (hot->context != mm->context.ctx_id) {
		hot->context = mm->context.ctx_id;
		hot->file_pages = 0;
		hot->count = 0;
	}
	return hot;
}

/* Room for one more; the last place is the stack's. */
static bool hot_add(const struct mm_struct *mm, unsigned long addr, bool stack)
{
	bool added = true;
	struct hot *hot;

	spin_lock(&hot_lock);
	hot = hot_begin(mm);
	/* Fork asks twice, since the second time there is a page to copy to. */
	if (!hot->count || hot->address[hot->count - 1] != addr) {
		added = hot->count < ARRAY_SIZE(hot->address) - !stack;
		if (added)
			hot->address[hot->count++] = addr;
	}
	spin_unlock(&hot_lock);
	return added;
}

/* In all, of one process: what is copied is undone at exec or exit. */
#define FORK_FILE_PAGES 1024

static bool is_text(const struct vm_area_struct *vma)
{
	return vma && vma->vm_flags & VM_EXEC && vma->vm_file;
}

/* The layer keeps what parent and child have in common, if it is in the child's tables when that runs first. */
bool vmi_fork_copies_file(const struct vm_area_struct *dst, const struct vm_area_struct *src)
{
	unsigned int pages = (src->vm_end - src->vm_start) >> PAGE_SHIFT;
	struct hot *hot;
	bool copies;

	/* Next to it lie headers, and tables that are read. */
	if (!is_text(src) && !is_text(vma_lookup(src->vm_mm, src->vm_start - 1)) &&
	    !is_text(vma_lookup(src->vm_mm, src->vm_end)))
		return false;
	spin_lock(&hot_lock);
	hot = hot_begin(dst->vm_mm);
	copies = hot->file_pages + pages <= FORK_FILE_PAGES;
	if (copies)
		hot->file_pages += pages;
	spin_unlock(&hot_lock);
	return copies;
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

/* A new process, before anything of its memory is used: what was copied for it, and where it goes on. */
void vmi_fork_fill(void)
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
	/* Page tables are freed by RCU, if somebody else makes a large page of what is there. */
	rcu_read_lock();
	for (i = 0; i < hot.count; i += count) {
		for (count = 1; i + count < hot.count; count++)
			if (hot.address[i + count] != hot.address[i] + count * PAGE_SIZE)
				break;
		vmi_fill_range(mm, hot.address[i], count);
	}
	vmi_fill_range(mm, current_pt_regs()->ip, 1);
	rcu_read_unlock();
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
