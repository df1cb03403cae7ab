/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Prefaulting on a layer of the VMI, where page faults are expensive (asm/vmi_cost.h): one fault
 * does more, exec and mmap populate small data, fork copies what parent and child would fault on,
 * and a row of writes copies ahead (arch/x86/vmi/fill.c, exec.c, fork.c, copy.c). Without
 * CONFIG_VMI_GUEST all of it compiles to nothing.
 */
#ifndef _LINUX_PREFAULT_H
#define _LINUX_PREFAULT_H

#include <linux/fs.h>
#include <linux/mm.h>

/* Pages around a read fault in a file that the fault maps, too. */
extern unsigned long fault_around_pages;

#ifdef CONFIG_VMI_GUEST

#include <asm/vmi_cost.h>

/* The parameters vmi.fork_copies, vmi.populate, vmi.neighbours and vmi.copy_ahead. */
extern bool vmi_fork_eager, vmi_populate, vmi_neighbours, vmi_copy_ahead;

bool vmi_fork_copies(struct vm_area_struct *dst, struct vm_area_struct *src, struct folio *folio,
		     unsigned long addr, pte_t pte, int *max_nr);
void vmi_fork_shared_write(struct mm_struct *mm, unsigned long addr);
bool vmi_fork_copies_file(const struct vm_area_struct *dst, const struct vm_area_struct *src);
void vmi_fork_fill(void);
bool vmi_fill_replaces(struct vm_area_struct *vma);
void vmi_fill_around(struct vm_fault *vmf, unsigned long start, unsigned long count);
void vmi_write_fault(struct vm_area_struct *vma, unsigned long addr);
void vmi_fill_range(struct mm_struct *mm, unsigned long start, unsigned long count);

/* The use of a new page. */
enum prefault_page {
	PREFAULT_PAGE,
	PREFAULT_STACK,		/* grows downwards */
	PREFAULT_EXEC,		/* the first page of the stack that exec begins with */
	PREFAULT_FILE,
};

struct folio *vmi_next_page(enum prefault_page use);
void vmi_stack_populate(unsigned long sp);
bool vmi_take_anon_pages(struct mm_struct *mm, unsigned long pages);
void vmi_populated(struct mm_struct *mm, unsigned long start, unsigned long count);

/*
 * Whether fork copies a page of private memory now, instead of sharing it until one of the two
 * processes writes to it. @max_nr is the number of pages of the folio that may be shared in one go;
 * it is reduced if a later page is to be copied.
 */
static inline bool fork_copies(struct vm_area_struct *dst, struct vm_area_struct *src,
			       struct folio *folio, unsigned long addr, pte_t pte, int *max_nr)
{
	return cpu_feature_enabled(X86_FEATURE_VMI) && vmi_fork_eager &&
	       vmi_fork_copies(dst, src, folio, addr, pte, max_nr);
}

/* A write fault in private memory whose page may be shared since a fork. */
static inline void fork_shared_write(struct mm_struct *mm, unsigned long addr)
{
	if (!cpu_feature_enabled(X86_FEATURE_VMI))
		return;
	WRITE_ONCE(mm->context.vmi.row.shared, addr & PAGE_MASK);
	if (vmi_fork_eager)
		vmi_fork_shared_write(mm, addr);
}

/*
 * Whether fork leaves inherited entries young, so that the layer maps them with their neighbours.
 */
static inline bool fork_keeps_young(void)
{
	return cpu_feature_enabled(X86_FEATURE_VMI) && vmi_fork_eager;
}

/*
 * Whether update_mmu_cache() of a writable entry also flushes the old translation. The caller holds
 * the page-table lock until then.
 */
static inline bool update_replaces(struct vm_area_struct *vma)
{
	return cpu_feature_enabled(X86_FEATURE_VMI) && vmi_fill_replaces(vma);
}

/*
 * Whether fork copies the entries of a mapping of text, or of a mapping next to it in the file,
 * although the child could fault them in.
 */
static inline bool fork_copies_file(const struct vm_area_struct *dst,
				    const struct vm_area_struct *src)
{
	return cpu_feature_enabled(X86_FEATURE_VMI) && vmi_fork_eager && src->vm_file &&
	       !(src->vm_flags & (VM_WRITE | VM_SHARED | VM_HUGETLB)) &&
	       src->vm_end - src->vm_start < VMI_SMALL_TEXT_PAGES * PAGE_SIZE &&
	       vmi_fork_copies_file(dst, src);
}

/* A new task runs for the first time, before it uses any of its memory. */
static inline void fork_done(void)
{
	if (cpu_feature_enabled(X86_FEATURE_VMI))
		vmi_fork_fill();
}

/* A read fault has mapped the cached pages of a file from start on. */
static inline void fault_around_done(struct vm_fault *vmf, unsigned long start,
				     unsigned long count)
{
	if (cpu_feature_enabled(X86_FEATURE_VMI))
		vmi_fill_around(vmf, start, count);
}

/*
 * A fault has ended with this result. After a program's own write to a private mapping of a file,
 * or to a page that fork had shared, the next pages may be copied, too. The caller has not dropped
 * the lock with which the fault began, unless the result says so.
 */
static inline void write_fault_done(struct vm_area_struct *vma, unsigned long addr,
				    unsigned int flags, vm_fault_t result)
{
	const unsigned int own = FAULT_FLAG_USER | FAULT_FLAG_WRITE;
	const vm_flags_t kinds = VM_WRITE | VM_SHARED | VM_HUGETLB | VM_PFNMAP | VM_MIXEDMAP;

	if (cpu_feature_enabled(X86_FEATURE_VMI) && vmi_copy_ahead && (flags & own) == own &&
	    !(result & (VM_FAULT_ERROR | VM_FAULT_RETRY | VM_FAULT_COMPLETED)) &&
	    (vma->vm_file ||
	     READ_ONCE(vma->vm_mm->context.vmi.row.shared) == (addr & PAGE_MASK)) &&
	    (vma->vm_flags & kinds) == VM_WRITE && !vma_is_dax(vma))
		vmi_write_fault(vma, addr);
}

/* Pages of the current process have been populated from start on. The mmap lock is held. */
static inline void populate_done(struct mm_struct *mm, unsigned long start,
				 unsigned long count)
{
	if (cpu_feature_enabled(X86_FEATURE_VMI))
		vmi_populated(mm, start, count);
}

/*
 * Returns a page for a fault of one page, or NULL. If possible it lies next to the last one, below
 * it for new pages of a stack, so that one translation can cover both.
 */
static inline struct folio *fault_page(const struct vm_area_struct *vma, unsigned long addr,
				       bool new)
{
	if (!cpu_feature_enabled(X86_FEATURE_VMI))
		return NULL;
	if (!new || !(vma->vm_flags & VM_GROWSDOWN))
		return vmi_next_page(PREFAULT_PAGE);
	if ((vma->vm_flags & VM_STACK_INCOMPLETE_SETUP) == VM_STACK_INCOMPLETE_SETUP &&
	    PAGE_ALIGN_DOWN(addr) + PAGE_SIZE == vma->vm_end)
		return vmi_next_page(PREFAULT_EXEC);
	return vmi_next_page(PREFAULT_STACK);
}

/* The end of the part of a heap that is populated. */
static inline unsigned long heap_begun(const struct mm_struct *mm)
{
	return PAGE_ALIGN(mm->start_brk) + VMI_POPULATE_HEAP_PAGES * PAGE_SIZE;
}

/* Whether a fault is one of those that populate a small mapping, and none of a program. */
static inline bool populates_small(const struct vm_fault *vmf)
{
	return !(vmf->flags & FAULT_FLAG_INTERRUPTIBLE) &&
	       vma_pages(vmf->vma) <= VMI_POPULATE_ANON_PAGES;
}

/*
 * Whether a fault takes a single page and not a folio. The pages that exec prepares are neighbours,
 * and so are those that populate a small mapping, which folios of its parts would not be. fork
 * copies single pages of the beginning of the heap.
 */
static inline bool fault_single(const struct vm_fault *vmf)
{
	const struct mm_struct *mm = vmf->vma->vm_mm;

	return cpu_feature_enabled(X86_FEATURE_VMI) &&
	       ((vmi_neighbours && (current->in_execve || populates_small(vmf))) ||
		(vmi_fork_eager && vmf->address >= mm->start_brk &&
		 vmf->address < heap_begun(mm)));
}

/* As fault_page(), for a page of a file that programs may map. */
static inline struct folio *file_page(gfp_t gfp, unsigned int order)
{
	const gfp_t any = GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM & ~__GFP_FS & ~__GFP_IO;

	return cpu_feature_enabled(X86_FEATURE_VMI) && !order && (gfp & any) == any ?
	       vmi_next_page(PREFAULT_FILE) : NULL;
}

/* exec has moved the stack to its final place, with the arguments from sp on. */
static inline void exec_stack_done(unsigned long sp)
{
	if (cpu_feature_enabled(X86_FEATURE_VMI))
		vmi_stack_populate(sp);
}

/* Whether a new mapping of data is populated: it is private, writable and small. */
static inline bool maps_to_populate(vm_flags_t flags, unsigned long len)
{
	return cpu_feature_enabled(X86_FEATURE_VMI) && vmi_populate &&
	       len <= VMI_POPULATE_DATA_PAGES * PAGE_SIZE &&
	       (flags & (VM_WRITE | VM_SHARED)) == VM_WRITE;
}

/*
 * The same for a new mapping of a file, or of no file, in the current process. The mmap lock is
 * held for writing.
 */
static inline bool mmap_to_populate(const struct file *file, vm_flags_t flags, unsigned long len)
{
	return maps_to_populate(flags, len) &&
	       (file || (!(flags & (VM_NORESERVE | VM_GROWSDOWN)) &&
			 vmi_take_anon_pages(current->mm, len >> PAGE_SHIFT)));
}

/*
 * Whether brk populates the heap from start on, where it has grown. Sets *end to the end of that.
 */
static inline bool heap_to_populate(const struct mm_struct *mm, unsigned long start,
				    unsigned long *end)
{
	if (!cpu_feature_enabled(X86_FEATURE_VMI) || !vmi_populate)
		return false;
	if (*end - start > VMI_POPULATE_DATA_PAGES * PAGE_SIZE)
		*end = min(*end, heap_begun(mm));
	return *end > start;
}

#else

static inline bool fork_copies(struct vm_area_struct *dst, struct vm_area_struct *src,
			       struct folio *folio, unsigned long addr, pte_t pte, int *max_nr)
{
	return false;
}

static inline bool fork_keeps_young(void)
{
	return false;
}

static inline void fork_shared_write(struct mm_struct *mm, unsigned long addr)
{
}

static inline bool fork_copies_file(const struct vm_area_struct *dst,
				    const struct vm_area_struct *src)
{
	return false;
}

static inline void fork_done(void)
{
}

static inline bool update_replaces(struct vm_area_struct *vma)
{
	return false;
}

static inline void fault_around_done(struct vm_fault *vmf, unsigned long start,
				     unsigned long count)
{
}

static inline void write_fault_done(struct vm_area_struct *vma, unsigned long addr,
				    unsigned int flags, vm_fault_t result)
{
}

static inline void populate_done(struct mm_struct *mm, unsigned long start,
				 unsigned long count)
{
}

static inline struct folio *fault_page(const struct vm_area_struct *vma, unsigned long addr,
				       bool new)
{
	return NULL;
}

static inline bool fault_single(const struct vm_fault *vmf)
{
	return false;
}

static inline bool heap_to_populate(const struct mm_struct *mm, unsigned long start,
				    unsigned long *end)
{
	return false;
}

static inline struct folio *file_page(gfp_t gfp, unsigned int order)
{
	return NULL;
}

static inline void exec_stack_done(unsigned long sp)
{
}

static inline bool maps_to_populate(vm_flags_t flags, unsigned long len)
{
	return false;
}

static inline bool mmap_to_populate(const struct file *file, vm_flags_t flags, unsigned long len)
{
	return false;
}

#endif
#endif
