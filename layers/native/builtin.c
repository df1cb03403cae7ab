/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Looks up calls in the tables of builtin.S. */
#include "builtin.h"
#include "native.h"

extern const char native_builtin_base[];
extern const struct vmi_section native_builtin_sections[], native_builtin_sections_end[];

static const struct vmi_call_entry *find(unsigned int call)
{
	const struct vmi_section *section;
	unsigned int index = call & 0xff;

	for (section = native_builtin_sections; section < native_builtin_sections_end; section++) {
		const void *calls = native_builtin_base + section->calls;

		if (section->id == call >> 8 && index < section->call_count)
			return (const struct vmi_call_entry *)calls + index;
	}
	return NULL;
}

void *native_builtin_entry(unsigned int call)
{
	const struct vmi_call_entry *entry = find(call);

	/* The linker may have placed the code before the tables, so the offset is signed. */
	return entry ? (void *)(native_builtin_base + (s32)entry->offset) : NULL;
}

unsigned int native_builtin_reloc(unsigned int call)
{
	const struct vmi_call_entry *entry = find(call);

	return entry ? entry->reloc : VMI_RELOC_NONE;
}
