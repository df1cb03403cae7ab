/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Section cpu: ports. */
#include "io.h"
#include "native.h"

static bool port_good(u32 port, u32 width)
{
	return (width == 1 || width == 2 || width == 4) && port <= 65536 - width;
}

s64 native_cpu_port_in(u32 port, u32 width)
{
	if (!port_good(port, width))
		return -VMI_EINVAL;
	if (FAULT(PORT_IN_NARROW) && width == 4)
		width = 2;
	switch (width) {
	case 1:
		return inb(port);
	case 2:
		return inw(port);
	default:
		return inl(port);
	}
}

int native_cpu_port_out(u32 port, u32 width, u32 value)
{
	if (!port_good(port, width) && !FAULT(PORT_OUT_ANY_WIDTH))
		return -VMI_EINVAL;
	switch (width) {
	case 1:
		outb(port, value);
		break;
	case 2:
		outw(port, value);
		break;
	default:
		outl(port, value);
	}
	return 0;
}

#define TSS_IO_MAP_BASE 102
#define TSS_IO_MAP 104
#define IO_MAP_MAX 8192

/*
 * User code has no ports while the bitmap is written. The byte after the bitmap is one that a
 * processor reads along with the bits of the last ports.
 */
int native_cpu_set_io_bitmap(void *tss, const void *bitmap, u32 bytes)
{
	volatile u16 *base = (volatile u16 *)((u8 *)tss + TSS_IO_MAP_BASE);
	volatile u8 *map = (volatile u8 *)tss + TSS_IO_MAP;
	const u8 *from = bitmap;
	u32 i;

	if (bytes > IO_MAP_MAX)
		return -VMI_EINVAL;
	*base = 0xffff;
	if (!bytes)
		return 0;
	for (i = 0; i < bytes; i++)
		map[i] = from[i];
	map[bytes] = 0xff;
	if (!FAULT(IO_BITMAP_UNUSED))
		*base = TSS_IO_MAP;
	return 0;
}

/* The string instructions count up: the direction flag is clear during every call. */
#define REP_IN(suffix, port, buffer, count) \
	__asm__ volatile("rep ins" suffix : "+D"(buffer), "+c"(count) : "d"(port) : "memory")
#define REP_OUT(suffix, port, buffer, count) \
	__asm__ volatile("rep outs" suffix : "+S"(buffer), "+c"(count) : "d"(port) : "memory")

int native_cpu_port_in_string(u32 port, u32 width, void *buffer, u64 count)
{
	if (!port_good(port, width))
		return -VMI_EINVAL;
	if (FAULT(PORT_IN_STRING_SHORT) && count)
		count--;
	switch (width) {
	case 1:
		REP_IN("b", (u16)port, buffer, count);
		break;
	case 2:
		REP_IN("w", (u16)port, buffer, count);
		break;
	default:
		REP_IN("l", (u16)port, buffer, count);
	}
	return 0;
}

int native_cpu_port_out_string(u32 port, u32 width, const void *buffer, u64 count)
{
	if (!port_good(port, width))
		return -VMI_EINVAL;
	if (FAULT(PORT_OUT_STRING_SHORT) && count)
		count--;
	switch (width) {
	case 1:
		REP_OUT("b", (u16)port, buffer, count);
		break;
	case 2:
		REP_OUT("w", (u16)port, buffer, count);
		break;
	default:
		REP_OUT("l", (u16)port, buffer, count);
	}
	return 0;
}
