// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Section core: finding a layer, initialization, shutdown. */
#include "test.h"

TEST(core_probe, "core.probe.answers", 1, 0, CORE_PROBE)
{
	CHECK_RESULT(vmi.core_probe(), 0);
	CHECK_RESULT(vmi.core_probe(), 0);
}

TEST(core_init_twice, "core.init.twice", 1, 0, CORE_INIT)
{
	struct vmi_init init = {
		.size = sizeof(init),
		.api_version = VMI_API_VERSION,
		.layer_base = (u64)layer.base,
		.direct_map = machine.info.direct_map,
		.direct_map_size = machine.info.direct_map_size,
		.percpu_gs_offset = PERCPU_VMI,
		.percpu_table = (u64)vmi_percpus,
		.vcpu_count = VCPU_WITHOUT_DATA + 1,
		.apic = machine.apic,
		.low_page = machine.low_page,
		.kernel_cs = KERNEL_CS,
		.kernel_ss = KERNEL_SS,
		.user_cs = USER_CS,
		.user_ss = USER_SS,
	};
	u64 before = now();

	CHECK_RESULT(vmi.core_init(&init), -VMI_EBUSY);
	/* Whatever is wrong besides. */
	init.size = 0;
	CHECK_RESULT(vmi.core_init(&init), -VMI_EBUSY);
	init.api_version = 9 << 16;
	CHECK_RESULT(vmi.core_init(&init), -VMI_EBUSY);
	/* Nothing has changed: time continues. */
	CHECK_OP(now(), >=, before);
}

TEST(core_version, "core.version.sections", 1, 0, CORE_VERSION)
{
	u32 id;

	for (id = 0; id < VMI_SECTION_COUNT; id++) {
		s64 version = vmi.core_version(id);

		if (!layer_offers_section(id)) {
			CHECK_RESULT(version, -VMI_ENOENT);
			continue;
		}
		CHECK_OP(version & 0xffffffff, >=, 1);
		if (layer.present)
			CHECK_EQ(version >> 32, layer_features(id));
	}
}

TEST(core_version_header, "core.version.header", 1, 0, CORE_VERSION)
{
	struct vmi_section section;
	u32 id;

	if (!layer.present)
		test_skip("there is no header");
	for (id = 0; id < VMI_SECTION_COUNT; id++)
		if (vmi_rom_usable(&layer.rom, id, &section))
			CHECK_EQ(vmi.core_version(id) & 0xffffffff,
				 section.version);
}

TEST(core_version_unknown, "core.version.unknown", 1, 0, CORE_VERSION)
{
	/* Not the number after the last call: a later version may have it. */
	CHECK_RESULT(vmi.core_version(0x7fff), -VMI_ENOENT);
	CHECK_RESULT(vmi.core_version(0xffff), -VMI_ENOENT);
	CHECK_RESULT(vmi.core_version(0xffffffff), -VMI_ENOENT);
}

TEST(core_reboot_mode, "core.reboot.errors", 1, 0, CORE_REBOOT)
{
	CHECK_RESULT(vmi.core_reboot(2), -VMI_EINVAL);
	CHECK_RESULT(vmi.core_reboot(0xffffffff), -VMI_EINVAL);
}

/* The end of the machine is tested with end=shutdown, from the host's side. */
TEST(core_shutdown, "core.shutdown.offered", 1, 0, CORE_SHUTDOWN)
{
	CHECK(vmi.core_shutdown != NULL);
}

TEST(core_console, "core.console_write.length", 1, 0, CORE_CONSOLE_WRITE)
{
	static const char text[] = "# written by core.console_write\n";

	CHECK_RESULT(vmi.core_console_write(text, sizeof(text) - 1),
		     sizeof(text) - 1);
	CHECK_RESULT(vmi.core_console_write(text, 0), 0);
}

TEST(core_console_limit, "core.console_write.errors", 1, 0, CORE_CONSOLE_WRITE)
{
	CHECK_RESULT(vmi.core_console_write("#\n", 65537), -VMI_EINVAL);
	CHECK_RESULT(vmi.core_console_write("#\n", ~0ull), -VMI_EINVAL);
}

/* Calls that allow any GS base work before the kernel has set its own. */
TEST(core_any_gs, "core.version.any_gs", 1, 0, CORE_VERSION, CPU_SET_GS_BASE)
{
	u64 tsc, base = (u64)this_cpu();
	static const char text[] = "# with another GS base\n";
	s64 version, written;
	int probe;

	irq_disable();
	/* Nothing here may use this vCPU's own data until the base is restored. */
	vmi.cpu_set_gs_base(0);
	probe = vmi.core_probe();
	version = vmi.core_version(VMI_SECTION_CPU);
	written = vmi.core_console_write(text, sizeof(text) - 1);
	pause();
	io_delay();
	tsc = read_tsc();
	vmi.cpu_set_gs_base(base);
	CHECK_RESULT(probe, 0);
	CHECK_OP(version & 0xffff, >=, 1);
	CHECK_RESULT(written, sizeof(text) - 1);
	CHECK_OP(read_tsc(), >=, tsc);
}

/* Each byte that was asked for is written, and none after that. */
static void check_costs(u32 size, const struct vmi_costs *known)
{
	u8 got[VMI_COSTS_MAX + 1];
	u32 i;

	for (i = 0; i < sizeof(got); i++)
		got[i] = 0xa5;
	CHECK_RESULT(vmi.core_costs((struct vmi_costs *)got, size), 0);
	for (i = 0; i < size; i++)
		CHECK_EQ(got[i], i < sizeof(*known) ? ((const u8 *)known)[i] : 0);
	for (; i < sizeof(got); i++)
		CHECK_EQ(got[i], 0xa5);
}

/* A kernel may know less of the structure than the layer, or more. */
TEST(core_costs_size, "core.costs.size", 1, 0, CORE_COSTS)
{
	struct vmi_costs costs;

	if (!vmi.core_costs)
		test_skip("the layer is older");
	CHECK_RESULT(vmi.core_costs(&costs, sizeof(costs)), 0);
	check_costs(1, &costs);
	check_costs(sizeof(costs.page_fault), &costs);
	check_costs(sizeof(costs) - 1, &costs);
	check_costs(sizeof(costs), &costs);
	check_costs(sizeof(costs) + 1, &costs);
	check_costs(VMI_COSTS_MAX, &costs);
}

TEST(core_costs_values, "core.costs.values", 1, 0, CORE_COSTS)
{
	struct vmi_costs costs;
	u32 i;

	if (!vmi.core_costs)
		test_skip("the layer is older");
	CHECK_RESULT(vmi.core_costs(&costs, sizeof(costs)), 0);
	/* An operation that takes as long as a million copies is no operation, but a failure. */
	CHECK_OP(costs.page_fault, <, 1000000);
	CHECK_OP(costs.flush, <, 1000000);
	CHECK_OP(costs.syscall_trap, <, 1000000);
	CHECK_OP(costs.cpuid, <, 1000000);
	CHECK_OP(costs.run_pages, <=, 512);
	for (i = 0; i < 3; i++)
		CHECK_EQ(costs.reserved[i], 0);
}

TEST(core_costs_errors, "core.costs.errors", 1, 0, CORE_COSTS)
{
	u8 bytes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	u32 i;

	if (!vmi.core_costs)
		test_skip("the layer is older");
	CHECK_RESULT(vmi.core_costs((struct vmi_costs *)bytes, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.core_costs((struct vmi_costs *)bytes, VMI_COSTS_MAX + 1), -VMI_EINVAL);
	CHECK_RESULT(vmi.core_costs((struct vmi_costs *)bytes, 0xffffffff), -VMI_EINVAL);
	for (i = 0; i < sizeof(bytes); i++)
		CHECK_EQ(bytes[i], i + 1);
}
