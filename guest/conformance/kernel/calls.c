// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "calls.h"
#include "builtin.h"

struct vmi_calls vmi;
struct layer layer = { .name = "none" };

static const char *const call_names[] = {
#define X(SECTION, section, CALL, name, number, CLASS, since) #section "." #name,
	VMI_FOR_EACH_CALL(X)
#undef X
};

static const u16 call_numbers[] = {
#define X(SECTION, section, CALL, name, number, CLASS, since) number,
	VMI_FOR_EACH_CALL(X)
#undef X
};

const char *call_name(u32 call)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(call_numbers); i++)
		if (call_numbers[i] == call)
			return call_names[i];
	return "?";
}

void *layer_entry(u32 call)
{
	struct vmi_call_entry entry;

	if (!layer.present)
		return native_builtin_entry(call);
	if (!vmi_rom_call(&layer.rom, layer.base, call, &entry))
		return NULL;
	return (void *)(layer.base + entry.offset);
}

/* Stands for every call of a section that the layer does not offer. */
static s64 absent(void)
{
	return -VMI_ENOSYS;
}

static void *entry_or_absent(u32 call)
{
	void *entry = layer_entry(call);

	return entry || layer_offers_section(call >> 8) ? entry : absent;
}

void calls_fill(void)
{
#define X(SECTION, section, CALL, name, number, CLASS, since) \
	vmi.section##_##name = (vmi_##section##_##name##_fn *)entry_or_absent(number);
	VMI_FOR_EACH_CALL(X)
#undef X
}

bool layer_offers_section(u32 id)
{
	struct vmi_section section;

	if (!layer.present)
		return layer_entry(id << 8) != NULL;
	return vmi_rom_usable(&layer.rom, id, &section);
}

u32 layer_features(u32 id)
{
	struct vmi_section section;

	if (!layer.present)
		return id == VMI_SECTION_CPU ? VMI_CPU_TASK_SWITCHED |
		       VMI_CPU_SEGMENTS | VMI_CPU_XCR :
		       id == VMI_SECTION_MMU ? VMI_MMU_USER_ISOLATION : 0;
	if (!vmi_rom_usable(&layer.rom, id, &section))
		return 0;
	return section.features;
}

static u64 builtin_fixup(u64 rip)
{
	const struct native_builtin_extable *entry = __start_vmi_extable;
	const struct native_builtin_extable *end = __stop_vmi_extable;

	for (; entry < end; entry++)
		if ((u64)&entry->insn + entry->insn == rip)
			return (u64)&entry->fixup + entry->fixup;
	return 0;
}

u64 layer_fault_fixup(u64 rip)
{
	if (layer.present)
		return vmi_rom_fixup(&layer.rom, layer.base, rip);
	return builtin_fixup(rip);
}

bool layer_older_than(u32 minor)
{
	return layer.present && layer.rom.header.api_minor < minor;
}
