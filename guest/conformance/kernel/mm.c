// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The allocator uses the largest free range of RAM. It takes small pages from
 * the start of the range and 2 MiB pages from its end. Freed pages go to lists.
 */
#include "mm.h"
#include "lock.h"
#include "panic.h"

static struct spinlock lock;
static u64 next, end;			/* the part that was never allocated */
static u64 free_pages, free_large;	/* lists, linked through the first word */
static u64 in_use;

static void consider(u64 from, u64 to)
{
	from = ALIGN_UP(from, PAGE_SIZE);
	to = ALIGN_DOWN(to, PAGE_SIZE);
	if (to > from && to - from > end - next) {
		next = from;
		end = to;
	}
}

void mm_init(void)
{
	const struct vmi_boot_info *info = &machine.info;
	u64 image = info->image_gpa, image_to = image + info->image_size;
	u32 i;

	for (i = 0; i < info->mem_count; i++) {
		u64 from = info->mem[i].gpa, to = from + info->mem[i].size;

		if (info->mem[i].kind != VMI_MEM_RAM)
			continue;
		to = MIN(to, info->direct_map_size);
		/* Below 2 MiB are the boot code's tables and the firmware's data. */
		from = MAX(from, 2 * MIB);
		if (info->initrd_size)
			to = MIN(to, MAX(from, info->initrd_gpa));
		if (from < image_to && to > image) {
			consider(from, image);
			consider(image_to, to);
		} else {
			consider(from, to);
		}
	}
	if (end - next < 16 * MIB)
		panic("too little memory: %llu KiB", (end - next) / KIB);
}

static u64 pop(u64 *list)
{
	u64 gpa = *list;

	if (gpa)
		*list = *(u64 *)to_linear(gpa);
	return gpa;
}

static void push(u64 *list, u64 gpa)
{
	*(u64 *)to_linear(gpa) = *list;
	*list = gpa;
}

u64 alloc_page(void)
{
	u64 gpa;

	spin_lock(&lock);
	gpa = pop(&free_pages);
	if (!gpa && next < end) {
		gpa = next;
		next += PAGE_SIZE;
	}
	in_use++;
	spin_unlock(&lock);
	if (!gpa)
		panic("out of memory");
	memset(to_linear(gpa), 0, PAGE_SIZE);
	return gpa;
}

void free_page(u64 gpa)
{
	spin_lock(&lock);
	push(&free_pages, gpa);
	in_use--;
	spin_unlock(&lock);
}

u64 alloc_large_page(void)
{
	u64 gpa;

	spin_lock(&lock);
	gpa = pop(&free_large);
	if (!gpa) {
		end = ALIGN_DOWN(end, LARGE_SIZE);
		if (end - next >= LARGE_SIZE)
			gpa = end -= LARGE_SIZE;
	}
	in_use += LARGE_SIZE / PAGE_SIZE;
	spin_unlock(&lock);
	if (!gpa)
		panic("out of large pages");
	return gpa;
}

void free_large_page(u64 gpa)
{
	spin_lock(&lock);
	push(&free_large, gpa);
	in_use -= LARGE_SIZE / PAGE_SIZE;
	spin_unlock(&lock);
}

void *alloc_contiguous(u64 size)
{
	u64 gpa;

	size = ALIGN_UP(size, PAGE_SIZE);
	spin_lock(&lock);
	gpa = next;
	next += size;
	spin_unlock(&lock);
	if (gpa + size > end)
		panic("out of memory");
	return memset(to_linear(gpa), 0, size);
}

u64 pages_in_use(void)
{
	return in_use;
}
