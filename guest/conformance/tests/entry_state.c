// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The state in which a hypervisor enters the kernel, and how long what it passes stays. */
#include "test.h"

/* boot/entry64.S */
extern u64 entry_rsp, entry_flags;

static void need_hypervisor(void)
{
	if (machine.pvh)
		test_skip("no hypervisor started this kernel");
}

/* In the direct map, and not in RAM that the kernel may use. */
static void check_kept(u64 start, u64 size, const char *what)
{
	const struct vmi_boot_info *info = &machine.info;
	u64 gpa = start - info->direct_map;
	u32 i;

	if (gpa >= info->direct_map_size || size > info->direct_map_size - gpa)
		FAIL("the %s at 0x%llx is not in the direct map", what, start);
	for (i = 0; i < info->mem_count; i++) {
		const struct vmi_mem *mem = &info->mem[i];

		if (mem->kind == VMI_MEM_RAM && gpa < mem->gpa + mem->size &&
		    mem->gpa < gpa + size)
			FAIL("the %s is in RAM that the kernel may use", what);
	}
}

TEST(entry_registers, "boot.entry_state", 1, 0)
{
	need_hypervisor();
	CHECK_EQ(entry_flags & (FLAGS_DF | FLAGS_TF | FLAGS_NT | FLAGS_AC), 0);
	CHECK_EQ(entry_rsp & 7, 0);
	check_kept(entry_rsp - 4096, 4096, "stack");
}

/* The boot information and all that it refers to stay where they are, as they were. */
TEST(entry_information, "boot.information_stays", 1, TEST_LAST)
{
	const struct vmi_boot_info *info = machine.info_at;
	const char *line = (const char *)info->command_line;

	need_hypervisor();
	check_kept((u64)info, info->size, "boot information");
	check_kept((u64)line, strlen(line) + 1, "command line");
	if (info->device_count)
		check_kept(info->devices, (u64)info->device_count * info->device_size, "devices");
	CHECK(!memcmp(info, &machine.info, MIN(info->size, sizeof(machine.info))));
	CHECK(!strncmp(line, machine.command_line, sizeof(machine.command_line) - 1));
}

/* Addresses of programs, the direct map and the image are apart. */
TEST(entry_ranges, "boot.ranges", 1, 0)
{
	const struct vmi_boot_info *info = &machine.info;
	u32 i;

	CHECK_EQ(info->direct_map % PAGE_SIZE, 0);
	for (i = 0; i < info->mem_count; i++)
		if (info->mem[i].kind == VMI_MEM_RAM && !machine.pvh)
			CHECK_OP(info->mem[i].gpa + info->mem[i].size, <=, info->direct_map_size);
	/* The image is where it says, in RAM. */
	CHECK_OP((u64)image_start, >=, info->image);
	CHECK_OP((u64)image_end, <=, info->image + info->image_size);
}
