// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Reading a VMI layer. The image may be damaged in any way: every offset is
 * compared with image_size in 64 bits before it is used, so sums of two 32-bit
 * fields cannot wrap, and tables are copied out because they need not be aligned.
 */
#include "vmi_rom.h"

#define MAX_LOAD_SIZE	(16u << 20)
#define MAX_PERCPU_SIZE	(1u << 20)
#define MIN_SECTION	16
#define MIN_CALL	12
#define SITE_MIN	5
#define NOP		0x90

static void copy(void *to, const void *from, unsigned int length)
{
	__u8 *t = to;
	const __u8 *f = from;

	while (length--)
		*t++ = *f++;
}

/* [offset, offset + count * size) inside limit? Nothing here can overflow. */
static int inside(__u64 offset, __u64 count, __u64 size, __u64 limit)
{
	return offset <= limit && count * size <= limit - offset;
}

static void read_section(const struct vmi_rom *rom, unsigned int index,
			 struct vmi_section *section)
{
	const struct vmi_rom_header *h = &rom->header;

	copy(section, rom->image + h->sections + (__u64)index * h->section_size,
	     sizeof(*section));
}

static enum vmi_rom_error check_calls(const struct vmi_rom *rom,
				      const struct vmi_section *section)
{
	const struct vmi_rom_header *h = &rom->header;
	struct vmi_call_entry entry;
	unsigned int i;

	if (!inside(section->calls, section->call_count, h->call_size,
		    h->image_size))
		return VMI_ROM_CALLS;
	for (i = 0; i < section->call_count; i++) {
		copy(&entry, rom->image + section->calls + (__u64)i * h->call_size,
		     sizeof(entry));
		if (entry.offset >= h->image_size)
			return VMI_ROM_CALLS;
		if (entry.inline_offset &&
		    !inside(entry.inline_offset, 1, sizeof(struct vmi_inline),
			    h->image_size))
			return VMI_ROM_CALLS;
	}
	return VMI_ROM_OK;
}

static enum vmi_rom_error check_sections(const struct vmi_rom *rom)
{
	const struct vmi_rom_header *h = &rom->header;
	struct vmi_section section, other;
	enum vmi_rom_error error;
	unsigned int i, j;

	if (h->section_size < MIN_SECTION || h->call_size < MIN_CALL ||
	    !inside(h->sections, h->section_count, h->section_size,
		    h->image_size))
		return VMI_ROM_SECTIONS;
	for (i = 0; i < h->section_count; i++) {
		read_section(rom, i, &section);
		for (j = 0; j < i; j++) {
			read_section(rom, j, &other);
			if (other.id == section.id)
				return VMI_ROM_TWICE;
		}
		error = check_calls(rom, &section);
		if (error)
			return error;
	}
	return VMI_ROM_OK;
}

static enum vmi_rom_error check_extable(const struct vmi_rom *rom)
{
	const struct vmi_rom_header *h = &rom->header;
	struct vmi_extable_entry entry;
	__u64 i;

	if (!inside(h->extable, h->extable_count, sizeof(entry), h->image_size))
		return VMI_ROM_EXTABLE;
	for (i = 0; i < h->extable_count; i++) {
		copy(&entry, rom->image + h->extable + i * sizeof(entry),
		     sizeof(entry));
		if (entry.insn >= h->image_size || entry.fixup >= h->image_size)
			return VMI_ROM_EXTABLE;
	}
	return VMI_ROM_OK;
}

enum vmi_rom_error vmi_rom_check(struct vmi_rom *rom, const void *image,
				 __u64 available, enum vmi_rom_source source)
{
	struct vmi_rom r = { .image = image };
	const struct vmi_rom_header *h = &r.header;
	enum vmi_rom_error error;
	__u64 length, i;
	__u8 sum = 0;

	if (available < sizeof(r.header))
		return VMI_ROM_NO_ROM;
	copy(&r.header, image, sizeof(r.header));
	if (h->rom_signature != VMI_ROM_SIGNATURE)
		return VMI_ROM_NO_ROM;
	if (h->vmi_signature != VMI_SIGNATURE)
		return VMI_ROM_NO_LAYER;
	length = (__u64)h->rom_length * VMI_ROM_UNIT;
	if (!length || length > available)
		return VMI_ROM_LENGTH;
	/* A hypervisor's image may have been written to since it was made. */
	if (source == VMI_ROM_FROM_SCAN) {
		for (i = 0; i < length; i++)
			sum += r.image[i];
		if (sum)
			return VMI_ROM_CHECKSUM;
	}
	/* What follows means something else in another major version. */
	if (h->api_major != VMI_API_MAJOR)
		return VMI_ROM_MAJOR;
	if (h->image_size > length)
		return VMI_ROM_IMAGE_SIZE;
	if (h->header_size < VMI_HEADER_SIZE || h->header_size > h->image_size)
		return VMI_ROM_HEADER_SIZE;
	if (h->load_size < h->image_size || h->load_size > MAX_LOAD_SIZE)
		return VMI_ROM_LOAD_SIZE;
	if (h->percpu_size % VMI_PERCPU_ALIGN || h->percpu_size > MAX_PERCPU_SIZE)
		return VMI_ROM_PERCPU_SIZE;
	if (h->reserve_end < h->reserve_start)
		return VMI_ROM_RESERVE;
	error = check_sections(&r);
	if (!error)
		error = check_extable(&r);
	if (!error)
		*rom = r;
	return error;
}

const char *vmi_rom_strerror(enum vmi_rom_error error)
{
	switch (error) {
	case VMI_ROM_OK:
		return "good";
	case VMI_ROM_NO_ROM:
		return "no option ROM";
	case VMI_ROM_NO_LAYER:
		return "no VMI layer";
	case VMI_ROM_LENGTH:
		return "bad length";
	case VMI_ROM_CHECKSUM:
		return "wrong checksum";
	case VMI_ROM_MAJOR:
		return "another major version";
	case VMI_ROM_HEADER_SIZE:
		return "bad header size";
	case VMI_ROM_IMAGE_SIZE:
		return "bad image size";
	case VMI_ROM_LOAD_SIZE:
		return "bad load size";
	case VMI_ROM_PERCPU_SIZE:
		return "bad per-vCPU size";
	case VMI_ROM_RESERVE:
		return "bad reserved range";
	case VMI_ROM_SECTIONS:
		return "section table outside the image";
	case VMI_ROM_TWICE:
		return "a section appears twice";
	case VMI_ROM_CALLS:
		return "call table outside the image";
	case VMI_ROM_EXTABLE:
		return "exception table outside the image";
	case VMI_ROM_RELOC:
		return "bad relocation record";
	case VMI_ROM_INLINE:
		return "bad inline code";
	case VMI_ROM_SITE:
		return "site too short";
	case VMI_ROM_REACH:
		return "site out of reach";
	case VMI_ROM_ABSENT:
		return "a call that the kernel needs is absent";
	}
	return "unknown error";
}

int vmi_rom_scan(struct vmi_rom *rom, const void *start, __u64 size,
		 __u64 *offset, __u64 *found, enum vmi_rom_error *error)
{
	const __u8 *base = start;

	while (*offset < size) {
		__u64 at = *offset;
		__u64 step = VMI_ROM_SCAN_STEP;

		*error = vmi_rom_check(rom, base + at, size - at,
				       VMI_ROM_FROM_SCAN);
		/* A good ROM's inside is not searched, a damaged one's is. */
		if (*error == VMI_ROM_OK || *error == VMI_ROM_MAJOR) {
			step = (__u64)base[at + 2] * VMI_ROM_UNIT;
			step = (step + VMI_ROM_SCAN_STEP - 1) &
			       ~(__u64)(VMI_ROM_SCAN_STEP - 1);
		}
		*offset = at + step;
		if (*error == VMI_ROM_NO_ROM || *error == VMI_ROM_NO_LAYER)
			continue;
		*found = at;
		return 1;
	}
	return 0;
}

int vmi_rom_section(const struct vmi_rom *rom, unsigned int id,
		    unsigned int kernel_version, struct vmi_section *section)
{
	unsigned int i;

	for (i = 0; i < rom->header.section_count; i++) {
		read_section(rom, i, section);
		if (section->id == id)
			return section->compat <= kernel_version;
	}
	return 0;
}

/* The section version that a kernel built with this header was written for. */
static unsigned int known_version(unsigned int id)
{
	switch (id) {
#define Y(SECTION, section, number, version, compat, calls) \
	case number:					    \
		return version;
	VMI_FOR_EACH_SECTION(Y)
#undef Y
	}
	return 0;
}

int vmi_rom_usable(const struct vmi_rom *rom, unsigned int id,
		   struct vmi_section *section)
{
	return vmi_rom_section(rom, id, known_version(id), section);
}

/* Calls of that section that this header knows. */
static unsigned int known_calls(unsigned int id)
{
	switch (id) {
#define Y(SECTION, section, number, version, compat, calls) \
	case number:					    \
		return calls;
	VMI_FOR_EACH_SECTION(Y)
#undef Y
	}
	return 0;
}

#define CLASS_IS_JUMP_PRIMITIVE	0
#define CLASS_IS_JUMP_SYSV	0
#define CLASS_IS_JUMP_JUMP	1

static int is_jump(unsigned int call)
{
	switch (call) {
#define X(SECTION, section, CALL, name, number, CLASS, since) \
	case number:					      \
		return CLASS_IS_JUMP_##CLASS;
	VMI_FOR_EACH_CALL(X)
#undef X
	}
	return 0;
}

int vmi_rom_call(const struct vmi_rom *rom, const void *base,
		 unsigned int call, struct vmi_call_entry *entry)
{
	const struct vmi_rom_header *h = &rom->header;
	unsigned int id = call >> 8, index = call & 0xff;
	struct vmi_section section;

	if (index >= known_calls(id) ||
	    !vmi_rom_usable(rom, id, &section) ||
	    index >= section.call_count)
		return 0;
	/* The layer has run since the check: look again. */
	if (!inside(section.calls, section.call_count, h->call_size, h->image_size))
		return 0;
	copy(entry, (const __u8 *)base + section.calls +
	     (__u64)index * h->call_size, sizeof(*entry));
	if (!entry->offset || entry->offset >= h->image_size)
		return 0;
	return 1;
}

/* call or jmp rel32 from the site to the layer's entry. */
static enum vmi_rom_error branch(struct vmi_site_code *code, __u8 opcode,
				 __u64 from, __u64 to)
{
	__u64 distance = to - (from + SITE_MIN);
	__s64 rel = (__s64)distance;
	__s32 rel32 = (__s32)distance;

	if (rel != rel32)
		return VMI_ROM_REACH;
	code->code[0] = opcode;
	copy(code->code + 1, &rel32, sizeof(rel32));
	return VMI_ROM_OK;
}

enum vmi_rom_error vmi_rom_site_code(const struct vmi_rom *rom, const void *base,
				     const struct vmi_site *site,
				     struct vmi_site_code *code)
{
	__u64 at = (__u64)(size_t)&site->addr + (__u64)(__s64)site->addr;
	__u64 to = (__u64)(size_t)base;
	struct vmi_call_entry entry;
	struct vmi_inline insns;
	unsigned int i;

	code->length = 0;
	if (site->length < SITE_MIN)
		return VMI_ROM_SITE;
	if (!vmi_rom_call(rom, base, site->call, &entry))
		return rom->header.flags & VMI_HEADER_PARAVIRT ?
		       VMI_ROM_ABSENT : VMI_ROM_OK;
	to += entry.offset;
	for (i = 0; i < site->length; i++)
		code->code[i] = NOP;
	switch (entry.reloc) {
	case VMI_RELOC_NONE:
		return VMI_ROM_OK;
	case VMI_RELOC_NOP:
		/* There is nothing after a call that does not return. */
		if (is_jump(site->call))
			return VMI_ROM_RELOC;
		break;
	case VMI_RELOC_JUMP:
		if (!is_jump(site->call))
			return VMI_ROM_RELOC;
		if (branch(code, 0xe9, at, to))
			return VMI_ROM_REACH;
		break;
	case VMI_RELOC_INLINE:
		if (!entry.inline_offset ||
		    !inside(entry.inline_offset, 1, sizeof(insns),
			    rom->header.image_size))
			return VMI_ROM_RELOC;
		copy(&insns, (const __u8 *)base + entry.inline_offset,
		     sizeof(insns));
		if (!insns.length || insns.length > VMI_INLINE_MAX)
			return VMI_ROM_INLINE;
		if (insns.length <= site->length) {
			copy(code->code, insns.code, insns.length);
			break;
		}
		/* Too short a site gets a call instead. */
		__attribute__((__fallthrough__));
	case VMI_RELOC_CALL:
		if (is_jump(site->call))
			return VMI_ROM_RELOC;
		if (branch(code, 0xe8, at, to))
			return VMI_ROM_REACH;
		break;
	default:
		return VMI_ROM_RELOC;
	}
	code->length = site->length;
	return VMI_ROM_OK;
}

enum vmi_rom_error vmi_rom_patch(const struct vmi_rom *rom, const void *base,
				 const struct vmi_site *start,
				 const struct vmi_site *end,
				 vmi_text_write_fn *write, unsigned int *patched)
{
	const struct vmi_site *site;
	struct vmi_site_code code;
	enum vmi_rom_error error;

	*patched = 0;
	for (site = start; site < end; site++) {
		error = vmi_rom_site_code(rom, base, site, &code);
		if (error)
			return error;
	}
	for (site = start; site < end; site++) {
		vmi_rom_site_code(rom, base, site, &code);
		if (!code.length)
			continue;
		write((void *)((size_t)&site->addr + (__s64)site->addr),
		      code.code, code.length);
		++*patched;
	}
	return VMI_ROM_OK;
}

__u64 vmi_rom_fixup(const struct vmi_rom *rom, const void *base, __u64 rip)
{
	const struct vmi_rom_header *h = &rom->header;
	__u64 offset = rip - (__u64)(size_t)base;
	struct vmi_extable_entry entry;
	__u64 i;

	if (offset >= h->image_size)
		return 0;
	for (i = 0; i < h->extable_count; i++) {
		copy(&entry, (const __u8 *)base + h->extable + i * sizeof(entry),
		     sizeof(entry));
		if (entry.insn == offset && entry.fixup < h->image_size)
			return (__u64)(size_t)base + entry.fixup;
	}
	return 0;
}
