// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Ports. Only bare metal has devices. */
#include "test.h"
#include "user_mode.h"

#define UNUSED_PORT	0x1e8	/* nothing on PCs, nothing on hypervisors */
#define CMOS_INDEX	0x70
#define CMOS_DATA	0x71
#define CMOS_SCRATCH	0x7e	/* battery-backed memory that is unused */

static const u32 bad_widths[] = { 0, 3, 5, 8, 0xffffffff };

TEST(port_width, "cpu.port_in.width", 1, 0, CPU_PORT_IN, CPU_PORT_OUT)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad_widths); i++) {
		CHECK_RESULT(vmi.cpu_port_in(UNUSED_PORT, bad_widths[i]), -VMI_EINVAL);
		CHECK_RESULT(vmi.cpu_port_out(UNUSED_PORT, bad_widths[i], 0),
			     -VMI_EINVAL);
	}
}

TEST(port_range, "cpu.port_in.range", 1, 0, CPU_PORT_IN, CPU_PORT_OUT)
{
	static const struct {
		u32 port, width;
		bool good;
	} cases[] = {
		{ 0xffff, 1, true }, { 0xfffe, 2, true }, { 0xfffc, 4, true },
		{ 0xffff, 2, false }, { 0xfffd, 4, false }, { 0x10000, 1, false },
		{ 0xffffffff, 1, false }, { 0xffffffff, 4, false },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		s64 value = vmi.cpu_port_in(cases[i].port, cases[i].width);

		if (cases[i].good)
			CHECK_OP(value, >=, 0);
		else
			CHECK_RESULT(value, -VMI_EINVAL);
		if (!cases[i].good)
			CHECK_RESULT(vmi.cpu_port_out(cases[i].port,
						      cases[i].width, 0),
				     -VMI_EINVAL);
	}
}

TEST(port_unused, "cpu.port_in.unused", 1, 0, CPU_PORT_IN)
{
	CHECK_RESULT(vmi.cpu_port_in(UNUSED_PORT, 1), 0xff);
	CHECK_RESULT(vmi.cpu_port_in(UNUSED_PORT, 2), 0xffff);
	CHECK_RESULT(vmi.cpu_port_in(UNUSED_PORT, 4), 0xffffffff);
}

TEST(port_out_unused, "cpu.port_out.unused", 1, 0, CPU_PORT_OUT)
{
	CHECK_RESULT(vmi.cpu_port_out(UNUSED_PORT, 1, 0x11), 0);
	CHECK_RESULT(vmi.cpu_port_out(UNUSED_PORT, 2, 0x2222), 0);
	CHECK_RESULT(vmi.cpu_port_out(UNUSED_PORT, 4, 0x44444444), 0);
	CHECK_RESULT(vmi.cpu_port_in(UNUSED_PORT, 1), 0xff);
}

TEST(port_cmos, "cpu.port_out.device", 1, 0, CPU_PORT_OUT, CPU_PORT_IN)
{
	u32 i;

	if (!machine.pvh)
		test_skip("bare metal only");
	for (i = 0x51; i < 0x55; i++) {
		CHECK_RESULT(vmi.cpu_port_out(CMOS_INDEX, 1, CMOS_SCRATCH), 0);
		CHECK_RESULT(vmi.cpu_port_out(CMOS_DATA, 1, i), 0);
		CHECK_RESULT(vmi.cpu_port_in(CMOS_DATA, 1), i);
	}
}

/*
 * User code may use the ports whose bits are clear, and no others. With an older layer that lacks
 * the call, it may use none.
 */
TEST(io_bitmap, "cpu.set_io_bitmap.user", 1, 0, CPU_SET_IO_BITMAP)
{
	struct percpu *cpu = this_cpu();
	struct user_context context;
	static struct space space;
	u8 bitmap[IO_BITMAP_SIZE];
	bool allowed;
	int result;

	if (!vmi.cpu_set_io_bitmap)
		test_skip("an older layer");
	space_create(&space);
	space_load(&space);
	memset(bitmap, 0xff, sizeof(bitmap));
	bitmap[0x80 / 8] &= ~(1u << (0x80 % 8));
	bitmap[IO_BITMAP_SIZE - 1] = 0x7f;	/* 0x1ff */
	result = vmi.cpu_set_io_bitmap(&cpu->tss, bitmap, sizeof(bitmap));
	if (result)
		CHECK_RESULT(result, -VMI_ENOSYS);
	allowed = !result;
	CHECK_EQ(user_try(&context, u_in, 0x80, 0), allowed ? 0 : VECTOR_GP + 1);
	CHECK_EQ(user_try(&context, u_in, 0x1ff, 0), allowed ? 0 : VECTOR_GP + 1);
	CHECK_EQ(user_try(&context, u_in, 0x81, 0), VECTOR_GP + 1);
	CHECK_EQ(user_try(&context, u_in, 0x200, 0), VECTOR_GP + 1);
	CHECK_EQ(user_try(&context, u_in, 0xffff, 0), VECTOR_GP + 1);
	CHECK_RESULT(vmi.cpu_set_io_bitmap(&cpu->tss, NULL, 0), allowed ? 0 : -VMI_ENOSYS);
	CHECK_EQ(user_try(&context, u_in, 0x80, 0), VECTOR_GP + 1);
	CHECK_RESULT(vmi.cpu_set_io_bitmap(&cpu->tss, bitmap, 8193), -VMI_EINVAL);
	space_load(NULL);
	space_destroy(&space);
}

TEST(port_string_errors, "cpu.port_in_string.errors", 1, 0, CPU_PORT_IN_STRING,
     CPU_PORT_OUT_STRING)
{
	u8 buffer[8] = { 1, 2, 3, 4 };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad_widths); i++) {
		CHECK_RESULT(vmi.cpu_port_in_string(UNUSED_PORT, bad_widths[i],
						    buffer, 1), -VMI_EINVAL);
		CHECK_RESULT(vmi.cpu_port_out_string(UNUSED_PORT, bad_widths[i],
						     buffer, 1), -VMI_EINVAL);
	}
	CHECK_RESULT(vmi.cpu_port_in_string(0xffff, 2, buffer, 1), -VMI_EINVAL);
	CHECK_RESULT(vmi.cpu_port_out_string(0x10000, 1, buffer, 1), -VMI_EINVAL);
	CHECK_EQ(buffer[0], 1);
}

TEST(port_in_string, "cpu.port_in_string.fills", 1, 0, CPU_PORT_IN_STRING)
{
	u32 width, i;

	for (width = 1; width <= 4; width *= 2) {
		u8 buffer[34];

		memset(buffer, 0x5a, sizeof(buffer));
		CHECK_RESULT(vmi.cpu_port_in_string(UNUSED_PORT, width,
						    buffer + 1, 32 / width), 0);
		CHECK_EQ(buffer[0], 0x5a);
		for (i = 1; i < 33; i++)
			CHECK_EQ(buffer[i], 0xff);
		CHECK_EQ(buffer[33], 0x5a);
		CHECK_RESULT(vmi.cpu_port_in_string(UNUSED_PORT, width,
						    buffer, 0), 0);
		CHECK_EQ(buffer[0], 0x5a);
	}
}

TEST(port_out_string, "cpu.port_out_string.writes", 1, 0, CPU_PORT_OUT_STRING)
{
	u8 values[] = { 0x31, 0x32, 0x33, 0x34 };

	CHECK_RESULT(vmi.cpu_port_out_string(UNUSED_PORT, 1, values, 4), 0);
	CHECK_RESULT(vmi.cpu_port_out_string(UNUSED_PORT, 2, values, 2), 0);
	CHECK_RESULT(vmi.cpu_port_out_string(UNUSED_PORT, 4, values, 1), 0);
	if (!machine.pvh)
		return;
	CHECK_RESULT(vmi.cpu_port_out(CMOS_INDEX, 1, CMOS_SCRATCH), 0);
	CHECK_RESULT(vmi.cpu_port_out_string(CMOS_DATA, 1, values, 3), 0);
	CHECK_RESULT(vmi.cpu_port_in(CMOS_DATA, 1), 0x33);
}

TEST(io_delay_returns, "cpu.io_delay.returns", 1, 0, CPU_IO_DELAY)
{
	u32 i;

	for (i = 0; i < 100; i++) {
		io_delay();
		if (vmi.cpu_io_delay)
			vmi.cpu_io_delay();
	}
	CHECK(!irqs_enabled());
}
