// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stubs of one address space lie in special mappings near its text, at most 2 GiB away. A stub is
 * not freed while the process lives, because a thread may be executing it.
 */
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/slab.h>
#include "stubs.h"

/* The longest jump to a stub, below the 2 GiB that the instruction allows. */
#define REACH (SZ_2G - SZ_1M)
/* An area is placed this near, so that the rest of the file is within reach, too. */
#define NEAR (SZ_1G + SZ_512M)

static struct area *area_at(struct mm_struct *mm, unsigned long start)
{
	struct vmi_sites *sites = mm->context.vmi.sites;
	unsigned int i;

	for (i = 0; sites && i < sites->areas; i++)
		if (sites->area[i]->start == start)
			return sites->area[i];
	return NULL;
}

static vm_fault_t area_fault(const struct vm_special_mapping *sm, struct vm_area_struct *vma,
			     struct vm_fault *vmf)
{
	/* The fault handler holds the mmap lock, at least for reading. */
	struct area *area = area_at(vma->vm_mm, vma->vm_start);

	if (!area || vmf->pgoff >= area->count)
		return VM_FAULT_SIGBUS;
	vmf->page = area->pages[vmf->pgoff];
	get_page(vmf->page);
	return 0;
}

static int area_mremap(const struct vm_special_mapping *sm, struct vm_area_struct *vma)
{
	return -EINVAL;
}

static const struct vm_special_mapping area_mapping = {
	.name = "[syscalls]",
	.fault = area_fault,
	.mremap = area_mremap,
};

bool stub_area_is(const struct vm_area_struct *vma)
{
	return vma_is_special_mapping(vma, &area_mapping);
}

static bool area_there(struct mm_struct *mm, const struct area *area)
{
	struct vm_area_struct *vma = vma_lookup(mm, area->start);

	return vma && stub_area_is(vma) && vma->vm_start == area->start &&
	       vma->vm_end == area->start + AREA_SIZE;
}

static bool reaches(unsigned long from, unsigned long to)
{
	return from - to + REACH < 2 * REACH;
}

static unsigned long free_range(unsigned long low, unsigned long high)
{
	struct vm_unmapped_area_info info = {
		.flags = VM_UNMAPPED_AREA_TOPDOWN,
		.length = AREA_SIZE,
		.low_limit = max(low, (unsigned long)SZ_64K),
		.high_limit = min(high, TASK_SIZE_MAX),
		.align_mask = AREA_SIZE - 1,
	};
	unsigned long address;

	if (info.low_limit + AREA_SIZE > info.high_limit)
		return 0;
	address = vm_unmapped_area(&info);
	return IS_ERR_VALUE(address) ? 0 : address;
}

/*
 * Below the text if possible, because neither the heap nor the stack grows there; else above it.
 * Never across the hole that holds the kernel's image.
 */
static unsigned long area_place(const struct vm_area_struct *vma)
{
	unsigned long low = vma->vm_start > NEAR ? vma->vm_start - NEAR : 0;
	unsigned long high = vma->vm_end + NEAR, address;
	unsigned long hole = kernel_hole_start, hole_end = kernel_hole_start + kernel_hole_size;

	if (kernel_hole_size && vma->vm_start < hole)
		high = min(high, hole);
	else if (kernel_hole_size && low < hole_end)
		low = hole_end;
	address = free_range(low, vma->vm_start);
	return address ? address : free_range(vma->vm_end, high);
}

static struct area *area_new(struct mm_struct *mm, struct vmi_sites *sites,
			     struct vm_area_struct *text)
{
	unsigned long start = area_place(text);
	struct vm_area_struct *vma;
	struct area *area;

	if (!start || sites->areas == AREAS_MAX)
		return NULL;
	area = kzalloc(sizeof(*area), GFP_KERNEL_ACCOUNT);
	if (!area)
		return NULL;
	area->start = start;
	/* VM_MIXEDMAP: fork copies the page-table entries. */
	vma = _install_special_mapping(mm, start, AREA_SIZE,
				       VM_READ | VM_EXEC | VM_MAYREAD | VM_MAYEXEC | VM_MIXEDMAP,
				       &area_mapping);
	if (IS_ERR(vma)) {
		kfree(area);
		return NULL;
	}
	sites->first_own[sites->areas] = 0;
	sites->area[sites->areas++] = area;
	return area;
}

/* Takes a stub in this area, in a page of this address space alone or in a new page. */
static int area_claim(struct area *area, unsigned int first_own, struct vmi_syscall_site *site)
{
	unsigned int n;
	struct page *page;
	int result;

	for (n = first_own; n < AREA_PAGES; n++) {
		if (n == area->count) {
			page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
			if (!page)
				return -ENOMEM;
			area->pages[n] = page;
			area->layer[n] = (struct vmi_patch_area) {
				.user = area->start + n * PAGE_SIZE,
				.kernel = (u64)page_address(page),
				.size = PAGE_SIZE,
			};
			area->count++;
		}
		result = vmi.patch_claim(&area->layer[n], site);
		if (!result)
			return 0;
		if (result != -VMI_ENOSPC)
			return -EINVAL;
	}
	return -ENOSPC;
}

int stub_claim(struct mm_struct *mm, struct vmi_sites *sites, struct vm_area_struct *text,
	       struct vmi_syscall_site *site)
{
	struct area *area;
	unsigned int i;
	int result;

	for (i = 0; i < sites->areas; i++) {
		area = sites->area[i];
		if (area->gone || !reaches(area->start, site->addr))
			continue;
		/* The program may have unmapped or moved the area. */
		if (!area_there(mm, area)) {
			area->gone = true;
			continue;
		}
		result = area_claim(area, sites->first_own[i], site);
		if (result != -ENOSPC)
			return result;
	}
	area = area_new(mm, sites, text);
	if (!area || !reaches(area->start, site->addr))
		return -ENOSPC;
	return area_claim(area, 0, site);
}
