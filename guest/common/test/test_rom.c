// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The kernel's reader of layer images on the host: good and damaged headers,
 * versions, patching, and random damage under the sanitizers.
 */
#include "build_rom.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUTATIONS	200000

static unsigned int number, failures;
static __u8 image[ROM_SIZE];

static void result(int good, const char *name)
{
	printf("%sok %u - %s\n", good ? "" : "not ", ++number, name);
	failures += !good;
}

/* Exactly as large as it says, so that the sanitizer sees each byte too much. */
static enum vmi_rom_error check_bytes(const __u8 *from, size_t size,
				      enum vmi_rom_source source, struct vmi_rom *rom)
{
	__u8 *copy = malloc(size ? size : 1);
	enum vmi_rom_error error;

	memcpy(copy, from, size);
	error = vmi_rom_check(rom, copy, size, source);
	free(copy);
	return error;
}

static enum vmi_rom_error check(void)
{
	struct vmi_rom rom;

	return check_bytes(image, sizeof(image), VMI_ROM_FROM_SCAN, &rom);
}

/* --- headers --- */

#define DAMAGE(name, error, statement)				\
	do {							\
		struct vmi_rom_header *h = rom_header(image);	\
								\
		build_rom(image);				\
		(void)h;					\
		statement;					\
		fix_checksum(image);				\
		result(check() == (error), name);		\
	} while (0)

static void headers(void)
{
	struct vmi_rom rom;
	size_t size;
	int good = 1;

	build_rom(image);
	result(check() == VMI_ROM_OK, "good image");
	for (size = 0; size < sizeof(image); size++)
		good &= check_bytes(image, size, VMI_ROM_FROM_SCAN, &rom) != VMI_ROM_OK;
	result(good, "truncated anywhere");
	image[0x500] ^= 1;
	result(check() == VMI_ROM_CHECKSUM, "wrong checksum");
	result(check_bytes(image, sizeof(image), VMI_ROM_FROM_BOOT_INFO, &rom) ==
	       VMI_ROM_OK, "a hypervisor's image needs no checksum");
	DAMAGE("no ROM signature", VMI_ROM_NO_ROM, h->rom_signature = 0x55aa);
	DAMAGE("no VMI signature", VMI_ROM_NO_LAYER, h->vmi_signature++);
	DAMAGE("length zero", VMI_ROM_LENGTH, h->rom_length = 0);
	DAMAGE("length too large", VMI_ROM_LENGTH, h->rom_length = ROM_UNITS + 1);
	DAMAGE("major version 0", VMI_ROM_MAJOR, h->api_major = 0);
	DAMAGE("major version 2", VMI_ROM_MAJOR, h->api_major = 2);
	DAMAGE("minor version 9", VMI_ROM_OK, h->api_minor = 9);
	DAMAGE("header_size small", VMI_ROM_HEADER_SIZE, h->header_size = 127);
	DAMAGE("header_size larger", VMI_ROM_OK, h->header_size = 256);
	DAMAGE("header_size outside", VMI_ROM_HEADER_SIZE, h->header_size = ROM_SIZE + 1);
	DAMAGE("image_size large", VMI_ROM_IMAGE_SIZE, h->image_size = ROM_SIZE + 1);
	DAMAGE("image_size huge", VMI_ROM_IMAGE_SIZE, h->image_size = 0xffffffff);
	DAMAGE("image_size zero", VMI_ROM_HEADER_SIZE, h->image_size = 0);
	DAMAGE("load_size small", VMI_ROM_LOAD_SIZE, h->load_size = ROM_SIZE - 1);
	DAMAGE("load_size 16 MiB", VMI_ROM_OK, h->load_size = 16 << 20);
	DAMAGE("load_size over 16 MiB", VMI_ROM_LOAD_SIZE, h->load_size = (16 << 20) + 1);
	DAMAGE("percpu_size odd", VMI_ROM_PERCPU_SIZE, h->percpu_size = 100);
	DAMAGE("percpu_size 1 MiB", VMI_ROM_OK, h->percpu_size = 1 << 20);
	DAMAGE("percpu_size large", VMI_ROM_PERCPU_SIZE, h->percpu_size = (1 << 20) + 64);
	DAMAGE("percpu_size zero", VMI_ROM_OK, h->percpu_size = 0);
	DAMAGE("reserve backwards", VMI_ROM_RESERVE,
	       (h->reserve_start = 2, h->reserve_end = 1));
	DAMAGE("sections outside", VMI_ROM_SECTIONS, h->sections = ROM_SIZE);
	DAMAGE("sections at the very end", VMI_ROM_SECTIONS, h->sections = 0xffffffff);
	DAMAGE("too many sections", VMI_ROM_SECTIONS, h->section_count = 0xffff);
	DAMAGE("section_size small", VMI_ROM_SECTIONS, h->section_size = 15);
	DAMAGE("section_size huge", VMI_ROM_SECTIONS, h->section_size = 0xffff);
	DAMAGE("call_size small", VMI_ROM_SECTIONS, h->call_size = 11);
	DAMAGE("call_size huge", VMI_ROM_CALLS, h->call_size = 0xffffffff);
	DAMAGE("a section twice", VMI_ROM_TWICE, rom_section(image, 3)->id = 5);
	DAMAGE("an unknown section", VMI_ROM_OK, rom_section(image, 8)->id = 77);
	DAMAGE("calls outside", VMI_ROM_CALLS, rom_section(image, 2)->calls = ROM_SIZE - 4);
	DAMAGE("too many calls", VMI_ROM_CALLS, rom_section(image, 1)->call_count = 0xffff);
	DAMAGE("entry outside", VMI_ROM_CALLS, rom_call(image, 0x105)->offset = ROM_SIZE);
	DAMAGE("entry absent", VMI_ROM_OK, rom_call(image, 0x105)->offset = 0);
	DAMAGE("inline outside", VMI_ROM_CALLS,
	       rom_call(image, 0x105)->inline_offset = ROM_SIZE - 15);
	DAMAGE("inline at the end", VMI_ROM_OK,
	       rom_call(image, 0x105)->inline_offset = ROM_SIZE - 16);
	DAMAGE("exception table outside", VMI_ROM_EXTABLE, h->extable = ROM_SIZE - 8);
	DAMAGE("too many exceptions", VMI_ROM_EXTABLE, h->extable_count = 0xffffffff);
	DAMAGE("faulting instruction outside", VMI_ROM_EXTABLE,
	       ((__u32 *)(image + EXTABLE))[0] = ROM_SIZE);
	DAMAGE("fixup outside", VMI_ROM_EXTABLE,
	       ((__u32 *)(image + EXTABLE))[3] = 0x80000000);
}

static void scanning(void)
{
	static __u8 range[0x8000];
	enum vmi_rom_error error;
	struct vmi_rom rom;
	__u64 at = 0, found = 0;

	build_rom(image);
	memcpy(range + 0x7800, image, 0x800);	/* goes past the end */
	memcpy(range + 0x800, image, ROM_SIZE);
	range[0x800 + 13] = 2;			/* another major version */
	range[0x800 + 7] -= 1;
	memcpy(range + 0x2800, image, ROM_SIZE);
	range[0x2800 + 500]++;			/* wrong checksum */
	memcpy(range + 0x4000, image, ROM_SIZE);
	memcpy(range + 0x5400, image, 0x200);	/* not at a step */
	result(vmi_rom_scan(&rom, range, sizeof(range), &at, &found, &error) &&
	       found == 0x800 && error == VMI_ROM_MAJOR, "scan: a wrong major version");
	result(vmi_rom_scan(&rom, range, sizeof(range), &at, &found, &error) &&
	       found == 0x2800 && error == VMI_ROM_CHECKSUM, "scan: a damaged ROM");
	result(vmi_rom_scan(&rom, range, sizeof(range), &at, &found, &error) &&
	       found == 0x4000 && error == VMI_ROM_OK, "scan: a good ROM");
	result(vmi_rom_scan(&rom, range, sizeof(range), &at, &found, &error) &&
	       found == 0x7800 && error == VMI_ROM_LENGTH, "scan: past the end");
	result(!vmi_rom_scan(&rom, range, sizeof(range), &at, &found, &error),
	       "scan: the end");
}

static void versions(void)
{
	struct vmi_call_entry entry;
	struct vmi_section section;
	struct vmi_rom rom;

	build_rom(image);
	rom_section(image, 2)->compat = VMI_SECTION_MMU_VERSION + 1;
	rom_section(image, 2)->version = VMI_SECTION_MMU_VERSION + 2;
	rom_section(image, 5)->call_count = 4;
	rom_section(image, 7)->id = 77;
	rom_call(image, 0x103)->offset = 0;
	rom_section(image, 6)->version = 9;
	rom_section(image, 0)->compat = VMI_SECTION_CORE_VERSION;
	rom_section(image, 3)->compat = VMI_SECTION_APIC_VERSION + 1;
	fix_checksum(image);
	result(!vmi_rom_check(&rom, image, sizeof(image), VMI_ROM_FROM_SCAN), "versions");
	result(vmi_rom_section(&rom, 1, 1, &section) && section.version == 1,
	       "same version");
	result(!vmi_rom_section(&rom, 2, 1, &section), "compat too new");
	result(!vmi_rom_section(&rom, 2, VMI_SECTION_MMU_VERSION, &section),
	       "compat still too new");
	result(vmi_rom_section(&rom, 2, VMI_SECTION_MMU_VERSION + 1, &section),
	       "compat reached");
	result(vmi_rom_section(&rom, 6, 1, &section), "newer layer");
	result(!vmi_rom_section(&rom, 7, 1, &section), "section absent");
	result(!vmi_rom_call(&rom, image, 0x200, &entry), "call of an unusable section");
	result(vmi_rom_usable(&rom, 0, &section) && vmi_rom_call(&rom, image, 0, &entry),
	       "compat with this very version");
	result(!vmi_rom_usable(&rom, 3, &section) && !vmi_rom_call(&rom, image, 0x300, &entry),
	       "compat with the next version");
	result(!vmi_rom_usable(&rom, 77, &section), "section that has no version here");
	result(vmi_rom_call(&rom, image, 0x503, &entry), "call below call_count");
	result(!vmi_rom_call(&rom, image, 0x504, &entry), "call from a later version");
	result(!vmi_rom_call(&rom, image, 0x103, &entry), "call with offset 0");
	result(!vmi_rom_call(&rom, image, 0x1ff, &entry), "call that nobody knows");
	result(!vmi_rom_call(&rom, image, 0x4d00, &entry), "section that nobody knows");
	result(vmi_rom_fixup(&rom, image, (size_t)image + CODE + 2) ==
	       (size_t)image + CODE + 200, "fixup");
	result(!vmi_rom_fixup(&rom, image, (size_t)image + CODE), "no fixup");
	result(!vmi_rom_fixup(&rom, image, (size_t)image - 1), "fixup: other code");
}

/* --- patching --- */

static struct {
	struct vmi_site sites[4];
	__u8 text[64];
} kernel;

static void write_text(void *to, const void *from, unsigned int length)
{
	memcpy(to, from, length);
}

static void set_site(unsigned int index, unsigned int call, unsigned int offset,
		     unsigned int length)
{
	struct vmi_site *site = &kernel.sites[index];

	site->addr = (__s32)((char *)kernel.text + offset - (char *)&site->addr);
	site->call = call;
	site->length = length;
}

static enum vmi_rom_error patch(unsigned int *patched, int *untouched)
{
	enum vmi_rom_error error;
	__u8 before[64];
	struct vmi_rom rom;

	/* Near the text, as a kernel loads it. */
	static __u8 loaded[ROM_SIZE];

	fix_checksum(image);
	memcpy(loaded, image, sizeof(image));
	memset(kernel.text, 0xf4, sizeof(kernel.text));
	memcpy(before, kernel.text, sizeof(before));
	if (vmi_rom_check(&rom, loaded, sizeof(loaded), VMI_ROM_FROM_SCAN))
		return VMI_ROM_NO_ROM;
	error = vmi_rom_patch(&rom, loaded, kernel.sites, kernel.sites + 4,
			      write_text, patched);
	*untouched = !memcmp(before, kernel.text, sizeof(before));
	return error;
}

static void sites(void)
{
	set_site(0, VMI_CALL_CPU_IRQ_DISABLE, 0, 5);
	set_site(1, VMI_CALL_CPU_IRQ_ENABLE, 8, 8);
	set_site(2, VMI_CALL_CPU_IRET, 24, 5);
	set_site(3, VMI_CALL_CPU_PAUSE, 40, 7);
}

#define PATCH(name, error, untouched_, statement)				\
	do {									\
		unsigned int patched = 99;					\
		int untouched = 0;						\
										\
		build_rom(image);						\
		sites();							\
		statement;							\
		result(patch(&patched, &untouched) == (error) &&		\
		       untouched == (untouched_), name);			\
	} while (0)

static void patching(void)
{
	unsigned int patched;
	int untouched, good;
	__s32 rel;

	PATCH("patch: nothing to do", VMI_ROM_OK, 1, (void)0);
	build_rom(image);
	sites();
	rom_call(image, VMI_CALL_CPU_IRQ_DISABLE)->reloc = VMI_RELOC_CALL;
	rom_call(image, VMI_CALL_CPU_IRQ_ENABLE)->reloc = VMI_RELOC_INLINE;
	rom_call(image, VMI_CALL_CPU_IRQ_ENABLE)->inline_offset = INLINE;
	rom_call(image, VMI_CALL_CPU_IRET)->reloc = VMI_RELOC_JUMP;
	rom_call(image, VMI_CALL_CPU_PAUSE)->reloc = VMI_RELOC_NOP;
	good = patch(&patched, &untouched) == VMI_ROM_OK && patched == 4;
	result(good, "patch: each kind");
	result(kernel.text[0] == 0xe8 && kernel.text[5] == 0xf4, "patch: call");
	memcpy(&rel, kernel.text + 25, 4);
	result(kernel.text[24] == 0xe9 && rel, "patch: jump");
	result(!memcmp(kernel.text + 8, "\1\2\3\4\5\6\x90\x90\xf4", 9), "patch: inline");
	result(!memcmp(kernel.text + 40, "\x90\x90\x90\x90\x90\x90\x90\xf4", 8),
	       "patch: nop");
	PATCH("patch: too short for inline", VMI_ROM_OK, 0,
	      (rom_call(image, VMI_CALL_CPU_IRQ_DISABLE)->reloc = VMI_RELOC_INLINE,
	       rom_call(image, VMI_CALL_CPU_IRQ_DISABLE)->inline_offset = INLINE));
	result(kernel.text[0] == 0xe8, "patch: called instead");
	/* The last site is bad each time: the first must not have been written. */
#define FIRST rom_call(image, VMI_CALL_CPU_IRQ_DISABLE)->reloc = VMI_RELOC_CALL
	PATCH("patch: unknown kind", VMI_ROM_RELOC, 1,
	      (FIRST, rom_call(image, VMI_CALL_CPU_PAUSE)->reloc = 9));
	PATCH("patch: jump of a call that returns", VMI_ROM_RELOC, 1,
	      (FIRST, rom_call(image, VMI_CALL_CPU_PAUSE)->reloc = VMI_RELOC_JUMP));
	PATCH("patch: call at a jump's site", VMI_ROM_RELOC, 1,
	      (FIRST, rom_call(image, VMI_CALL_CPU_IRET)->reloc = VMI_RELOC_CALL));
	PATCH("patch: a jump erased", VMI_ROM_RELOC, 1,
	      (FIRST, rom_call(image, VMI_CALL_CPU_IRET)->reloc = VMI_RELOC_NOP));
	PATCH("patch: inline without code", VMI_ROM_RELOC, 1,
	      (FIRST, rom_call(image, VMI_CALL_CPU_PAUSE)->reloc = VMI_RELOC_INLINE));
	PATCH("patch: inline of length 0", VMI_ROM_INLINE, 1,
	      (FIRST, rom_call(image, VMI_CALL_CPU_PAUSE)->reloc = VMI_RELOC_INLINE,
	       rom_call(image, VMI_CALL_CPU_PAUSE)->inline_offset = INLINE,
	       rom_inline(image)->length = 0));
	PATCH("patch: inline of length 16", VMI_ROM_INLINE, 1,
	      (FIRST, rom_call(image, VMI_CALL_CPU_PAUSE)->reloc = VMI_RELOC_INLINE,
	       rom_call(image, VMI_CALL_CPU_PAUSE)->inline_offset = INLINE,
	       rom_inline(image)->length = 16));
	PATCH("patch: short site", VMI_ROM_SITE, 1,
	      (FIRST, kernel.sites[3].length = 4));
	PATCH("patch: absent call stays native", VMI_ROM_OK, 1,
	      rom_call(image, VMI_CALL_CPU_PAUSE)->offset = 0);
	PATCH("patch: absent call under a paravirtual layer", VMI_ROM_ABSENT, 1,
	      (FIRST, rom_call(image, VMI_CALL_CPU_PAUSE)->offset = 0,
	       rom_header(image)->flags = VMI_HEADER_PARAVIRT));
}

static void reach(void)
{
	static const __s64 distances[] = { 0x7fffffffll, 0x80000000ll, -0x80000000ll,
					   -0x80000001ll, 1ll << 40 };
	static const int in_reach[] = { 1, 0, 1, 0, 0 };
	/* The records are read at base: so the site is made far, by its own address. */
	static struct vmi_site site;
	struct vmi_site_code code;
	struct vmi_rom rom;
	int good = 1;

	build_rom(image);
	rom_call(image, VMI_CALL_CPU_IRQ_DISABLE)->reloc = VMI_RELOC_CALL;
	fix_checksum(image);
	vmi_rom_check(&rom, image, sizeof(image), VMI_ROM_FROM_SCAN);
	site.call = VMI_CALL_CPU_IRQ_DISABLE;
	site.length = 5;
	for (unsigned int i = 0; i < 5; i++) {
		/* entry - (site + 5) = distance; only if addr, 32 bits, can say so. */
		__s64 entry = (__s64)(size_t)image + CODE;
		__s64 addr = entry - distances[i] - 5 - (__s64)(size_t)&site.addr;
		enum vmi_rom_error error;

		if (addr != (__s32)addr)
			continue;
		site.addr = (__s32)addr;
		error = vmi_rom_site_code(&rom, image, &site, &code);
		good &= error == (in_reach[i] ? VMI_ROM_OK : VMI_ROM_REACH);
	}
	result(good, "patch: reach of 2 GiB");
}

/* --- random damage --- */

static __u64 seed = 0x2545f4914f6cdd1d;

static __u64 random64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void damage(__u8 *copy)
{
	static const __u32 nasty[] = { 0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fffffff,
				       0x80000000, 0xffffffff, ROM_SIZE - 1, ROM_SIZE,
				       ROM_SIZE + 1 };
	unsigned int count = 1 + random64() % 4;

	while (count--) {
		/* Most of it where it matters: the header and the tables. */
		unsigned int at = random64() % (random64() & 1 ? 0x200 : ROM_SIZE - 4);
		__u32 value = nasty[random64() % 12];

		if (random64() & 1)
			value = (__u32)random64();
		memcpy(copy + at, &value, 1u << random64() % 3);
	}
}

static void mutations(void)
{
	unsigned int accepted = 0, i, call;
	__u8 *copy = malloc(ROM_SIZE);	/* of exactly this size */

	build_rom(image);
	for (i = 0; i < MUTATIONS; i++) {
		struct vmi_call_entry entry;
		struct vmi_site_code code;
		struct vmi_section section;
		struct vmi_rom rom;

		memcpy(copy, image, ROM_SIZE);
		damage(copy);
		if (vmi_rom_check(&rom, copy, ROM_SIZE, VMI_ROM_FROM_BOOT_INFO))
			continue;
		accepted++;
		for (call = 0; call < 0xa00; call += random64() % 8 + 1) {
			vmi_rom_section(&rom, call >> 8, 1, &section);
			if (vmi_rom_call(&rom, copy, call, &entry) &&
			    entry.offset >= rom.header.image_size)
				abort();
		}
		sites();
		for (call = 0; call < 4; call++)
			vmi_rom_site_code(&rom, copy, &kernel.sites[call], &code);
		vmi_rom_fixup(&rom, copy, (size_t)copy + random64() % ROM_SIZE);
		/* What the layer may do to its records after the check. */
		damage(copy);
		for (call = 0; call < 4; call++)
			vmi_rom_site_code(&rom, copy, &kernel.sites[call], &code);
	}
	free(copy);
	printf("# %u of %u damaged images were still good\n", accepted, MUTATIONS);
	result(accepted > 0 && accepted < MUTATIONS, "random damage");
}

int main(void)
{
	printf("TAP version 14\n");
	headers();
	scanning();
	versions();
	patching();
	reach();
	mutations();
	printf("1..%u\n", number);
	printf("# %u passed, %u failed\n", number - failures, failures);
	return failures != 0;
}
