// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The event queue of a card, and two cards on the ends of one wire. */
#include "test.h"
#include "vbus_port.h"

#define TYPE	"virtual-ethernet"
#define EVENT	sizeof(struct vbus_ethernet_event)

struct card {
	struct port port;
	struct bus_link events;		/* only its queue rx is used */
};

/* Finds a card that has events, and opens it. */
static u32 find_card(struct bus *bus, struct card *card)
{
	struct bus_link *link = &card->port.link;
	u32 number, interface;

	for (number = 0;; number++) {
		interface = bus_find_from(bus, &number, TYPE);
		bus_open(bus, link, interface);
		if (port_agree(&card->port, VBUS_ETHERNET_GROUP_EVENTS, VBUS_ETHERNET_EVENT_LINK))
			return interface;
		bus_close(link);
		bus_end(bus);
	}
}

/* Shares the queues of a card that was opened. */
static void share(struct card *card)
{
	struct bus_link *link = &card->port.link;
	struct bus *bus = link->bus;
	u32 queue;

	CHECK_EQ(port_agree(&card->port, VBUS_ETHERNET_GROUP_EVENTS, 0xffffffff),
		 VBUS_ETHERNET_EVENT_LINK);
	CHECK_EQ(bus_call(link, VBUS_ETHERNET_EVQQUERY, 0), VBUS_DONE);
	CHECK_EQ(bus->command->length, sizeof(queue));
	memcpy(&queue, bus->data, sizeof(queue));
	CHECK_EQ(queue, VBUS_ETHERNET_EVENTS);
	card->events = (struct bus_link){ .bus = bus, .connection = link->connection };
	CHECK_EQ(bus_share_as(&card->events, BUS_RX, queue, 0), VBUS_DONE);
	CHECK_EQ(bus_call(link, VBUS_ETHERNET_MACQUERY, 0), VBUS_DONE);
	memcpy(card->port.address, bus->data, FRAME_ADDRESS);
	CHECK_EQ(bus_share(link, BUS_RX, 0), VBUS_DONE);
	CHECK_EQ(bus_share(link, BUS_TX, 0), VBUS_DONE);
}

static void close_card(struct card *card)
{
	bus_close(&card->port.link);
	bus_free(&card->events);
}

/* Waits for the state of the link. */
static void expect_up(struct card *card)
{
	struct vbus_ethernet_event event;
	struct vbus_returned got;

	memcpy(&event, bus_await(&card->events, &got), sizeof(event));
	CHECK_EQ(got.used, EVENT);
	CHECK_EQ(event.event, VBUS_ETHERNET_EVENT_LINK);
	CHECK_EQ(event.value, 1);
	CHECK_EQ(event.reserved[0] | event.reserved[1], 0);
}

/* A state is sent after each LINKUP, once; it waits for a buffer, and delays no frames. */
TEST(bus_link, "bus.ethernet.link", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	static struct card cards[2];
	struct card *a = &cards[0], *b = &cards[1];
	struct vbus_returned got;
	u32 interface, round;
	struct bus bus;

	interface = find_card(&bus, a);
	bus_open(&bus, &b->port.link, bus_next(&bus, interface, TYPE));
	share(a);
	share(b);
	bus_offer(&a->events, EVENT);
	port_up(&b->port);
	for (round = 0; round < 5; round++) {
		CHECK(!bus_receive(&a->events, &got));
		port_up(&a->port);
		expect_up(a);
		/* Its state was sent: this buffer is for the next one. */
		bus_offer(&a->events, EVENT);
		bus_offer(&b->port.link, BUS_PACKET);
		port_send(&a->port, a->port.address, b->port.address, 60 + round, round);
		port_expect(&b->port, a->port.address, b->port.address, 60 + round, round);
		bus_offer(&a->port.link, BUS_PACKET);
		port_send(&b->port, b->port.address, a->port.address, 1514, round);
		port_expect(&a->port, b->port.address, a->port.address, 1514, round);
		bus_drain(&a->port.link);
		bus_drain(&b->port.link);
		CHECK_EQ(bus_call(&a->port.link, VBUS_ETHERNET_LINKDOWN, 0), VBUS_DONE);
	}
	/* The state has waited for a buffer since the first LINKUP. */
	bus_offer(&b->events, EVENT);
	expect_up(b);
	bus_offer(&b->events, EVENT);
	port_up(&a->port);
	expect_up(a);
	CHECK(!bus_receive(&b->events, &got));
	close_card(a);
	close_card(b);
	bus_end(&bus);
}

/* There is no event queue before events were agreed on, and none for another connection. */
TEST(bus_link_refuses, "bus.ethernet.link_refuses", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	static struct card card;
	struct bus_link *link = &card.port.link, none;
	struct bus bus;
	u32 interface, round;

	interface = find_card(&bus, &card);
	for (round = 0; round < 2; round++) {
		bus_prepare(&bus, interface, 0)->number = 1;
		CHECK_EQ(bus_command(&bus, VBUS_COMMAND_OPEN), VBUS_ERROR_BUSY);
		CHECK_EQ(port_agree(&card.port, VBUS_ETHERNET_GROUP_EVENTS, 0), 0);
		CHECK_NE(bus_call(link, VBUS_ETHERNET_EVQQUERY, 0), VBUS_DONE);
		none = (struct bus_link){ .bus = &bus, .connection = link->connection };
		CHECK_NE(bus_share_as(&none, BUS_RX, VBUS_ETHERNET_EVENTS, 0), VBUS_DONE);
		bus_free(&none);
		share(&card);
		close_card(&card);
		/* An agreement ends with its connection. */
		bus_open(&bus, link, interface);
		CHECK_NE(bus_call(link, VBUS_ETHERNET_EVQQUERY, 0), VBUS_DONE);
	}
	bus_close(link);
	bus_end(&bus);
}
