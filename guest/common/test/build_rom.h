/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* A small but complete layer image to damage. */
#ifndef BUILD_ROM_H
#define BUILD_ROM_H

#include "../vmi_rom.h"

#define ROM_UNITS	8
#define ROM_SIZE	(ROM_UNITS * VMI_ROM_UNIT)
#define CODE		0xc00	/* where the entries point */

/* Where the parts are. */
#define SECTIONS	0x80
#define EXTABLE		0xb00
#define INLINE		0xb80

extern unsigned int rom_calls_at[VMI_SECTION_COUNT];

/* All sections, all calls, two exception table entries, one inline record. */
void build_rom(__u8 *image);
/* After a change: the checksum right again. */
void fix_checksum(__u8 *image);

struct vmi_rom_header *rom_header(__u8 *image);
struct vmi_section *rom_section(__u8 *image, unsigned int id);
struct vmi_call_entry *rom_call(__u8 *image, unsigned int call);
struct vmi_inline *rom_inline(__u8 *image);

#endif
