/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a page fault costs as much as copying ten pages: more is done at once in one fault, and at fork what would fault at once is
 * copied (arch/x86/vmi/fill.c, exec.c, fork.c). Elsewhere nothing of this is compiled in.
 */
#ifndef _LINUX_PREFAULT_H
#define _LINUX_PREFAULT_H

#include <linux/mm.h>

/* Pages that a read fault in a file maps around itself. */
extern unsigned long fault_around_pages;

#ifdef CONFIG_VMI_GUEST

/* Switches: vmi.fork_copies and vmi.populate. */
extern bool vmi_fork_eager, vmi_populate;

bool vmi_fork_copies(struct vm_area_struct *dst, struct vm_area_struct *src, struct folio *folio,
		     unsigned long addr, pte_t pte, int *max_nr);
bool vmi_fork_copies_file(const struct vm_area_struct *dst, const struct vm_area_struct *src);
void vmi_fork_fill(void);
bool vmi_fill_replaces(struct vm_area_struct *vma);
void vmi_fill_around(struct vm_fault *vmf, unsigned long start, unsigned long count);
void vmi_fill_range(struct mm_struct *mm, unsigned long start, unsigned long count);
/* For what a page is: anything; a stack, which grows downwards, or the first of those that exec begins with; a file. */
enum dear_faults_page { DEAR_FAULTS_PAGE, DEAR_FAULTS_STACK, DEAR_FAULTS_EXEC, DEAR_FAULTS_FILE };
struct folio *vmi_next_page(enum dear_faults_page what);
void vmi_stack_populate(unsigned long sp);

/* A program's data, private to it: as much is made ready when it is mapped. */
#define DEAR_FAULTS_DATA (16 * PAGE_SIZE)
/* The beginning of the heap is in use soon, in most programs no more than that. */
#define DEAR_FAULTS_HEAP (4 * PAGE_SIZE)
/* A program's or a library's text below this size is used by the child that its parent forks, too. */
#define DEAR_FAULTS_TEXT (512 * PAGE_SIZE)

/*
 * fork: whether a page of private memory is copied now, instead of shared until one of the two writes to it. max_nr: pages of a folio
 * that may be shared in one go; fewer if one behind it is to be copied.
 */
static inline bool fork_copies(struct vm_area_struct *dst, struct vm_area_struct *src,
			       struct folio *folio, unsigned long addr, pte_t pte, int *max_nr)
{
	return cpu_feature_enabled(X86_FEATURE_VMI) && vmi_fork_eager &&
	       vmi_fork_copies(dst, src, folio, addr, pte, max_nr);
}

/* An inherited entry is as good as used: it can be made ready with others. */
static inline bool fork_keeps_young(void)
{
	return cpu_feature_enabled(X86_FEATURE_VMI) && vmi_fork_eager;
}

/* update_mmu_cache() of a writable entry also ends the use of what was there before; the page table's lock is held till then. */
static inline bool update_replaces(struct vm_area_struct *vma)
{
	return cpu_feature_enabled(X86_FEATURE_VMI) && vmi_fill_replaces(vma);
}

/* fork: whether entries of text, or of what lies next to it in the file, are copied, too, which could be faulted in again. */
static inline bool fork_copies_file(const struct vm_area_struct *dst, const struct vm_area_struct *src)
{
	return cpu_feature_enabled(X86_FEATURE_VMI) && vmi_fork_eager && src->vm_file &&
	       !(src->vm_flags & (VM_WRITE | VM_SHARED | VM_HUGETLB)) &&
	       src->vm_end - src->vm_start < DEAR_FAULTS_TEXT && vmi_fork_copies_file(dst, src);
}

/* A new task, behind its first switch, before anything of its memory is used. */
static inline void fork_done(void)
{
	if (cpu_feature_enabled(X86_FEATURE_VMI))
		vmi_fork_fill();
}

/* A read fault has mapped what there is of the file from start on. */
static inline void fault_around_done(struct vm_fault *vmf, unsigned long start, unsigned long count)
{
	if (cpu_feature_enabled(X86_FEATURE_VMI))
		vmi_fill_around(vmf, start, count);
}

/* Pages of the current process have been faulted in from start on; the mmap lock is held. */
static inline void populate_done(struct mm_struct *mm, unsigned long start, unsigned long count)
{
	if (cpu_feature_enabled(X86_FEATURE_VMI))
		vmi_fill_range(mm, start, count);
}

/*
 * A page for a fault of one page, next to the last one if that can be had (below it for new pages of a stack): one translation may do for
 * both. Or NULL.
 */
static inline struct folio *fault_page(const struct vm_area_struct *vma, unsigned long addr, bool new)
{
	if (!cpu_feature_enabled(X86_FEATURE_VMI))
		return NULL;
	if (!new || !(vma->vm_flags & VM_GROWSDOWN))
		return vmi_next_page(DEAR_FAULTS_PAGE);
	return vmi_next_page((vma->vm_flags & VM_STACK_INCOMPLETE_SETUP) == VM_STACK_INCOMPLETE_SETUP &&
			     PAGE_ALIGN_DOWN(addr) + PAGE_SIZE == vma->vm_end ?
			     DEAR_FAULTS_EXEC : DEAR_FAULTS_STACK);
}

static inline unsigned long heap_begun(const struct mm_struct *mm)
{
	return PAGE_ALIGN(mm->start_brk) + DEAR_FAULTS_HEAP;
}

/*
 * What exec makes ready lies in a row, in single pages: its parts would not be next to each other as folios. So does the beginning of the heap, of
 * which fork copies single pages.
 */
static inline bool fault_single(const struct vm_area_struct *vma, unsigned long addr)
{
	return cpu_feature_enabled(X86_FEATURE_VMI) &&
	       (current->in_execve || (addr >= vma->vm_mm->start_brk && addr < heap_begun(vma->vm_mm)));
}

/* The same for a page of a file that programs may map. */
static inline struct folio *file_page(gfp_t gfp, unsigned int order)
{
	const gfp_t any = GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM & ~__GFP_FS & ~__GFP_IO;

	return cpu_feature_enabled(X86_FEATURE_VMI) && !order && (gfp & any) == any ?
	       vmi_next_page(DEAR_FAULTS_FILE) : NULL;
}

/* exec: the program's stack is where it will be, with the arguments from sp on. */
static inline void exec_stack_done(unsigned long sp)
{
	if (cpu_feature_enabled(X86_FEATURE_VMI))
		vmi_stack_populate(sp);
}

/* Whether a new private mapping is small enough, and will be written to: then it is populated. */
static inline bool maps_to_populate(vm_flags_t flags, unsigned long len)
{
	return cpu_feature_enabled(X86_FEATURE_VMI) && vmi_populate && len <= DEAR_FAULTS_DATA &&
	       (flags & (VM_WRITE | VM_SHARED)) == VM_WRITE;
}

/* brk: what of the heap that has grown is to be populated, up to *end. */
static inline bool heap_to_populate(const struct mm_struct *mm, unsigned long start, unsigned long *end)
{
	if (!cpu_feature_enabled(X86_FEATURE_VMI) || !vmi_populate)
		return false;
	if (*end - start > DEAR_FAULTS_DATA)
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

static inline bool fork_copies_file(const struct vm_area_struct *dst, const struct vm_area_struct *src)
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

static inline void fault_around_done(struct vm_fault *vmf, unsigned long start, unsigned long count)
{
}

static inline void populate_done(struct mm_struct *mm, unsigned long start, unsigned long count)
{
}

static inline struct folio *fault_page(const struct vm_area_struct *vma, unsigned long addr, bool new)
{
	return NULL;
}

static inline bool fault_single(const struct vm_area_struct *vma, unsigned long addr)
{
	return false;
}

static inline bool heap_to_populate(const struct mm_struct *mm, unsigned long start, unsigned long *end)
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

#endif
#endif
