// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* A virtual-ethernet: two ports of one switch exchange frames. */
#include "test.h"
#include "vbus.h"

#define HEADER		14
#define ADDRESS		6

struct port {
	struct bus_link link;
	u8 address[ADDRESS];
};

static u8 frame[BUS_PACKET];
static const u8 everybody[ADDRESS] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

static void open_port(struct bus *bus, struct port *port, u32 interface)
{
	bus_open(bus, &port->link, interface);
	CHECK_EQ(bus_call(&port->link, VBUS_ETHERNET_MACQUERY, 0), VBUS_DONE);
	CHECK_EQ(bus->command->length, ADDRESS);
	memcpy(port->address, bus->data, ADDRESS);
	/* Of one receiver, and not of a manufacturer. */
	CHECK_EQ(port->address[0] & 3, 2);
	CHECK_EQ(bus_call(&port->link, VBUS_ETHERNET_LINKUP, 0), VBUS_ERROR_INVALID);
	CHECK_EQ(bus_share(&port->link, BUS_RX, 0), VBUS_DONE);
	CHECK_EQ(bus_share(&port->link, BUS_TX, 0), VBUS_DONE);
}

static void link_up(struct port *port)
{
	CHECK_EQ(bus_call(&port->link, VBUS_ETHERNET_LINKUP, 0), VBUS_DONE);
}

static u32 open_ports(struct bus *bus, struct port ports[2])
{
	u32 i, interface = bus_find(bus, "virtual-ethernet");

	for (i = 0; i < 2; i++)
		open_port(bus, &ports[i], interface);
	CHECK(memcmp(ports[0].address, ports[1].address, ADDRESS));
	return interface;
}

static void close_ports(struct bus *bus, struct port ports[2])
{
	bus_close(&ports[0].link);
	bus_close(&ports[1].link);
	bus_end(bus);
}

static void send(struct port *from, const u8 *source, const u8 *to, u32 length, u32 seed)
{
	memcpy(frame, to, ADDRESS);
	memcpy(frame + ADDRESS, source, ADDRESS);
	/* A type for experiments. */
	frame[12] = 0x88;
	frame[13] = 0xb5;
	bus_fill(frame + HEADER, length - HEADER, seed);
	bus_send(&from->link, frame, length, 0);
}

/* Waits for the next frame, which must be this one. */
static void expect(struct port *at, const u8 *source, const u8 *to, u32 length, u32 seed)
{
	struct vbus_returned got;
	const u8 *bytes = bus_await(&at->link, &got);

	CHECK_EQ(got.used, length);
	CHECK(!memcmp(bytes, to, ADDRESS));
	CHECK(!memcmp(bytes + ADDRESS, source, ADDRESS));
	CHECK(bus_is_filled(bytes + HEADER, length - HEADER, seed));
}

TEST(bus_frames, "bus.ethernet.frames", 1, 0, LINE_NOTIFY)
{
	static struct port ports[2];
	struct port *a = &ports[0], *b = &ports[1];
	struct vbus_returned got;
	struct bus bus;
	u32 round;

	open_ports(&bus, ports);
	link_up(a);
	link_up(b);
	CHECK_EQ(bus_call(&a->link, VBUS_ETHERNET_LINKUP, 0), VBUS_ERROR_EXISTS);
	for (round = 0; round < 20; round++) {
		u32 length = 60 + round * 77 % 1455;

		/* A question to all, and the answer to one, as ARP has it. */
		bus_offer(&b->link, BUS_PACKET);
		send(a, a->address, everybody, 60, round);
		expect(b, a->address, everybody, 60, round);
		bus_offer(&a->link, BUS_PACKET);
		send(b, b->address, a->address, length, round);
		expect(a, b->address, a->address, length, round);
	}
	/* A sender does not hear itself. */
	CHECK(!bus_receive(&a->link, &got));
	bus_drain(&a->link);
	bus_drain(&b->link);
	close_ports(&bus, ports);
}

/* Frames that go nowhere: their buffers come back, and the next frame arrives first. */
TEST(bus_drops, "bus.ethernet.drops", 1, 0, LINE_NOTIFY)
{
	static const u8 nobody[ADDRESS] = { 2, 9, 9, 9, 9, 9 };
	static struct port ports[2];
	struct port *a = &ports[0], *b = &ports[1];
	struct vbus_returned got;
	struct bus bus;

	open_ports(&bus, ports);
	link_up(a);
	/* The other link is down. */
	bus_offer(&b->link, BUS_PACKET);
	send(a, a->address, b->address, 60, 1);
	bus_drain(&a->link);
	link_up(b);
	send(a, b->address, b->address, 60, 2);		/* the source is not the sender */
	send(a, a->address, nobody, 60, 3);
	bus_send(&a->link, frame, HEADER - 1, 0);	/* no frame */
	bus_drain(&a->link);
	CHECK(!bus_receive(&b->link, &got));
	send(a, a->address, b->address, 60, 4);
	expect(b, a->address, b->address, 60, 4);
	/* Without a buffer a frame is lost, and its sender does not wait. */
	send(a, a->address, b->address, 60, 5);
	bus_drain(&a->link);
	bus_offer(&b->link, BUS_PACKET);
	send(a, a->address, b->address, 60, 6);
	expect(b, a->address, b->address, 60, 6);
	bus_drain(&a->link);
	close_ports(&bus, ports);
}

/* FLUSHRX gives all buffers back empty; afterwards frames come again. */
TEST(bus_flush, "bus.ethernet.flush", 1, 0, LINE_NOTIFY)
{
	static struct port ports[2];
	struct port *a = &ports[0], *b = &ports[1];
	struct vbus_returned got;
	struct bus bus;
	u32 i;

	open_ports(&bus, ports);
	link_up(a);
	link_up(b);
	for (i = 0; i < BUS_COUNT; i++)
		bus_offer(&b->link, 1000);
	CHECK_EQ(bus_call(&b->link, VBUS_ETHERNET_FLUSHRX, 0), VBUS_DONE);
	for (i = 0; i < BUS_COUNT; i++) {
		bus_await(&b->link, &got);
		CHECK_EQ(got.used, 0);
		CHECK_EQ(got.len, 1000);
	}
	bus_offer(&b->link, BUS_PACKET);
	send(a, a->address, b->address, 1514, 1);
	expect(b, a->address, b->address, 1514, 1);
	CHECK_EQ(bus_call(&b->link, VBUS_ETHERNET_LINKDOWN, 0), VBUS_DONE);
	bus_offer(&b->link, BUS_PACKET);
	send(a, a->address, b->address, 60, 2);
	bus_drain(&a->link);
	CHECK(!bus_receive(&b->link, &got));
	close_ports(&bus, ports);
}
