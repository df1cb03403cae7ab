// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Frames in several descriptors (VBUS_ETHERNET_CAP_CHAIN). */
#include "test.h"
#include "vbus_port.h"

#define MORE	VBUS_ETHERNET_MORE
#define CHAIN	VBUS_ETHERNET_CAP_CHAIN

/* No guest has memory there. */
#define NOWHERE	(1ull << 62)

static void send_parts(struct port *from, const struct port *to, const u32 *lengths, u32 count,
		       u32 seed)
{
	u32 i, length = 0;

	for (i = 0; i < count; i++)
		length += lengths[i];
	bus_send_parts(&from->link, frame_make(from->address, to->address, length, seed), lengths,
		       count, 0, MORE);
}

/* A frame arrives whole and in order, however both sides have cut it. */
TEST(bus_chain, "bus.ethernet.chain", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	/* A 0 ends a list. */
	static const u32 cuts[][BUS_COUNT] = {
		{ 60 },
		{ 14, 46 },
		{ 1, 5, 6, 2, 46 },
		{ 6, 8, 1, 1, 1, 1, 1, 41 },
		{ 4096, 1 },
		{ 1, 4096, 4096, 4096 },
		{ 14, 4096, 3, 4096, 100, 2000, 1, 1 },
	};
	static const u32 sizes[] = { 4096, 2048, 1900 };
	static const u32 caps[2] = { CHAIN, CHAIN };
	static struct port ports[2];
	struct port *a = &ports[0], *b = &ports[1];
	struct vbus_returned got;
	u32 i, k, count, length;
	struct bus bus;

	ports_open_with(&bus, ports, caps, 2);
	port_up(a);
	port_up(b);
	for (k = 0; k < ARRAY_SIZE(sizes); k++)
		for (i = 0; i < ARRAY_SIZE(cuts); i++) {
			length = 0;
			for (count = 0; count < BUS_COUNT && cuts[i][count]; count++)
				length += cuts[i][count];
			if (length > BUS_COUNT * sizes[k])
				continue;
			for (u32 room = 0; room < length; room += sizes[k])
				bus_offer(&b->link, sizes[k]);
			send_parts(a, b, cuts[i], count, i + k);
			port_expect_parts(b, a->address, b->address, length, i + k);
			CHECK(!bus_receive(&b->link, &got));
			bus_drain(&a->link);
		}
	ports_close(&bus, ports);
}

/* A frame is delivered when its last descriptor is there, and not before. */
TEST(bus_chain_waits, "bus.ethernet.chain_waits", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	static const u32 caps[3] = { CHAIN, CHAIN, 0 };
	static struct port ports[3];
	struct port *a = &ports[0], *b = &ports[1], *c = &ports[2];
	static u8 half[60];
	u32 round;
	struct bus bus;

	ports_open_with(&bus, ports, caps, 3);
	for (round = 0; round < 3; round++)
		port_up(&ports[round]);
	for (round = 0; round < 10; round++) {
		memcpy(half, frame_make(a->address, b->address, 60, round), 60);
		bus_offer(&b->link, BUS_PACKET);
		bus_offer(&b->link, BUS_PACKET);
		bus_send(&a->link, half, 20 + round, MORE);
		port_send(c, c->address, b->address, 60, 100 + round);
		port_expect_parts(b, c->address, b->address, 60, 100 + round);
		bus_send(&a->link, half + 20 + round, 40 - round, 0);
		port_expect_parts(b, a->address, b->address, 60, round);
	}
	bus_drain(&a->link);
	ports_close_all(&bus, ports, 3);
}

/*
 * The flag means nothing to a sender that has not agreed: each descriptor is a frame. A receiver
 * that has not agreed gets a frame in one buffer, or not at all.
 */
TEST(bus_chain_alone, "bus.ethernet.chain_alone", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	static const u32 caps[2] = { CHAIN, 0 }, cut[] = { 700, 14, 800 }, long_cut[] = { 4096, 1 };
	static struct port ports[2];
	struct port *a = &ports[0], *b = &ports[1];
	struct vbus_returned got;
	struct bus bus;
	u32 i;

	ports_open_with(&bus, ports, caps, 2);
	port_up(a);
	port_up(b);
	for (i = 0; i < 3; i++) {
		bus_offer(&a->link, BUS_PACKET);
		bus_send(&b->link, frame_make(b->address, a->address, 60 + i, i), 60 + i, MORE);
	}
	for (i = 0; i < 3; i++)
		port_expect_parts(a, b->address, a->address, 60 + i, i);
	bus_offer(&b->link, BUS_PACKET);
	send_parts(a, b, cut, 3, 7);
	port_expect_parts(b, a->address, b->address, 1514, 7);
	/* No buffer is large enough: one comes back without a frame. */
	bus_offer(&b->link, BUS_PACKET);
	bus_offer(&b->link, BUS_PACKET);
	send_parts(a, b, long_cut, 2, 8);
	bus_await(&b->link, &got);
	CHECK_EQ(got.used, 0);
	port_send(a, a->address, b->address, 60, 9);
	port_expect(b, a->address, b->address, 60, 9);
	ports_close(&bus, ports);
}

enum breach { EMPTY, ENDLESS, OUTSIDE, OUTSIDE_LATER, LAST_BREACH = OUTSIDE_LATER };

/* Posts a frame to `to` that breaks a rule. */
static void post_breach(struct port *from, const struct port *to, enum breach breach)
{
	static const u32 headers[] = { FRAME_HEADER, 46 };
	struct bus_queue *tx = &from->link.tx;
	u64 gpa = to_gpa(tx->buffers[0]);
	u32 i;

	memcpy(tx->buffers[0], frame_make(from->address, to->address, 60, 1), 60);
	switch (breach) {
	case EMPTY:
		bus_post(tx, gpa, headers[0], MORE);
		bus_post(tx, gpa, 0, MORE);
		bus_post(tx, gpa + headers[0], headers[1], 0);
		break;
	case ENDLESS:
		bus_post(tx, gpa, 60, MORE);
		for (i = 1; i < BUS_COUNT; i++)
			bus_post(tx, gpa, 1, MORE);
		break;
	case OUTSIDE:
		bus_post(tx, gpa, headers[0], MORE);
		bus_post(tx, NOWHERE, headers[1], 0);
		break;
	case OUTSIDE_LATER:
		/* Past the headers that a device may look at. */
		bus_post(tx, gpa, 1024, MORE);
		bus_post(tx, NOWHERE, headers[1], 0);
		break;
	}
	bus_kick(&from->link, tx);
}

/* A breach ends its connection. Nothing of the frame arrives, and other ports go on. */
TEST(bus_chain_breach, "bus.ethernet.chain_breach", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	static const u32 caps[3] = { CHAIN, CHAIN, CHAIN };
	static const u32 cut[] = { 20, 30, 10 }, few[] = { 6, 7 };
	static struct port ports[3];
	struct port *a = &ports[0], *b = &ports[1], *c = &ports[2];
	u32 interface, breach, events;
	struct vbus_returned got;
	struct bus bus;

	interface = ports_open_with(&bus, ports, caps, 3);
	port_up(b);
	port_up(c);
	bus_offer(&b->link, BUS_PACKET);
	for (breach = EMPTY; breach <= LAST_BREACH; breach++) {
		port_up(a);
		/* Fewer bytes than a header are no breach, and no frame. */
		bus_send_parts(&a->link, frame_make(a->address, b->address, 60, 0), few, 2, 0,
			       MORE);
		send_parts(a, b, cut, 3, breach);
		port_expect_parts(b, a->address, b->address, 60, breach);
		bus_drain(&a->link);
		bus_offer(&b->link, BUS_PACKET);
		events = READ_ONCE(bus.registers->events);
		post_breach(a, b, breach);
		while (READ_ONCE(bus.registers->events) == events) {
			CHECK(!bus_receive(&b->link, &got));
			pause();
			watch("the end of the connection");
		}
		CHECK_EQ(bus_event(&bus), VBUS_EVENT_CLOSED);
		CHECK_EQ(bus.command->connection, a->link.connection);
		send_parts(c, b, cut, 3, 10 + breach);
		port_expect_parts(b, c->address, b->address, 60, 10 + breach);
		bus_offer(&b->link, BUS_PACKET);
		bus_close(&a->link);
		port_open(&bus, a, interface, CHAIN);
	}
	ports_close_all(&bus, ports, 3);
}
