// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Pairs of queues of a card: PAIRS, and the flows that pairs share. */
#include "test.h"
#include "vbus_port.h"

#define PAIRS	3
/* Flows, of which each has a port of its own, and frames of each. */
#define FLOWS	32
#define FRAMES	4
/* A frame: headers of IPv4 and of UDP, and two words. */
#define IP	FRAME_HEADER
#define UDP	(IP + 20)
#define LENGTH	(UDP + 8 + 2)

/* A port with several pairs. */
struct pairs {
	struct port port;		/* its queues are those of pair 0 */
	struct bus_link more[PAIRS];	/* the others; [0] is not used */
};

static struct bus_link *pair_of(struct pairs *at, u32 pair)
{
	return pair ? &at->more[pair] : &at->port.link;
}

/* Numbers of the queues of a pair. */
static u32 rx_number(u32 pair)
{
	return pair ? 2 * pair + 1 : 0;
}

static u32 tx_number(u32 pair)
{
	return pair ? 2 * pair + 2 : 1;
}

static u32 want_pairs(struct bus_link *link, u32 pairs, u32 length)
{
	struct bus *bus = link->bus;

	memset(bus->data, 0, 16);
	memcpy(bus->data, &pairs, sizeof(pairs));
	return bus_call(link, VBUS_ETHERNET_PAIRS, length);
}

static u32 get_pairs(struct bus_link *link, u32 pairs)
{
	u32 got;

	CHECK_EQ(want_pairs(link, pairs, sizeof(pairs)), VBUS_DONE);
	CHECK_EQ(link->bus->command->length, sizeof(got));
	memcpy(&got, link->bus->data, sizeof(got));
	CHECK_OP(got, >=, 1);
	CHECK_OP(got, <=, VBUS_ETHERNET_PAIRS_MAX);
	CHECK_OP(got, <=, pairs);
	return got;
}

/* Opens a port with this number of pairs, and sets its link up. */
static void open_pairs(struct bus *bus, struct pairs *at, u32 interface, u32 pairs)
{
	struct port *port = &at->port;
	u32 pair;

	bus_open(bus, &port->link, interface);
	CHECK_EQ(bus_call(&port->link, VBUS_ETHERNET_MACQUERY, 0), VBUS_DONE);
	memcpy(port->address, bus->data, FRAME_ADDRESS);
	CHECK_EQ(get_pairs(&port->link, pairs), pairs);
	for (pair = 0; pair < pairs; pair++) {
		struct bus_link *link = pair_of(at, pair);

		if (pair)
			*link = (struct bus_link){
				.bus = bus,
				.connection = port->link.connection,
			};
		/* The link needs all queues of all pairs. */
		CHECK_NE(bus_call(&port->link, VBUS_ETHERNET_LINKUP, 0), VBUS_DONE);
		CHECK_EQ(bus_share_as(link, BUS_RX, rx_number(pair), 0), VBUS_DONE);
		CHECK_NE(bus_call(&port->link, VBUS_ETHERNET_LINKUP, 0), VBUS_DONE);
		CHECK_EQ(bus_share_as(link, BUS_TX, tx_number(pair), 0), VBUS_DONE);
	}
	port_up(port);
}

static void close_pairs(struct pairs *at, u32 pairs)
{
	bus_close(&at->port.link);
	while (--pairs)
		bus_free(&at->more[pairs]);
}

TEST(bus_pairs, "bus.ethernet.pairs", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	struct bus_link link, other;
	u32 interface, most, pair;
	struct bus bus;

	interface = bus_find(&bus, "virtual-ethernet");
	bus_open(&bus, &link, interface);
	CHECK_EQ(get_pairs(&link, 1), 1);
	most = get_pairs(&link, 0xffffffff);
	CHECK_EQ(get_pairs(&link, most), most);
	/* None, no number, a number that is cut or too long. */
	CHECK_NE(want_pairs(&link, 0, 4), VBUS_DONE);
	CHECK_NE(want_pairs(&link, 2, 0), VBUS_DONE);
	CHECK_NE(want_pairs(&link, 2, 3), VBUS_DONE);
	CHECK_NE(want_pairs(&link, 2, 8), VBUS_DONE);
	/* The last answer holds: there are no queues of another pair. */
	CHECK_EQ(get_pairs(&link, 2), 2);
	for (pair = 2; pair <= VBUS_ETHERNET_PAIRS_MAX; pair++) {
		other = link;
		CHECK_NE(bus_share_as(&other, BUS_RX, rx_number(pair), 0), VBUS_DONE);
		CHECK_NE(bus_share_as(&other, BUS_TX, tx_number(pair), 0), VBUS_DONE);
		bus_free(&other);
	}
	/* Once a queue is shared, no number is accepted. */
	CHECK_EQ(bus_share_as(&link, BUS_RX, rx_number(1), 0), VBUS_DONE);
	CHECK_EQ(want_pairs(&link, 1, 4), VBUS_ERROR_BUSY);
	CHECK_EQ(want_pairs(&link, 2, 4), VBUS_ERROR_BUSY);
	CHECK_EQ(want_pairs(&link, most, 4), VBUS_ERROR_BUSY);
	bus_close(&link);
	/* A new connection has one pair. */
	bus_connect(&bus, &link, interface);
	other = (struct bus_link){ .bus = &bus, .connection = link.connection };
	CHECK_NE(bus_share_as(&other, BUS_RX, rx_number(1), 0), VBUS_DONE);
	bus_free(&other);
	CHECK_EQ(bus_call(&link, VBUS_ETHERNET_LINKUP, 0), VBUS_DONE);
	bus_close(&link);
	bus_end(&bus);
}

/* A frame of a flow, with its number. */
static u8 *make_flow(const u8 *source, const u8 *to, u32 flow, u32 number)
{
	u8 *frame = frame_make(source, to, LENGTH, 0);

	memset(frame + IP, 0, LENGTH - IP);
	frame[12] = 0x08;
	frame[13] = 0x00;
	frame[IP] = 0x45;
	frame[IP + 3] = LENGTH - IP;
	frame[IP + 8] = 64;
	frame[IP + 9] = 17;
	memcpy(frame + IP + 12, (const u8[]){ 10, 0, 0, 1, 10, 0, 0, 2 }, 8);
	frame[UDP] = 0x80;
	frame[UDP + 1] = (u8)flow;
	frame[UDP + 3] = 9;
	frame[UDP + 5] = LENGTH - UDP;
	frame[UDP + 8] = (u8)flow;
	frame[UDP + 9] = (u8)number;
	return frame;
}

/* Takes a frame of any pair. Returns the pair. */
static u32 await_any(struct pairs *at, u32 pairs, u8 *frame)
{
	struct vbus_returned got;
	const u8 *bytes;
	u32 pair;

	for (;;) {
		for (pair = 0; pair < pairs; pair++) {
			bytes = bus_receive(pair_of(at, pair), &got);
			if (!bytes)
				continue;
			CHECK_EQ(got.used, LENGTH);
			memcpy(frame, bytes, LENGTH);
			bus_offer(pair_of(at, pair), BUS_PACKET);
			return pair;
		}
		pause();
		watch("a frame of any pair");
	}
}

/*
 * The frames of a flow arrive once each, by one pair and in order, whatever the sender's pair.
 * Flows use all pairs, of the sender and of the receiver.
 */
TEST(bus_pair_flows, "bus.ethernet.pair_flows", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	static struct pairs from, to;
	static u8 frame[LENGTH];
	u32 interface, pair, flow, number, i, used = 0;
	u32 of[FLOWS];
	struct bus bus;

	interface = bus_find(&bus, "virtual-ethernet");
	open_pairs(&bus, &from, interface, 2);
	open_pairs(&bus, &to, interface, PAIRS);
	for (pair = 0; pair < PAIRS; pair++)
		for (i = 0; i < BUS_COUNT - 1; i++)
			bus_offer(pair_of(&to, pair), BUS_PACKET);
	for (number = 0; number < FRAMES; number++)
		for (flow = 0; flow < FLOWS; flow++) {
			bus_send(pair_of(&from, flow & 1),
				 make_flow(from.port.address, to.port.address, flow, number),
				 LENGTH, 0);
			pair = await_any(&to, PAIRS, frame);
			CHECK(!memcmp(frame, make_flow(from.port.address, to.port.address, flow,
						       number), LENGTH));
			if (!number)
				of[flow] = pair;
			CHECK_EQ(pair, of[flow]);
			used |= 1u << pair;
		}
	CHECK_EQ(used, (1u << PAIRS) - 1);
	/* All frames of a flow at once. */
	for (flow = 0; flow < FLOWS; flow++) {
		for (number = 0; number < FRAMES; number++)
			bus_send(pair_of(&from, flow & 1),
				 make_flow(from.port.address, to.port.address, flow, number),
				 LENGTH, 0);
		for (number = 0; number < FRAMES; number++) {
			CHECK_EQ(await_any(&to, PAIRS, frame), of[flow]);
			CHECK_EQ(frame[UDP + 8], flow);
			CHECK_EQ(frame[UDP + 9], number);
		}
	}
	/* One for all arrives once. */
	bus_send(pair_of(&from, 1), make_flow(from.port.address, everybody, 0, 77), LENGTH, 0);
	bus_send(pair_of(&from, 1), make_flow(from.port.address, to.port.address, 0, 78), LENGTH,
		 0);
	CHECK_EQ(await_any(&to, PAIRS, frame), of[0]);
	CHECK_EQ(frame[UDP + 9], 77);
	CHECK_EQ(await_any(&to, PAIRS, frame), of[0]);
	CHECK_EQ(frame[UDP + 9], 78);
	for (pair = 0; pair < 2; pair++)
		bus_drain(pair_of(&from, pair));
	close_pairs(&from, 2);
	close_pairs(&to, PAIRS);
	bus_end(&bus);
}

/* A pair without buffers loses its frames, and stops no other. */
TEST(bus_pair_stands, "bus.ethernet.pair_stands", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	static struct pairs from, to;
	struct vbus_returned got;
	const u8 *bytes;
	u32 interface, flow, passed, lost = 0;
	struct bus bus;

	interface = bus_find(&bus, "virtual-ethernet");
	open_pairs(&bus, &from, interface, 1);
	open_pairs(&bus, &to, interface, 2);
	/* Pair 0 has no buffers: its flows are lost. */
	for (flow = 0; flow < FLOWS; flow++) {
		bus_offer(pair_of(&to, 1), BUS_PACKET);
		bus_send(&from.port.link,
			 make_flow(from.port.address, to.port.address, flow, 1), LENGTH, 0);
		bus_drain(&from.port.link);
		bytes = bus_receive(pair_of(&to, 1), &got);
		if (bytes) {
			CHECK_EQ(bytes[UDP + 8], flow);
			continue;
		}
		lost++;
		/* The buffer is still there, for a flow of its pair. */
		for (passed = flow + 1; !bytes && passed < flow + FLOWS; passed++) {
			bus_send(&from.port.link, make_flow(from.port.address, to.port.address,
							    passed % FLOWS, 2), LENGTH, 0);
			bus_drain(&from.port.link);
			bytes = bus_receive(pair_of(&to, 1), &got);
		}
		CHECK(bytes);
	}
	CHECK_NE(lost, 0);
	CHECK_NE(lost, FLOWS);
	CHECK(!bus_receive(pair_of(&to, 0), &got));
	close_pairs(&from, 1);
	close_pairs(&to, 2);
	bus_end(&bus);
}
