// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* A virtual-ethernet: two ports of one switch exchange frames. */
#include "test.h"
#include "vbus_port.h"

TEST(bus_frames, "bus.ethernet.frames", 1, 0, LINE_NOTIFY)
{
	static struct port ports[2];
	struct port *a = &ports[0], *b = &ports[1];
	struct vbus_returned got;
	struct bus bus;
	u32 round;

	ports_open(&bus, ports);
	port_up(a);
	port_up(b);
	CHECK_EQ(bus_call(&a->link, VBUS_ETHERNET_LINKUP, 0), VBUS_ERROR_EXISTS);
	for (round = 0; round < 20; round++) {
		u32 length = 60 + round * 77 % 1455;

		/* A question to all, and the answer to one, as ARP has it. */
		bus_offer(&b->link, BUS_PACKET);
		port_send(a, a->address, everybody, 60, round);
		port_expect(b, a->address, everybody, 60, round);
		bus_offer(&a->link, BUS_PACKET);
		port_send(b, b->address, a->address, length, round);
		port_expect(a, b->address, a->address, length, round);
	}
	/* A sender does not hear itself. */
	CHECK(!bus_receive(&a->link, &got));
	bus_drain(&a->link);
	bus_drain(&b->link);
	ports_close(&bus, ports);
}

/* Frames that go nowhere: their buffers come back, and the next frame arrives first. */
TEST(bus_drops, "bus.ethernet.drops", 1, 0, LINE_NOTIFY)
{
	static const u8 nobody[FRAME_ADDRESS] = { 2, 9, 9, 9, 9, 9 };
	static struct port ports[2];
	struct port *a = &ports[0], *b = &ports[1];
	struct vbus_returned got;
	struct bus bus;

	ports_open(&bus, ports);
	port_up(a);
	/* The other link is down. */
	bus_offer(&b->link, BUS_PACKET);
	port_send(a, a->address, b->address, 60, 1);
	bus_drain(&a->link);
	port_up(b);
	port_send(a, b->address, b->address, 60, 2);	/* the source is not the sender */
	port_send(a, a->address, nobody, 60, 3);
	/* No frame. */
	bus_send(&a->link, frame_make(a->address, b->address, 60, 3), FRAME_HEADER - 1, 0);
	bus_drain(&a->link);
	CHECK(!bus_receive(&b->link, &got));
	port_send(a, a->address, b->address, 60, 4);
	port_expect(b, a->address, b->address, 60, 4);
	/* Without a buffer a frame is lost, and its sender does not wait. */
	port_send(a, a->address, b->address, 60, 5);
	bus_drain(&a->link);
	bus_offer(&b->link, BUS_PACKET);
	port_send(a, a->address, b->address, 60, 6);
	port_expect(b, a->address, b->address, 60, 6);
	bus_drain(&a->link);
	ports_close(&bus, ports);
}

/* FLUSHRX gives all buffers back empty; afterwards frames come again. */
TEST(bus_flush, "bus.ethernet.flush", 1, 0, LINE_NOTIFY)
{
	static struct port ports[2];
	struct port *a = &ports[0], *b = &ports[1];
	struct vbus_returned got;
	struct bus bus;
	u32 i;

	ports_open(&bus, ports);
	port_up(a);
	port_up(b);
	for (i = 0; i < BUS_COUNT; i++)
		bus_offer(&b->link, 1000);
	CHECK_EQ(bus_call(&b->link, VBUS_ETHERNET_FLUSHRX, 0), VBUS_DONE);
	for (i = 0; i < BUS_COUNT; i++) {
		bus_await(&b->link, &got);
		CHECK_EQ(got.used, 0);
		CHECK_EQ(got.len, 1000);
	}
	bus_offer(&b->link, BUS_PACKET);
	port_send(a, a->address, b->address, 1514, 1);
	port_expect(b, a->address, b->address, 1514, 1);
	CHECK_EQ(bus_call(&b->link, VBUS_ETHERNET_LINKDOWN, 0), VBUS_DONE);
	bus_offer(&b->link, BUS_PACKET);
	port_send(a, a->address, b->address, 60, 2);
	bus_drain(&a->link);
	CHECK(!bus_receive(&b->link, &got));
	ports_close(&bus, ports);
}
