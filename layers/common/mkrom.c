/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Host tool: makes an option ROM of a linked layer image.
 *
 *	mkrom IMAGE ROM
 *
 * Counts the exception table and makes its offsets relative to the image, pads to whole
 * units, writes rom_length and the checksum. See header.S and extable.h for its input. Fails
 * if the entry of a call does not begin with endbr64: kernels call it by a pointer, and
 * without the mark they must turn indirect branch tracking off.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <paravane/vmi.h>

#define MAX_SIZE (255 * VMI_ROM_UNIT)

static unsigned char rom[MAX_SIZE + 1];

static void fail(const char *what)
{
	fprintf(stderr, "mkrom: %s\n", what);
	exit(2);
}

static unsigned long get32(size_t at)
{
	return rom[at] | rom[at + 1] << 8 | rom[at + 2] << 16 |
	       (unsigned long)rom[at + 3] << 24;
}

static void put32(size_t at, unsigned long value)
{
	for (int i = 0; i < 4; i++)
		rom[at + i] = value >> (8 * i) & 0xff;
}

static unsigned long get16(size_t at)
{
	return rom[at] | rom[at + 1] << 8;
}

/* Whether all sections and calls are inside the image, and all entries are marked. */
static void check_entries(size_t image_size)
{
	static const unsigned char endbr64[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	size_t section = get32(VMI_OFF_ROM_HEADER_SECTIONS);
	size_t size = get16(VMI_OFF_ROM_HEADER_SECTION_SIZE);
	size_t call_size = get32(VMI_OFF_ROM_HEADER_CALL_SIZE);
	unsigned int count = get16(VMI_OFF_ROM_HEADER_SECTION_COUNT);

	if (section + count * size > image_size)
		fail("the section table lies outside the image");
	for (; count--; section += size) {
		size_t call = get32(section + VMI_OFF_SECTION_CALLS);
		unsigned int calls = get16(section + VMI_OFF_SECTION_CALL_COUNT), i;

		if (call + calls * call_size > image_size)
			fail("a call table lies outside the image");
		for (i = 0; i < calls; i++, call += call_size) {
			size_t entry = get32(call + VMI_OFF_CALL_ENTRY_OFFSET);

			if (!entry || (entry + sizeof(endbr64) <= image_size &&
				       !memcmp(rom + entry, endbr64, sizeof(endbr64))))
				continue;
			fprintf(stderr, "mkrom: call %#lx has no endbr64 at its entry\n",
				get16(section + VMI_OFF_SECTION_ID) << 8 | i);
			exit(2);
		}
	}
}

static void fix_extable(size_t image_size)
{
	size_t start = get32(VMI_OFF_ROM_HEADER_EXTABLE);
	size_t end = get32(VMI_OFF_ROM_HEADER_EXTABLE_COUNT);

	if (start > end || end > image_size || (end - start) % VMI_SIZE_EXTABLE_ENTRY)
		fail("the exception table lies outside the image");
	for (size_t at = start; at < end; at += 4) {
		unsigned long target = (get32(at) + at) & 0xffffffff;

		if (target >= image_size)
			fail("an exception table entry points outside the image");
		put32(at, target);
	}
	put32(VMI_OFF_ROM_HEADER_EXTABLE_COUNT, (end - start) / VMI_SIZE_EXTABLE_ENTRY);
}

int main(int argc, char **argv)
{
	size_t size, padded;
	unsigned char sum = 0;
	FILE *file;

	if (argc != 3)
		fail("usage: mkrom IMAGE ROM");
	file = fopen(argv[1], "rb");
	if (!file)
		fail("cannot open the image");
	size = fread(rom, 1, sizeof(rom), file);
	fclose(file);
	if (size > MAX_SIZE)
		fail("the image is too large for an option ROM");
	if (size < VMI_HEADER_SIZE || get32(VMI_OFF_ROM_HEADER_VMI_SIGNATURE) != VMI_SIGNATURE)
		fail("the image has no VMI header");
	if (size != get32(VMI_OFF_ROM_HEADER_IMAGE_SIZE))
		fail("the image is not as long as its header says");

	check_entries(size);
	fix_extable(size);
	padded = (size + VMI_ROM_UNIT - 1) / VMI_ROM_UNIT * VMI_ROM_UNIT;
	rom[VMI_OFF_ROM_HEADER_ROM_LENGTH] = padded / VMI_ROM_UNIT;
	rom[VMI_OFF_ROM_HEADER_CHECKSUM] = 0;
	for (size_t i = 0; i < padded; i++)
		sum += rom[i];
	rom[VMI_OFF_ROM_HEADER_CHECKSUM] = -sum & 0xff;

	file = fopen(argv[2], "wb");
	if (!file || fwrite(rom, 1, padded, file) != padded || fclose(file))
		fail("cannot write the ROM");
	return 0;
}
