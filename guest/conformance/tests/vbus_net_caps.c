// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* What a driver and a card agree on: NEGCAP. */
#include "test.h"
#include "vbus_port.h"

#define CHAIN	VBUS_ETHERNET_CAP_CHAIN
#define ALL	(CHAIN | VBUS_ETHERNET_CAP_CSUM | VBUS_ETHERNET_CAP_TSO4 |		\
		 VBUS_ETHERNET_CAP_RX_TSO4 | VBUS_ETHERNET_CAP_TSO6 | VBUS_ETHERNET_CAP_RX_TSO6)

static u32 negotiate(struct port *port, u32 group, u32 bits, u32 length)
{
	const u32 words[4] = { group, bits };

	memcpy(port->link.bus->data, words, sizeof(words));
	return bus_call(&port->link, VBUS_ETHERNET_NEGCAP, length);
}

/* The answer has no bit that was not asked for, and none that has no meaning. */
static void check_answers(struct port *port)
{
	u32 has = port_agree(port, 0, 0xffffffff), bit;

	CHECK_EQ(has & ~ALL, 0);
	CHECK(has & CHAIN);
	for (bit = 1; bit; bit <<= 1)
		CHECK_EQ(port_agree(port, 0, bit), bit & has);
	CHECK_EQ(port_agree(port, 0, 0), 0);
	CHECK_EQ(port_agree(port, 0, ~ALL), 0);
	CHECK_EQ(port_agree(port, VBUS_ETHERNET_GROUP_EVENTS, ~VBUS_ETHERNET_EVENT_LINK), 0);
	CHECK_EQ(port_agree(port, 2, 0xffffffff), 0);
	CHECK_EQ(port_agree(port, 0xffffffff, 0xffffffff), 0);
	/* Where nothing of group 1 holds, there is no event queue. */
	CHECK_NE(bus_call(&port->link, VBUS_ETHERNET_EVQQUERY, 0), VBUS_DONE);
	/* No group, a group without bits, more than both. */
	CHECK_NE(negotiate(port, 0, ALL, 0), VBUS_DONE);
	CHECK_NE(negotiate(port, 0, ALL, 4), VBUS_DONE);
	CHECK_NE(negotiate(port, 0, ALL, 7), VBUS_DONE);
	CHECK_NE(negotiate(port, 0, ALL, 9), VBUS_DONE);
	CHECK_NE(negotiate(port, 0, ALL, 16), VBUS_DONE);
}

/* Frames in two descriptors pass or do not: the last answer holds, whatever came before it. */
TEST(bus_agrees, "bus.ethernet.agrees", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	static const u32 cut[] = { 60, 60 };
	static struct port ports[2];
	struct port *a = &ports[0], *b = &ports[1];
	u32 interface, round, length, flags;
	struct bus bus;
	u8 *frame;

	interface = bus_find(&bus, "virtual-ethernet");
	for (round = 0; round < 4; round++) {
		bus_open(&bus, &a->link, interface);
		check_answers(a);
		bus_close(&a->link);
		port_open(&bus, b, interface, CHAIN);
		port_open(&bus, a, interface, round & 1 ? CHAIN : 0);
		port_up(a);
		port_up(b);
		/* The second half is a frame of its own, too. */
		frame = frame_make(a->address, b->address, 120, round);
		memcpy(frame + 60, frame, FRAME_HEADER);
		bus_offer(&b->link, BUS_PACKET);
		bus_offer(&b->link, BUS_PACKET);
		bus_send_parts(&a->link, frame, cut, 2, 0, VBUS_ETHERNET_MORE);
		port_await(&b->link, &length, &flags);
		CHECK_EQ(length, round & 1 ? 120 : 60);
		bus_drain(&a->link);
		bus_close(&a->link);
		bus_close(&b->link);
	}
	bus_end(&bus);
}

/* While the link is up, an answer is refused, and what was agreed on goes on to hold. */
TEST(bus_agrees_down, "bus.ethernet.agrees_down", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	static const u32 caps[2] = { CHAIN, CHAIN }, cut[] = { 20, 10, 30 };
	static struct port ports[2];
	struct port *a = &ports[0], *b = &ports[1];
	struct bus bus;
	u32 round;

	ports_open_with(&bus, ports, caps, 2);
	port_up(b);
	for (round = 0; round < 3; round++) {
		port_up(a);
		CHECK_EQ(negotiate(a, 0, 0, 8), VBUS_ERROR_BUSY);
		CHECK_EQ(negotiate(a, 0, ALL, 8), VBUS_ERROR_BUSY);
		CHECK_EQ(negotiate(b, VBUS_ETHERNET_GROUP_EVENTS, 1, 8), VBUS_ERROR_BUSY);
		bus_offer(&b->link, BUS_PACKET);
		bus_send_parts(&a->link, frame_make(a->address, b->address, 60, round), cut, 3, 0,
			       VBUS_ETHERNET_MORE);
		port_expect_parts(b, a->address, b->address, 60, round);
		bus_drain(&a->link);
		CHECK_EQ(bus_call(&a->link, VBUS_ETHERNET_LINKDOWN, 0), VBUS_DONE);
	}
	ports_close(&bus, ports);
}
