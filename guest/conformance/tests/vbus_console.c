// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* A virtual-console: two of them, of which each is the other's client on the host. */
#include "test.h"
#include "vbus.h"

#define TOTAL		(64 * KIB)

static u8 stream_byte(u32 position)
{
	return (u8)(position * 5 + (position >> 8));
}

/* Sends the next bytes if there is room; returns how many. */
static u32 write_some(struct bus_link *from, u32 position)
{
	static u8 bytes[VBUS_CONSOLE_PACKET];
	u32 i, count = MIN(1 + position % VBUS_CONSOLE_PACKET, TOTAL - position);

	bus_reclaim(from);
	if (!count || from->tx.north.tail - from->tx.north.head == BUS_COUNT)
		return 0;
	for (i = 0; i < count; i++)
		bytes[i] = stream_byte(position + i);
	bus_send(from, bytes, count, 0);
	return count;
}

/* Takes the next bytes if there are any; returns how many. */
static u32 read_some(struct bus_link *at, u32 position)
{
	struct vbus_returned got;
	const u8 *bytes = bus_receive(at, &got);
	u32 i;

	if (!bytes)
		return 0;
	for (i = 0; i < got.used; i++)
		CHECK_EQ(bytes[i], stream_byte(position + i));
	bus_offer(at, 1000);
	return got.used;
}

static void pass(struct bus_link *from, struct bus_link *to)
{
	u32 sent = 0, got = 0;

	while (got < TOTAL) {
		sent += write_some(from, sent);
		got += read_some(to, got);
		pause();
		watch("bytes of a console");
	}
	CHECK_EQ(got, TOTAL);
	bus_drain(from);
}

TEST(bus_console, "bus.console.bytes", 1, 0, LINE_NOTIFY)
{
	static struct bus_link one, other;
	struct bus bus;
	struct vbus_command *command;
	u32 i, first = bus_find(&bus, "virtual-console");

	bus_connect(&bus, &one, first);
	bus_connect(&bus, &other, bus_next(&bus, first, "virtual-console"));
	/* A console has one reader. */
	command = bus_prepare(&bus, first, 0);
	command->number = 1;
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_OPEN), VBUS_ERROR_BUSY);
	for (i = 0; i < BUS_COUNT; i++) {
		bus_offer(&one, 1000);
		bus_offer(&other, 1000);
	}
	pass(&one, &other);
	pass(&other, &one);
	/* Bytes wait for a driver that comes later. */
	bus_close(&other);
	write_some(&one, 0);
	bus_drain(&one);
	bus_connect(&bus, &other, bus_next(&bus, first, "virtual-console"));
	bus_offer(&other, 1000);
	while (!read_some(&other, 0)) {
		pause();
		watch("the byte that waits");
	}
	bus_close(&one);
	bus_close(&other);
	bus_end(&bus);
}
