// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The state after the start. */
#include "test.h"
#include "../kernel/layer.h"

TEST(boot_layer, "boot.layer", 1, 0, CORE_PROBE, CORE_INIT)
{
	char expected[17];

	if (!option("layer", expected, sizeof(expected)))
		return;
	if (strcmp(expected, layer.name))
		FAIL("layer is %s, want %s", layer.name, expected);
}

TEST(boot_vcpus, "boot.vcpus", 1, 0)
{
	CHECK_EQ(machine.vcpus_online, machine.vcpu_count);
}

TEST(boot_sites, "boot.sites", 1, 0)
{
	const struct vmi_site *site;
	struct vmi_site_code code;
	u32 changed = 0;

	CHECK(layer.sites > 20);
	if (!layer.present)
		return;
	for (site = vmi_sites_start; site < vmi_sites_end; site++) {
		const u8 *text = (const u8 *)&site->addr + site->addr;
		struct vmi_call_entry entry;

		/* Where privilege does not work, only what needs none may stay. */
		if (!vmi_rom_call(&layer.rom, layer.base, site->call, &entry))
			entry.reloc = VMI_RELOC_NONE;
		if (layer.rom.header.flags & VMI_HEADER_PARAVIRT &&
		    entry.reloc == VMI_RELOC_NONE && site->call != CPU_PAUSE &&
		    site->call != CPU_READ_TSC)
			FAIL("the site of %s stays an instruction that needs privilege",
			     call_name(site->call));

		CHECK(site->length >= 5);
		CHECK_EQ(vmi_rom_site_code(&layer.rom, layer.base, site, &code), 0);
		if (!code.length)
			continue;
		changed++;
		if (memcmp(text, code.code, code.length))
			FAIL("site of %s at %llx is not what the record says",
			     call_name(site->call), (u64)text);
	}
	CHECK_EQ(changed, layer.patched);
}

/* Each kind of memory is readable and writable where the boot information says. */
TEST(boot_memory, "boot.memory", 1, 0)
{
	const struct vmi_boot_info *info = &machine.info;
	u64 gpa = alloc_page(), image_gpa;
	u64 *page = to_linear(gpa);
	static u64 in_image = 0x1122334455667788;

	CHECK_EQ(*page, 0);
	WRITE_ONCE(*page, gpa);
	CHECK_EQ(READ_ONCE(*page), gpa);
	image_gpa = (u64)&in_image - info->image + info->image_gpa;
	CHECK_EQ(*(u64 *)to_linear(image_gpa), in_image);
	WRITE_ONCE(in_image, 5);
	CHECK_EQ(READ_ONCE(*(u64 *)to_linear(image_gpa)), 5);
	free_page(gpa);
	CHECK(info->user_end <= info->direct_map);
}
