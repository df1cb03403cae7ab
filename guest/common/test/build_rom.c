// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "build_rom.h"

#include <string.h>

unsigned int rom_calls_at[VMI_SECTION_COUNT];

static const unsigned int call_counts[] = {
#define Y(SECTION, section, id, version, compat, calls) calls,
	VMI_FOR_EACH_SECTION(Y)
#undef Y
};

struct vmi_rom_header *rom_header(__u8 *image)
{
	return (struct vmi_rom_header *)image;
}

struct vmi_section *rom_section(__u8 *image, unsigned int id)
{
	return (struct vmi_section *)(image + SECTIONS) + id;
}

struct vmi_call_entry *rom_call(__u8 *image, unsigned int call)
{
	return (struct vmi_call_entry *)(image + rom_calls_at[call >> 8]) +
	       (call & 0xff);
}

struct vmi_inline *rom_inline(__u8 *image)
{
	return (struct vmi_inline *)(image + INLINE);
}

void fix_checksum(__u8 *image)
{
	unsigned int length = image[2] * VMI_ROM_UNIT, i;
	__u8 sum = 0;

	image[7] = 0;
	for (i = 0; i < length && i < ROM_SIZE; i++)
		sum += image[i];
	image[7] = (__u8)-sum;
}

void build_rom(__u8 *image)
{
	struct vmi_rom_header *h = rom_header(image);
	struct vmi_extable_entry *extable = (void *)(image + EXTABLE);
	unsigned int at = 0x200, id, i;

	memset(image, 0, ROM_SIZE);
	*h = (struct vmi_rom_header){
		.rom_signature = VMI_ROM_SIGNATURE,
		.rom_length = ROM_UNITS,
		.bios_entry = { 0xcb },
		.vmi_signature = VMI_SIGNATURE,
		.api_minor = VMI_API_MINOR,
		.api_major = VMI_API_MAJOR,
		.header_size = VMI_HEADER_SIZE,
		.image_size = ROM_SIZE,
		.load_size = ROM_SIZE + 0x1000,
		.percpu_size = 128,
		.sections = SECTIONS,
		.section_count = VMI_SECTION_COUNT,
		.section_size = sizeof(struct vmi_section),
		.extable = EXTABLE,
		.extable_count = 2,
		.name = "test",
		.call_size = sizeof(struct vmi_call_entry),
	};
	for (id = 0; id < VMI_SECTION_COUNT; id++) {
		rom_calls_at[id] = at;
		*rom_section(image, id) = (struct vmi_section){
			.id = id, .version = 1, .compat = 1,
			.call_count = call_counts[id], .calls = at,
		};
		for (i = 0; i < call_counts[id]; i++) {
			*rom_call(image, id << 8 | i) = (struct vmi_call_entry){
				.offset = CODE + i, .reloc = VMI_RELOC_NONE,
			};
			at += sizeof(struct vmi_call_entry);
		}
	}
	extable[0] = (struct vmi_extable_entry){ CODE + 1, CODE + 100 };
	extable[1] = (struct vmi_extable_entry){ CODE + 2, CODE + 200 };
	*rom_inline(image) = (struct vmi_inline){ 6, { 1, 2, 3, 4, 5, 6 } };
	fix_checksum(image);
}
