// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Unfinished frames: checksums to be completed, and TCP segments longer than the MTU. */
#include "test.h"
#include "vbus_port.h"

#define CHAIN	VBUS_ETHERNET_CAP_CHAIN
#define CSUM	VBUS_ETHERNET_CAP_CSUM
#define SENDS	(CHAIN | CSUM | VBUS_ETHERNET_CAP_TSO4 | VBUS_ETHERNET_CAP_TSO6)
#define TAKES	(CHAIN | CSUM | VBUS_ETHERNET_CAP_RX_TSO4 | VBUS_ETHERNET_CAP_RX_TSO6)

#define FIN	0x01
#define PSH	0x08
#define ACK	0x10
#define CWR	0x80

#define SEQUENCE	0xfffff000u	/* wraps around in a long segment */
#define IDENTITY	0xfffe

/* A TCP segment: where its headers begin, and the bytes of all of them. */
struct form {
	bool six;
	u32 tcp, headers;
};

static const struct form four = { false, FRAME_HEADER + 20, FRAME_HEADER + 20 + 20 };
static const struct form six = { true, FRAME_HEADER + 40, FRAME_HEADER + 40 + 20 };

static u32 get(const u8 *bytes, u32 at, u32 count)
{
	u32 value = 0;

	while (count--)
		value = value << 8 | bytes[at++];
	return value;
}

static void put(u8 *bytes, u32 at, u32 count, u32 value)
{
	while (count--) {
		bytes[at + count] = (u8)value;
		value >>= 8;
	}
}

/* The sum of words of an internet checksum, added to another one. */
static u32 sum(const u8 *bytes, u32 from, u32 to, u32 value)
{
	for (; from < to; from += 2)
		value += bytes[from] << 8 | (from + 1 < to ? bytes[from + 1] : 0);
	while (value >> 16)
		value = (value & 0xffff) + (value >> 16);
	return value;
}

/* The sum of the pseudo header of a segment in a frame of `length` bytes. */
static u32 pseudo(const u8 *frame, const struct form *form, u32 length)
{
	u32 addresses = FRAME_HEADER + (form->six ? 8 : 12);

	return sum(frame, addresses, form->tcp, 6 + length - form->tcp);
}

/* Makes a segment of `length` bytes with headers, whose checksum is that of the pseudo header. */
static u8 *make(struct port *from, const u8 *to, const struct form *form, u32 length, u32 seed)
{
	u8 *frame = frame_make(from->address, to, length, seed);
	u32 i;

	memset(frame + 12, 0, form->headers - 12);
	if (form->six) {
		put(frame, 12, 2, 0x86dd);
		frame[FRAME_HEADER] = 0x60;
		put(frame, FRAME_HEADER + 4, 2, length - form->tcp);
		frame[FRAME_HEADER + 6] = 6;
		frame[FRAME_HEADER + 7] = 64;
		for (i = 8; i < 40; i++)
			frame[FRAME_HEADER + i] = (u8)(i * 11);
	} else {
		put(frame, 12, 2, 0x0800);
		frame[FRAME_HEADER] = 0x45;
		put(frame, FRAME_HEADER + 2, 2, length - FRAME_HEADER);
		put(frame, FRAME_HEADER + 4, 2, IDENTITY);
		frame[FRAME_HEADER + 8] = 64;
		frame[FRAME_HEADER + 9] = 6;
		memcpy(frame + FRAME_HEADER + 12, (const u8[]){ 10, 0, 0, 1, 10, 0, 0, 2 }, 8);
		put(frame, FRAME_HEADER + 10, 2, ~sum(frame, FRAME_HEADER, form->tcp, 0));
	}
	put(frame, form->tcp, 4, 0x80010009);
	put(frame, form->tcp + 4, 4, SEQUENCE);
	frame[form->tcp + 12] = 0x50;
	frame[form->tcp + 13] = FIN | PSH | ACK | CWR;
	put(frame, form->tcp + 16, 2, pseudo(frame, form, length));
	bus_fill(frame + form->headers, length - form->headers, seed);
	return frame;
}

/* Flags of such a segment: its checksum is to be completed. */
static u32 partial(const struct form *form)
{
	return VBUS_ETHERNET_CSUM | form->tcp << VBUS_ETHERNET_START_SHIFT |
	       16 / 2 << VBUS_ETHERNET_OFFSET_SHIFT;
}

static u32 segments(const struct form *form, u32 size)
{
	return partial(form) | size << VBUS_ETHERNET_SIZE_SHIFT |
	       (form->six ? VBUS_ETHERNET_TSO6 : VBUS_ETHERNET_TSO4);
}

/* Sends the frame in as few buffers as it takes. */
static void send_long(struct port *from, const u8 *frame, u32 length, u32 flags)
{
	u32 lengths[BUS_COUNT], count = 0;

	for (; length; length -= lengths[count++])
		lengths[count] = length < BUS_PACKET ? length : BUS_PACKET;
	bus_send_parts(&from->link, frame, lengths, count, flags, VBUS_ETHERNET_MORE);
}

static void offer_all(struct port *at)
{
	while (at->link.rx.north.tail - at->link.rx.north.head < BUS_COUNT)
		bus_offer(&at->link, BUS_PACKET);
}

/* The sum of a segment with a complete checksum and its pseudo header is all ones. */
static void check_checksum(const u8 *frame, const struct form *form, u32 length)
{
	CHECK_EQ(sum(frame, form->tcp, length, pseudo(frame, form, length)), 0xffff);
}

/* A receiver of incomplete checksums gets frames as they are, and others get them complete. */
TEST(bus_checksum, "bus.ethernet.checksum", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	static const u32 caps[3] = { SENDS, CSUM, 0 }, lengths[] = { 74, 75, 700, 1514 };
	static struct port ports[3];
	struct port *a = &ports[0], *b = &ports[1], *c = &ports[2];
	static u8 sent[BUS_PACKET];
	u32 i, got, flags, length;
	struct bus bus;
	u8 *frame;

	ports_open_with(&bus, ports, caps, 3);
	for (i = 0; i < 3; i++)
		port_up(&ports[i]);
	for (i = 0; i < 2 * ARRAY_SIZE(lengths); i++) {
		const struct form *form = i & 1 ? &six : &four;

		length = lengths[i / 2];
		memcpy(sent, make(a, b->address, form, length, i), length);
		bus_offer(&b->link, BUS_PACKET);
		bus_send(&a->link, sent, length, partial(form));
		frame = port_await(&b->link, &got, &flags);
		CHECK_EQ(got, length);
		CHECK_EQ(flags, partial(form));
		CHECK(!memcmp(frame, sent, length));
		memcpy(sent, c->address, FRAME_ADDRESS);
		bus_offer(&c->link, BUS_PACKET);
		bus_send(&a->link, sent, length, partial(form));
		frame = port_await(&c->link, &got, &flags);
		CHECK_EQ(got, length);
		CHECK_EQ(flags, 0);
		check_checksum(frame, form, length);
		memcpy(frame + form->tcp + 16, sent + form->tcp + 16, 2);
		CHECK(!memcmp(frame, sent, length));
		/* The flags of a sender that has not agreed mean nothing. */
		bus_offer(&b->link, BUS_PACKET);
		frame = make(c, b->address, form, length, i);
		memcpy(sent, frame, length);
		bus_send(&c->link, sent, length, partial(form));
		frame = port_await(&b->link, &got, &flags);
		CHECK_EQ(got, length);
		CHECK_EQ(flags, 0);
		CHECK(!memcmp(frame, sent, length));
	}
	bus_drain(&a->link);
	bus_drain(&c->link);
	ports_close_all(&bus, ports, 3);
}

/* Takes the segments into which a long one was cut, and checks them. */
static void expect_segments(struct port *at, const struct form *form, u32 length, u32 size,
			    u32 seed, u32 expected)
{
	static u8 payload[FRAME_MAX];
	u32 all = length - form->headers, done = 0, number, got, flags, part;
	u8 *frame;

	for (number = 0; done < all; number++) {
		frame = port_await(&at->link, &got, &flags);
		part = all - done < size ? all - done : size;
		CHECK_EQ(got, form->headers + part);
		CHECK_EQ(flags, expected);
		CHECK_EQ(get(frame, form->tcp + 4, 4), SEQUENCE + done);
		CHECK_EQ(frame[form->tcp + 13], ACK | (done ? 0 : CWR) |
			 (done + part == all ? FIN | PSH : 0));
		if (form->six) {
			CHECK_EQ(get(frame, FRAME_HEADER + 4, 2), got - form->tcp);
		} else {
			CHECK_EQ(get(frame, FRAME_HEADER + 2, 2), got - FRAME_HEADER);
			CHECK_EQ(get(frame, FRAME_HEADER + 4, 2), (IDENTITY + number) & 0xffff);
			CHECK_EQ(sum(frame, FRAME_HEADER, form->tcp, 0), 0xffff);
		}
		if (expected)
			CHECK_EQ(get(frame, form->tcp + 16, 2), pseudo(frame, form, got));
		else
			check_checksum(frame, form, got);
		memcpy(payload + done, frame + form->headers, part);
		done += part;
	}
	CHECK(bus_is_filled(payload, all, seed));
}

/* Long segments arrive whole where they are taken, and are cut for others. */
TEST(bus_segments, "bus.ethernet.segments", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	static const u32 caps[4] = { SENDS, TAKES, CSUM, 0 };
	/* Bytes of the payload, and of that of each segment. */
	static const u32 sizes[][2] = {
		{ 9000, 1448 }, { 5792, 1448 }, { 3001, 500 }, { 700, 1448 },
	};
	static struct port ports[4];
	struct port *a = &ports[0], *to;
	static u8 sent[FRAME_MAX];
	u32 i, got, flags, length, size;
	struct bus bus;
	u8 *frame;

	ports_open_with(&bus, ports, caps, 4);
	for (i = 0; i < 4; i++)
		port_up(&ports[i]);
	for (i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
		const struct form *form = i & 1 ? &six : &four;

		length = form->headers + sizes[i / 2][0];
		size = sizes[i / 2][1];
		for (to = &ports[1]; to < &ports[4]; to++) {
			offer_all(to);
			memcpy(sent, make(a, to->address, form, length, i), length);
			send_long(a, sent, length, segments(form, size));
			if (to != &ports[1]) {
				expect_segments(to, form, length, size, i,
						to == &ports[2] ? partial(form) : 0);
				continue;
			}
			frame = port_await(&to->link, &got, &flags);
			CHECK_EQ(got, length);
			CHECK_EQ(flags, segments(form, size));
			CHECK(!memcmp(frame, sent, length));
		}
	}
	bus_drain(&a->link);
	ports_close_all(&bus, ports, 4);
}

/* Frames that contradict their flags reach no port, and the next one arrives. */
TEST(bus_segments_malformed, "bus.ethernet.segments_malformed", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	static const u32 caps[3] = { SENDS, TAKES, 0 };
	static struct port ports[3];
	struct port *a = &ports[0], *to;
	const u32 length = four.headers + 2000, flags = segments(&four, 500);
	struct vbus_returned got;
	struct bus bus;
	u32 i;

	ports_open_with(&bus, ports, caps, 3);
	for (i = 0; i < 3; i++)
		port_up(&ports[i]);
	for (to = &ports[1]; to < &ports[3]; to++) {
		const u32 wrong[] = {
			flags & ~VBUS_ETHERNET_CSUM,
			/* Segments without bytes, over the other IP, with a checksum elsewhere. */
			segments(&four, 0),
			flags | VBUS_ETHERNET_TSO6,
			flags ^ 1 << VBUS_ETHERNET_START_SHIFT,
			flags ^ 1 << VBUS_ETHERNET_OFFSET_SHIFT,
			/* A checksum in the header of Ethernet. */
			VBUS_ETHERNET_CSUM | 4 << VBUS_ETHERNET_START_SHIFT,
		};

		offer_all(to);
		for (i = 0; i < ARRAY_SIZE(wrong); i++)
			bus_send(&a->link, make(a, to->address, &four, length, i), length,
				 wrong[i]);
		/* TCP has one receiver. A checksum lies within its frame. */
		bus_send(&a->link, make(a, everybody, &four, length, i), length, flags);
		bus_send(&a->link, make(a, to->address, &four, 60, i), 60,
			 VBUS_ETHERNET_CSUM | 59 << VBUS_ETHERNET_START_SHIFT);
		bus_drain(&a->link);
		CHECK(!bus_receive(&to->link, &got));
		port_send(a, a->address, to->address, 60, 5);
		port_expect(to, a->address, to->address, 60, 5);
	}
	bus_drain(&a->link);
	ports_close_all(&bus, ports, 3);
}
