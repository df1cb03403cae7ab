// SPDX-License-Identifier: GPL-2.0-only
/*
 * What exec prepares. A new program uses most of it, and each fault that it would take costs more
 * than all of the preparation.
 */
#include <linux/prefault.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/pagemap.h>
#include <asm/mmu_context.h>
#include <asm/vmi.h>
#include <asm/vmi_cost.h>
#include "vmi.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

bool vmi_exec_fills __read_mostly;
module_param_named(exec_fill, vmi_exec_fills, bool, 0644);
MODULE_PARM_DESC(exec_fill, "exec prepares the text and stack of a program");

bool vmi_exec_expects __read_mostly;
module_param_named(exec_expect, vmi_exec_expects, bool, 0644);
MODULE_PARM_DESC(exec_expect, "exec tells the layer which program it starts");

#define STACK_BELOW (VMI_STACK_BELOW_PAGES * PAGE_SIZE)

/* Populates the stack from its top down, the order in which fault_page() hands out its pages. */
void vmi_stack_populate(unsigned long sp)
{
	unsigned long start = (sp & PAGE_MASK) - STACK_BELOW, addr;
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;

	if (!vmi_exec_fills)
		return;
	mmap_read_lock(mm);
	vma = vma_lookup(mm, start);
	if (vma) {
		addr = min(vma->vm_end, start + STACK_BELOW + 2 * PAGE_SIZE);
		for (; addr > start; addr -= PAGE_SIZE)
			if (get_user_pages(addr - PAGE_SIZE, 1, FOLL_WRITE, NULL) != 1)
				break;
		vmi_fill_range(mm, start, STACK_BELOW / PAGE_SIZE + 2);
	}
	mmap_read_unlock(mm);
}

/*
 * Enters what the page cache has of a file around an address into the page table, if anything. Does
 * not wait for I/O. The read fault enters its whole window.
 */
static bool enter_cached(struct vm_area_struct *vma, unsigned long addr)
{
	struct folio *folio;
	bool there;

	if (!vma->vm_file || vma->vm_flags & (VM_WRITE | VM_HUGETLB))
		return false;
	folio = filemap_get_folio(vma->vm_file->f_mapping, linear_page_index(vma, addr));
	if (IS_ERR(folio))
		return false;
	there = folio_test_uptodate(folio);
	folio_put(folio);
	return there && get_user_pages(addr, 1, FOLL_NOWAIT, NULL) == 1;
}

/*
 * The window of a read fault: from a multiple of its size, or from the beginning of the mapping, to
 * the end of a page table at most.
 */
static unsigned long window_start(const struct vm_area_struct *vma, unsigned long addr)
{
	return max(ALIGN_DOWN(addr, VMI_FAULT_AROUND_PAGES * PAGE_SIZE), vma->vm_start);
}

static unsigned long window_end(const struct vm_area_struct *vma, unsigned long addr)
{
	unsigned long start = window_start(vma, addr);

	return min3(start + VMI_FAULT_AROUND_PAGES * PAGE_SIZE, ALIGN(start + 1, PMD_SIZE),
		    vma->vm_end);
}

/* Maps what the page cache has of a file around an address. */
static void fill_window(struct vm_area_struct *vma, unsigned long addr)
{
	unsigned long start;

	if (!vma || !enter_cached(vma, addr))
		return;
	start = window_start(vma, addr);
	vmi_fill_range(vma->vm_mm, start, (window_end(vma, addr) - start) >> PAGE_SHIFT);
}

/* Maps what the page cache has of a mapping of a file. A run may be longer than a window. */
static void fill_mapping(struct vm_area_struct *vma)
{
	bool entered = false;
	unsigned long addr;

	for (addr = vma->vm_start; addr < vma->vm_end; addr = window_end(vma, addr))
		entered |= enter_cached(vma, addr);
	if (entered)
		vmi_fill_range(vma->vm_mm, vma->vm_start, vma_pages(vma));
}

/*
 * Maps the text at addr, all of it if it is small, and what lies next to it: mostly mappings of the
 * same file, with headers and tables that are read.
 */
static void fill_text(struct mm_struct *mm, unsigned long addr, unsigned long most)
{
	struct vm_area_struct *vma = vma_lookup(mm, addr);

	if (!vma || vma->vm_end - vma->vm_start > most)
		return;
	if (vma_pages(vma) <= VMI_SMALL_TEXT_PAGES)
		fill_mapping(vma);
	else
		fill_window(vma, addr);
	fill_window(vma_lookup(mm, vma->vm_start - 1), vma->vm_start - 1);
	fill_window(vma_lookup(mm, vma->vm_end), vma->vm_end);
}

static void fill_program(struct mm_struct *mm, unsigned long ip)
{
	unsigned long vdso = (unsigned long)mm->context.vdso;

	mmap_read_lock(mm);
	fill_text(mm, ip, ULONG_MAX);
	/* ip is in the dynamic linker: the program itself, too. */
	if (vma_lookup(mm, ip) != vma_lookup(mm, mm->start_code))
		fill_text(mm, mm->start_code, VMI_SMALL_TEXT_PAGES * PAGE_SIZE);
	if (vdso && get_user_pages(vdso, 1, 0, NULL) == 1)
		vmi_fill_range(mm, vdso, 1);
	mmap_read_unlock(mm);
}

/*
 * Takes the pages of a small anonymous mapping from the budget of the process. Returns whether it
 * has as many.
 */
bool vmi_take_anon_pages(struct mm_struct *mm, unsigned long pages)
{
	unsigned short *count = &mm->context.vmi.anon_pages;

	if (*count + pages > VMI_POPULATE_ANON_PAGES)
		return false;
	*count += pages;
	return true;
}

/*
 * The dynamic linker maps the data of a library last. What lies before it is the rest of the
 * library: tables, text, and headers.
 */
static void fill_library(struct mm_struct *mm, const struct vm_area_struct *data)
{
	unsigned short *count = &mm->context.vmi.library_pages;
	const struct vm_area_struct *above = data;
	struct vm_area_struct *vma;
	unsigned long pages;

	while ((vma = vma_lookup(mm, above->vm_start - 1)) && vma->vm_file &&
	       !(vma->vm_flags & (VM_WRITE | VM_SHARED))) {
		pages = vma_pages(vma);
		if (pages > VMI_SMALL_TEXT_PAGES || READ_ONCE(*count) + pages > VMI_LIBRARY_PAGES)
			return;
		WRITE_ONCE(*count, *count + pages);
		fill_mapping(vma);
		above = vma;
	}
}

/* Pages of the current process have been populated. The mmap lock is held, at least for reading. */
void vmi_populated(struct mm_struct *mm, unsigned long start, unsigned long count)
{
	const struct vm_area_struct *vma;

	vmi_fill_range(mm, start, count);
	if (!vmi_exec_fills || mm != current->mm || current->in_execve)
		return;
	vma = vma_lookup(mm, start);
	if (vma && vma->vm_file && (vma->vm_flags & (VM_WRITE | VM_SHARED)) == VM_WRITE)
		fill_library(mm, vma);
}

/* Called at the end of exec. */
void vmi_exec_fill(unsigned long ip)
{
	struct mm_struct *mm = current->mm;

	if (vmi_exec_fills)
		fill_program(mm, ip);
	/*
	 * The tables now hold what vmi_expect_program() promised: user mode can be entered
	 * directly.
	 */
	if (vmi.mmu_expect_space && mm->start_code < VMI_EXPECT_END)
		vmi.mmu_flush_tlb(VMI_FLUSH_USER);
}

/*
 * Called by exec before the new mm is loaded for the first time. Passes the layer an exec hint: the
 * layer may still have the mappings of an earlier process with the same program. They are no danger
 * to the kernel, which reads nothing of a program that has not begun but its stack, far above
 * VMI_EXPECT_END.
 */
void vmi_expect_program(struct mm_struct *mm)
{
	const struct file *file;
	u64 hint = 0;

	/* After fork, unlike after exec, the tables are complete when the mm is loaded. */
	if (mm != current->mm || !vmi_exec_expects)
		return;
	rcu_read_lock();
	file = rcu_dereference(mm->exe_file);
	if (file)
		hint = (unsigned long)file_inode(file);
	rcu_read_unlock();
	if (hint)
		vmi.mmu_expect_space(__pa(mm->pgd), hint);
}
