// SPDX-License-Identifier: GPL-2.0-only
/* Writing to a process's own copy of its text, as a debugger's breakpoint does. */
#include <linux/highmem.h>
#include <linux/mm.h>
#include <asm/sync_core.h>
#include <asm/tlbflush.h>
#include <asm/vdso.h>
#include "write.h"

static bool is_vdso(const struct vm_area_struct *vma)
{
	const struct mm_struct *mm = vma->vm_mm;

	return mm->context.vdso && vma->vm_start == (unsigned long)mm->context.vdso;
}

bool text_is_private(const struct vm_area_struct *vma)
{
	const vm_flags_t want = VM_READ | VM_EXEC | VM_MAYWRITE;
	const vm_flags_t not = VM_WRITE | VM_SHARED | VM_HUGETLB;

	return (vma->vm_flags & (want | not)) == want && (vma->vm_file || is_vdso(vma));
}

static void put_bytes(struct page *page, const struct piece *pieces, unsigned int count)
{
	u8 *at = kmap_local_page(page);
	unsigned int i;

	for (i = 0; i < count; i++)
		memcpy(at + offset_in_page(pieces[i].address), pieces[i].bytes, pieces[i].length);
	kunmap_local(at);
}

/*
 * The page-table entry is cleared during the write, so no thread executes the page: a thread that
 * faults on it waits for the mmap lock, which the caller holds.
 */
int text_write(struct vm_area_struct *vma, const struct piece *pieces, unsigned int count)
{
	struct mm_struct *mm = vma->vm_mm;
	unsigned long address = pieces[0].address & PAGE_MASK;
	struct page *page;
	spinlock_t *ptl;
	pte_t *pte, entry;
	pmd_t *pmd;
	long got;
	int result = -EAGAIN;

	vma_start_write(vma);
	got = get_user_pages_remote(mm, address, 1, FOLL_WRITE | FOLL_FORCE, &page, NULL);
	if (got != 1)
		return got ? (int)got : -EFAULT;
	pmd = mm_find_pmd(mm, address);
	pte = pmd ? pte_offset_map_lock(mm, pmd, address, &ptl) : NULL;
	if (!pte)
		goto out;
	entry = ptep_get(pte);
	if (pte_present(entry) && pte_page(entry) == page) {
		entry = ptep_clear_flush(vma, address, pte);
		put_bytes(page, pieces, count);
		set_pte_at(mm, address, pte, entry);
		result = 0;
	}
	pte_unmap_unlock(pte, ptl);
	/* This CPU may have prefetched the old bytes. */
	sync_core();
out:
	put_page(page);
	return result;
}
