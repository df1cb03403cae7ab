// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process's own replaced system-call sites.
 *
 * What is rewritten is the process's own copy of a private page of a file that nobody has written to, as a
 * debugger's breakpoint would make it. The copy is charged to the process, inherited over fork, gone with
 * exec. Only one instruction before the syscall instruction changes (shape.c), so there is no moment at which another
 * thread finds half of something, a restarted system call goes back to a real syscall instruction, and the return
 * address is the real one.
 */
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <asm/mmu_context.h>
#include <asm/sync_core.h>
#include <asm/tlbflush.h>
#include <asm/vdso.h>
#include <asm/vmi.h>
#include "../../../../mm/internal.h"
#include "private.h"

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

/* Nobody runs there any more. */
void vmi_sites_exit(struct mm_struct *mm)
{
	sites_drop(mm->context.sites);
	mm->context.sites = NULL;
}

void vmi_sites_dup(struct mm_struct *old, struct mm_struct *mm)
{
	refcount_inc(&old->context.sites->count);
	mm->context.sites = old->context.sites;
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

/* The address space's own, to be changed. */
static struct vmi_sites *sites_own(struct mm_struct *mm)
{
	struct vmi_sites *sites = mm->context.sites, *own;

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
		mm->context.sites = own;
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

/* Text */

struct piece {
	unsigned long address;
	const u8 *bytes;
	unsigned int length;
};

static void put_bytes(struct page *page, const struct piece *pieces, unsigned int count)
{
	u8 *at = kmap_local_page(page);
	unsigned int i;

	for (i = 0; i < count; i++)
		memcpy(at + offset_in_page(pieces[i].address), pieces[i].bytes, pieces[i].length);
	kunmap_local(at);
}

/*
 * Writes pieces of one page of text, into the process's own copy. Nobody executes the page meanwhile: it is not there for as long,
 * and who faults waits for the lock that we hold.
 */
static int text_write(struct vm_area_struct *vma, const struct piece *pieces, unsigned int count)
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
	/* This CPU may have fetched the old bytes. */
	sync_core();
out:
	put_page(page);
	return result;
}

int vmi_text_write(struct vm_area_struct *vma, unsigned long address, const u8 *bytes, unsigned int length)
{
	struct piece piece = { address, bytes, length };

	return text_write(vma, &piece, 1);
}

static bool is_vdso(const struct vm_area_struct *vma)
{
	const struct mm_struct *mm = vma->vm_mm;

	return mm->context.vdso && vma->vm_start == (unsigned long)mm->context.vdso;
}

bool vmi_is_private_text(const struct vm_area_struct *vma)
{
	const vm_flags_t want = VM_READ | VM_EXEC | VM_MAYWRITE;

	return (vma->vm_flags & want) == want && !(vma->vm_flags & (VM_WRITE | VM_SHARED | VM_HUGETLB)) &&
	       (vma->vm_file || is_vdso(vma));
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

/* The jump in the cave stays for good: a thread may be between the two, and padding does not lead anywhere. */
static int site_write(struct vm_area_struct *vma, const struct site *site, bool back)
{
	struct piece pieces[2] = {
		{ site->start, back ? site->old : site->new, site->length },
		{ site->cave, site->cave_new, JUMP_SIZE },
	};

	return text_write(vma, pieces, site->cave && !back ? 2 : 1);
}

/* Replaces a site whose shape is known. page: its bytes, a copy. */
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
	result = slot_claim(mm, sites, vma, &layer);
	if (result)
		return result == -ENOMEM ? NO_MEMORY : NO_SLOT;
	site->back = back;
	site->start = layer.addr;
	site->slot = layer.slot;
	if (shape->cave) {
		site->cave = base + shape->cave;
		memcpy(site->cave_old, page + shape->cave, JUMP_SIZE);
		jump_to(site->cave_new, site->cave, site->slot);
		site->length = 2;
		site->new[0] = 0xeb;
		site->new[1] = site->cave - (site->start + 2);
	} else {
		site->length = JUMP_SIZE;
		jump_to(site->new, site->start, site->slot);
	}
	memcpy(site->old, page + shape->start, site->length);
	sites->sites++;
	return site_write(vma, site, false) ? BUSY : CLAIMED;
}

static enum outcome site_rewrite(struct vm_area_struct *vma, unsigned long back, const struct pt_regs *regs,
				 u8 *copy)
{
	struct mm_struct *mm = vma->vm_mm;
	struct vmi_sites *sites = mm->context.sites;
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
			/* A system call that was restarted, or a jump to the syscall instruction. */
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
	if (!shape_find(copy, offset_in_page(back - 2), regs, &shape))
		return NO_SHAPE;
	return site_claim(vma, copy, back, &shape);
}

enum outcome site_private(struct vm_area_struct *vma, const struct pt_regs *regs)
{
	u8 *copy = (u8 *)__get_free_page(GFP_KERNEL);
	enum outcome outcome = copy ? site_rewrite(vma, regs->ip, regs, copy) : NO_MEMORY;

	free_page((unsigned long)copy);
	return outcome;
}

void sites_private_put_back(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	struct vmi_sites *sites = mm->context.sites;
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
		if (get_user_pages_remote(mm, site->start & PAGE_MASK, 1, FOLL_FORCE, &page, NULL) != 1)
			continue;
		at = kmap_local_page(page);
		there = PageAnon(page) && in_place(site, at);
		kunmap_local(at);
		put_page(page);
		if (there && !site_write(vma, site, true))
			sites_note(PUT_BACK);
	}
}
