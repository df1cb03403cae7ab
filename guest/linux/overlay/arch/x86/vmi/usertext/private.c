// SPDX-License-Identifier: GPL-2.0-only
/*
 * Replaced system-call sites in a process's own copy of its text.
 *
 * The copy is of a private page of a file that nothing has written to. It is charged to the
 * process, inherited over fork and dropped by exec. Only one instruction before the syscall
 * instruction changes (shape.c). So another thread never finds half of a change, a restarted system
 * call executes the original syscall instruction, and the return address is the original one.
 */
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <asm/mmu_context.h>
#include <asm/vmi.h>
#include "private.h"
#include "stubs.h"
#include "write.h"

#define SITES_MAX 4096

static void sites_free(struct vmi_sites *sites)
{
	unsigned int i, n;

	for (i = 0; i < sites->areas; i++) {
		for (n = 0; n < sites->area[i]->count; n++)
			put_page(sites->area[i]->pages[n]);
		kfree(sites->area[i]);
	}
	kvfree(sites->site);
	kfree(sites);
}

static void sites_drop(struct vmi_sites *sites)
{
	if (refcount_dec_and_test(&sites->count))
		sites_free(sites);
}

/* The last user of the address space has gone. */
void vmi_sites_exit(struct mm_struct *mm)
{
	sites_drop(mm->context.vmi.sites);
	mm->context.vmi.sites = NULL;
}

void vmi_sites_dup(struct mm_struct *old, struct mm_struct *mm)
{
	refcount_inc(&old->context.vmi.sites->count);
	mm->context.vmi.sites = old->context.vmi.sites;
}

static struct vmi_sites *sites_copy(const struct vmi_sites *from)
{
	struct vmi_sites *sites = kzalloc(sizeof(*sites), GFP_KERNEL_ACCOUNT);
	unsigned int i, n;

	if (!sites)
		return NULL;
	refcount_set(&sites->count, 1);
	sites->room = from->sites;
	sites->site = kvmalloc_array(from->sites + 1, sizeof(*sites->site), GFP_KERNEL_ACCOUNT);
	if (!sites->site)
		goto fail;
	memcpy(sites->site, from->site, from->sites * sizeof(*sites->site));
	sites->sites = from->sites;
	for (i = 0; i < from->areas; i++) {
		sites->area[i] = kmemdup(from->area[i], sizeof(*from->area[i]), GFP_KERNEL_ACCOUNT);
		if (!sites->area[i])
			goto fail;
		for (n = 0; n < from->area[i]->count; n++)
			get_page(from->area[i]->pages[n]);
		sites->first_own[i] = from->area[i]->count;
		sites->areas++;
	}
	return sites;
fail:
	sites_free(sites);
	return NULL;
}

/* Returns the sites of the address space, with the only reference, or NULL without memory. */
static struct vmi_sites *sites_own(struct mm_struct *mm)
{
	struct vmi_sites *sites = mm->context.vmi.sites, *own;

	if (sites && refcount_read(&sites->count) == 1)
		return sites;
	if (sites) {
		own = sites_copy(sites);
		if (own)
			sites_drop(sites);
	} else {
		own = kzalloc(sizeof(*own), GFP_KERNEL_ACCOUNT);
		if (own)
			refcount_set(&own->count, 1);
	}
	if (own)
		mm->context.vmi.sites = own;
	return own;
}

static struct site *site_new(struct vmi_sites *sites)
{
	unsigned int room = max(16U, sites->room * 2);
	struct site *more;

	if (sites->sites < sites->room)
		return &sites->site[sites->sites];
	if (sites->sites >= SITES_MAX)
		return NULL;
	more = kvmalloc_array(room, sizeof(*more), GFP_KERNEL_ACCOUNT);
	if (!more)
		return NULL;
	memcpy(more, sites->site, sites->sites * sizeof(*more));
	kvfree(sites->site);
	sites->site = more;
	sites->room = room;
	return &sites->site[sites->sites];
}

static bool in_place(const struct site *site, const u8 *page)
{
	return !memcmp(page + offset_in_page(site->start), site->new, site->length) &&
	       (!site->cave ||
		!memcmp(page + offset_in_page(site->cave), site->cave_new, JUMP_SIZE));
}

static bool was_in_place(const struct site *site, const u8 *page)
{
	const u8 *cave = page + offset_in_page(site->cave);

	return !memcmp(page + offset_in_page(site->start), site->code, site->back - site->start) &&
	       (!site->cave || !memcmp(cave, site->cave_old, JUMP_SIZE) ||
		!memcmp(cave, site->cave_new, JUMP_SIZE));
}

/*
 * The jump in the cave stays for good: a thread may be between the two jumps, and padding is not
 * executed otherwise.
 */
static int site_write(struct vm_area_struct *vma, const struct site *site, bool back)
{
	struct piece pieces[2] = {
		{ site->start, back ? site->old : site->new, site->length },
		{ site->cave, site->cave_new, JUMP_SIZE },
	};

	return text_write(vma, pieces, site->cave && !back ? 2 : 1);
}

/* Replaces a site whose shape is known. @page is a copy of the page that holds it. */
static enum outcome site_claim(struct vm_area_struct *vma, const u8 *page, unsigned long back,
			       const struct shape *shape)
{
	struct mm_struct *mm = vma->vm_mm;
	unsigned long base = (back - 2) & PAGE_MASK;
	unsigned int length = shape->syscall + 2 - shape->start;
	struct vmi_sites *sites = sites_own(mm);
	struct vmi_syscall_site layer = {
		.addr = base + shape->start,
		.length = length,
		.syscall_offset = length - 2,
		.flags = VMI_SITE_ENTRY,
	};
	struct site *site;
	int result;

	site = sites ? site_new(sites) : NULL;
	if (!site)
		return NO_MEMORY;
	memset(site, 0, sizeof(*site));
	memcpy(layer.code, page + shape->start, length);
	memcpy(site->code, page + shape->start, length);
	result = stub_claim(mm, sites, vma, &layer);
	if (result)
		return result == -ENOMEM ? NO_MEMORY : NO_STUB;
	site->back = back;
	site->start = layer.addr;
	site->stub = layer.slot;
	if (shape->cave) {
		site->cave = base + shape->cave;
		memcpy(site->cave_old, page + shape->cave, JUMP_SIZE);
		jump_to(site->cave_new, site->cave, site->stub);
		site->length = 2;
		site->new[0] = 0xeb;
		site->new[1] = site->cave - (site->start + 2);
	} else {
		site->length = JUMP_SIZE;
		jump_to(site->new, site->start, site->stub);
	}
	memcpy(site->old, page + shape->start, site->length);
	sites->sites++;
	return site_write(vma, site, false) ? BUSY : CLAIMED;
}

static enum outcome site_rewrite(struct vm_area_struct *vma, unsigned long back,
				 const struct pt_regs *regs, u8 *copy)
{
	struct mm_struct *mm = vma->vm_mm;
	struct vmi_sites *sites = mm->context.vmi.sites;
	unsigned long base = (back - 2) & PAGE_MASK;
	const struct site *known = NULL;
	bool ours = false, anonymous;
	struct shape shape;
	struct page *page;
	unsigned int i;

	if (get_user_pages_remote(mm, base, 1, FOLL_FORCE, &page, NULL) != 1)
		return BUSY;
	memcpy_from_page(copy, page, 0, PAGE_SIZE);
	anonymous = PageAnon(page);
	put_page(page);
	for (i = sites ? sites->sites : 0; i-- > 0;) {
		const struct site *site = &sites->site[i];

		if ((site->start & PAGE_MASK) != base)
			continue;
		if (in_place(site, copy)) {
			/* A restarted system call, or a jump to the syscall instruction. */
			if (site->back == back)
				return IN_PLACE;
			ours = true;
		} else if (site->back == back && was_in_place(site, copy)) {
			known = site;
		}
	}
	if (anonymous && !ours)
		return WRITTEN;
	if (known)
		return site_write(vma, known, false) ? BUSY : AGAIN;
	if (offset_in_page(back - 2) > PAGE_SIZE - 2)
		return NO_CAVE_OR_PAGE;
	if (!shape_find(copy, 0, offset_in_page(back - 2), regs, &shape))
		return NO_SHAPE;
	return site_claim(vma, copy, back, &shape);
}

enum outcome private_claim(struct vm_area_struct *vma, const struct pt_regs *regs)
{
	u8 *copy = (u8 *)__get_free_page(GFP_KERNEL);
	enum outcome outcome = copy ? site_rewrite(vma, regs->ip, regs, copy) : NO_MEMORY;

	free_page((unsigned long)copy);
	return outcome;
}

unsigned long private_leave_stub(const struct mm_struct *mm, unsigned long ip)
{
	const struct vmi_sites *sites = mm->context.vmi.sites;
	unsigned int i;

	for (i = 0; sites && i < sites->sites; i++) {
		const struct site *site = &sites->site[i];

		if (ip - site->stub < VMI_PATCH_SLOT_MAX)
			return site->start + min(ip - site->stub, site->back - 2 - site->start);
	}
	return ip;
}

/* Other code may lie at the place of a site by now. */
unsigned long private_leave_cave(const struct mm_struct *mm, unsigned long ip, const u8 *jump)
{
	const struct vmi_sites *sites = mm->context.vmi.sites;
	unsigned int i;

	for (i = 0; sites && i < sites->sites; i++) {
		const struct site *site = &sites->site[i];

		if (site->cave && ip == site->cave && !memcmp(site->cave_new, jump, JUMP_SIZE))
			return site->start;
	}
	return ip;
}

void private_put_back(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	struct vmi_sites *sites = mm->context.vmi.sites;
	struct vm_area_struct *vma;
	struct page *page;
	unsigned int i;
	bool there;
	u8 *at;

	for (i = 0; sites && i < sites->sites; i++) {
		const struct site *site = &sites->site[i];

		if (site->start < start || site->start >= end)
			continue;
		vma = vma_lookup(mm, site->start);
		if (!vma || !(vma->vm_flags & VM_MAYWRITE) || (vma->vm_flags & VM_SHARED))
			continue;
		if (get_user_pages_remote(mm, site->start & PAGE_MASK, 1, FOLL_FORCE, &page,
					  NULL) != 1)
			continue;
		at = kmap_local_page(page);
		there = PageAnon(page) && in_place(site, at);
		kunmap_local(at);
		put_page(page);
		if (there && !site_write(vma, site, true))
			sites_note(PUT_BACK);
	}
}
