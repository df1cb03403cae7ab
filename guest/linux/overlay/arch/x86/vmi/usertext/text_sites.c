// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sites of a text: which instructions of a file can be replaced, and the changes that replace
 * them for all mappings.
 *
 * Stubs lie in the unused rest of the last page of the executable segment, so that their distance
 * from the sites is the same in every process. A change is added while no process maps its page: a
 * thread that executes there faults and waits.
 */
#include <linux/elf.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <linux/unaligned.h>
#include "../vmi.h"
#include "text_pages.h"
#include "text_sites.h"

/* Turns file offsets into addresses for the layer, which uses only their differences. */
#define BIAS 0x10000000UL

bool text_segment_find(struct file *file, u32 offset, u32 *start, u32 *end)
{
	struct folio *folio = text_original(file, 0);
	const struct elf64_phdr *phdr;
	const struct elf64_hdr *elf;
	unsigned int i, count;
	bool found = false;

	if (IS_ERR(folio))
		return false;
	elf = folio_address(folio) + offset_in_folio(folio, 0);
	phdr = (const void *)elf + sizeof(*elf);
	/* The file may be written to during the check. */
	count = READ_ONCE(elf->e_phnum);
	if (!memcmp(elf->e_ident, ELFMAG, SELFMAG) && elf->e_ident[EI_CLASS] == ELFCLASS64 &&
	    elf->e_phoff == sizeof(*elf) && elf->e_phentsize == sizeof(*phdr) &&
	    count <= (PAGE_SIZE - sizeof(*elf)) / sizeof(*phdr)) {
		for (i = 0; i < count && !found; i++) {
			u64 first = READ_ONCE(phdr[i].p_offset), size = READ_ONCE(phdr[i].p_filesz);

			found = phdr[i].p_type == PT_LOAD && phdr[i].p_flags & PF_X &&
				first <= offset && size < SZ_1G && offset - first < size &&
				first + size < SZ_1G;
			*start = first;
			*end = first + size;
		}
	}
	folio_put(folio);
	return found;
}

bool text_tail_free(struct file *file, u32 end)
{
	struct folio *folio = text_original(file, end >> PAGE_SHIFT);
	const u8 *page;
	bool is_free;

	if (IS_ERR(folio))
		return false;
	page = folio_address(folio) + offset_in_folio(folio, round_down(end, PAGE_SIZE));
	is_free = !memchr_inv(page + offset_in_page(end), 0, PAGE_SIZE - offset_in_page(end));
	folio_put(folio);
	return is_free;
}

static void change_add(struct text *text, u32 offset, const u8 *page, const u8 *new,
		       unsigned int length, bool cave)
{
	struct change *change = &text->change[text->changes];

	change->offset = offset;
	change->length = length;
	change->cave = cave;
	memcpy(change->old, page + offset_in_page(offset), length);
	memcpy(change->new, new, length);
	/* Pairs with the acquire in text_page_copy(), which reads the change. */
	smp_store_release(&text->changes, text->changes + 1);
}

static void change_show(struct text *text, const struct change *change)
{
	text_page_update(text, change->offset >> PAGE_SHIFT, offset_in_page(change->offset),
			 change->new, change->length);
}

/* Has the layer write the next stub. Returns its offset in the file, or 0 if there is no room. */
static u32 stub_write(struct text *text, struct vmi_syscall_site *site)
{
	u32 stub = text->next_stub, length;
	u8 *at = text->tail + offset_in_page(stub);
	int result;

	if (stub >> PAGE_SHIFT != text->end >> PAGE_SHIFT)
		return 0;
	site->slot = BIAS + stub;
	result = vmi.patch_code(site, text->body ? BIAS + text->body : 0, at,
				PAGE_SIZE - offset_in_page(stub));
	if (result <= 0)
		return 0;
	length = result;
	text_page_update(text, stub >> PAGE_SHIFT, offset_in_page(stub), at, length);
	text->next_stub = round_up(stub + length, STUB_ALIGN);
	return stub;
}

/* The length of the stub that was written last follows from where the next one may begin. */
static void stub_note(struct text *text, u32 at, u32 base, const struct shape *shape)
{
	struct text_stub *stub = &text->stub[text->stubs];

	stub->at = at;
	stub->length = text->next_stub - at;
	stub->start = base + shape->start;
	stub->prefix = shape->syscall - shape->start;
	stub->cave = shape->cave ? base + shape->cave : 0;
	/* Pairs with the acquire in text_leave_stub(). */
	smp_store_release(&text->stubs, text->stubs + 1);
}

u32 text_leave_stub(const struct text *text, u32 at)
{
	unsigned int count = smp_load_acquire(&text->stubs), i;

	for (i = 0; i < count; i++) {
		const struct text_stub *stub = &text->stub[i];

		if (at - stub->at < stub->length)
			return stub->start + min_t(u32, at - stub->at, stub->prefix);
		if (stub->cave && at == stub->cave)
			return stub->start;
	}
	return at;
}

/*
 * Finds the shape of a site that may be replaced for all processes that map the file. Returns
 * SHARED if it has one.
 */
static enum outcome find_shared_shape(const u8 *page, unsigned int before, u32 offset,
				      const struct pt_regs *regs, bool cpuid, struct shape *shape)
{
	if (cpuid)
		return shape_find_cpuid(page, before, offset, shape) ? SHARED : NO_SHAPE;
	if (!shape_find(page, before, offset, regs, shape))
		return NO_SHAPE;
	/*
	 * The program that made the system call chose its registers: they prove nothing to others.
	 */
	return shape_proven(page, before, shape) ? SHARED : NO_PROOF;
}

/* @page is the page that holds the site; @before bytes before it are of the same segment. */
static enum outcome site_claim(struct text *text, const u8 *page, unsigned int before, u32 offset,
			       const struct pt_regs *regs, bool cpuid)
{
	u32 base = round_down(offset, PAGE_SIZE), stub;
	struct vmi_syscall_site site = {};
	unsigned int first = text->changes;
	enum outcome outcome;
	u8 jump[JUMP_SIZE];
	struct shape shape;

	if (offset_in_page(offset) > PAGE_SIZE - 2)
		return NO_CAVE_OR_PAGE;
	outcome = find_shared_shape(page, before, offset_in_page(offset), regs, cpuid, &shape);
	if (outcome != SHARED)
		return outcome;
	/* Bytes outside the segment prove nothing, and stubs are not padding. */
	if (base < text->start || (shape.cave && base + shape.cave + JUMP_SIZE > text->end))
		return NO_SHAPE;
	if (cpuid && !text->body) {
		site.flags = VMI_SITE_BODY;
		text->body = stub_write(text, &site);
		if (!text->body)
			return NO_STUB;
	}
	site.addr = BIAS + base + shape.start;
	site.length = shape.syscall + 2 - shape.start;
	site.syscall_offset = shape.syscall - shape.start;
	site.flags = cpuid ? VMI_SITE_CPUID : 0;
	memcpy(site.code, page + shape.start, site.length);
	if (shape.relative) {
		s32 distance = get_unaligned((s32 *)(site.code + shape.relative));

		distance += (s32)(site.addr - BIAS - text->next_stub);
		put_unaligned(distance, (s32 *)(site.code + shape.relative));
	}
	stub = stub_write(text, &site);
	if (!stub)
		return NO_STUB;
	if (!cpuid)
		stub_note(text, stub, base, &shape);
	if (shape.cave) {
		u8 hop[2] = { 0xeb, shape.cave - (shape.start + 2) };

		jump_to(jump, base + shape.cave, stub);
		change_add(text, base + shape.cave, page, jump, JUMP_SIZE, true);
		change_show(text, &text->change[first++]);
		change_add(text, base + shape.start, page, hop, 2, false);
	} else {
		jump_to(jump, base + shape.start, stub);
		change_add(text, base + shape.start, page, jump, JUMP_SIZE, false);
	}
	change_show(text, &text->change[first]);
	return SHARED;
}

/*
 * Copies the page that holds @offset to the second page of @pages, and the end of the page before
 * it, as far as it is of the same segment, to the end of the first. Returns how many bytes that
 * are, or an error.
 */
static int site_copy(struct text *text, struct file *file, u32 offset, u8 *pages)
{
	u32 base = round_down(offset, PAGE_SIZE), index = base >> PAGE_SHIFT;
	int result = text_page_copy(text, file, index, pages + PAGE_SIZE);

	if (result || base <= text->start)
		return result;
	result = text_page_copy(text, file, index - 1, pages);
	return result ? result : min(base - text->start, SHAPE_BEFORE_MAX);
}

enum outcome text_add(struct text *text, struct file *file, u32 offset, const struct pt_regs *regs,
		      bool cpuid)
{
	enum outcome outcome = BUSY;
	unsigned int i;
	int before;
	u8 *pages;

	if (READ_ONCE(text->dead) || offset < text->start || offset >= text->end)
		return NOT_TEXT;
	for (i = 0; i < text->sites; i++)
		if (text->site[i] == offset)
			return IN_PLACE;
	if (text->sites == CHANGES_MAX || text->changes > CHANGES_MAX - 2 ||
	    text->stubs == STUBS_MAX)
		return NO_STUB;
	pages = (u8 *)__get_free_pages(GFP_KERNEL, 1);
	if (!pages)
		return NO_MEMORY;
	before = site_copy(text, file, offset, pages);
	if (before >= 0) {
		outcome = site_claim(text, pages + PAGE_SIZE, before, offset, regs, cpuid);
		/* A failure because of one program's registers says nothing about others. */
		if (cpuid || outcome == SHARED)
			text->site[text->sites++] = offset;
	}
	free_pages((unsigned long)pages, 1);
	return outcome;
}
