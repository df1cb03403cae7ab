// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "vbus_port.h"
#include "test.h"

static u8 frame[FRAME_MAX];

const u8 everybody[FRAME_ADDRESS] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

u32 port_agree(struct port *port, u32 group, u32 bits)
{
	u32 words[2] = { group, bits };
	struct bus *bus = port->link.bus;

	memcpy(bus->data, words, sizeof(words));
	CHECK_EQ(bus_call(&port->link, VBUS_ETHERNET_NEGCAP, sizeof(words)), VBUS_DONE);
	CHECK_EQ(bus->command->length, sizeof(words));
	memcpy(words, bus->data, sizeof(words));
	CHECK_EQ(words[0], group);
	return words[1];
}

void port_open(struct bus *bus, struct port *port, u32 interface, u32 caps)
{
	bus_open(bus, &port->link, interface);
	CHECK_EQ(bus_call(&port->link, VBUS_ETHERNET_MACQUERY, 0), VBUS_DONE);
	CHECK_EQ(bus->command->length, FRAME_ADDRESS);
	memcpy(port->address, bus->data, FRAME_ADDRESS);
	/* Of one receiver, and not of a manufacturer. */
	CHECK_EQ(port->address[0] & 3, 2);
	CHECK_EQ(bus_call(&port->link, VBUS_ETHERNET_LINKUP, 0), VBUS_ERROR_INVALID);
	if (caps)
		CHECK_EQ(port_agree(port, 0, caps), caps);
	CHECK_EQ(bus_share(&port->link, BUS_RX, 0), VBUS_DONE);
	CHECK_EQ(bus_share(&port->link, BUS_TX, 0), VBUS_DONE);
}

void port_up(struct port *port)
{
	CHECK_EQ(bus_call(&port->link, VBUS_ETHERNET_LINKUP, 0), VBUS_DONE);
}

u32 ports_open(struct bus *bus, struct port ports[2])
{
	static const u32 none[2];

	return ports_open_with(bus, ports, none, 2);
}

u32 ports_open_with(struct bus *bus, struct port *ports, const u32 *caps, u32 count)
{
	u32 i, k, interface = bus_find(bus, "virtual-ethernet");

	for (i = 0; i < count; i++) {
		port_open(bus, &ports[i], interface, caps[i]);
		for (k = 0; k < i; k++)
			CHECK(memcmp(ports[i].address, ports[k].address, FRAME_ADDRESS));
	}
	return interface;
}

void ports_close(struct bus *bus, struct port ports[2])
{
	ports_close_all(bus, ports, 2);
}

void ports_close_all(struct bus *bus, struct port *ports, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		bus_close(&ports[i].link);
	bus_end(bus);
}

u8 *frame_make(const u8 *source, const u8 *to, u32 length, u32 seed)
{
	memcpy(frame, to, FRAME_ADDRESS);
	memcpy(frame + FRAME_ADDRESS, source, FRAME_ADDRESS);
	/* A type for experiments. */
	frame[12] = 0x88;
	frame[13] = 0xb5;
	bus_fill(frame + FRAME_HEADER, length - FRAME_HEADER, seed);
	return frame;
}

void port_send(struct port *from, const u8 *source, const u8 *to, u32 length, u32 seed)
{
	bus_send(&from->link, frame_make(source, to, length, seed), length, 0);
}

static void check_frame(const u8 *bytes, const u8 *source, const u8 *to, u32 length, u32 seed)
{
	CHECK(!memcmp(bytes, to, FRAME_ADDRESS));
	CHECK(!memcmp(bytes + FRAME_ADDRESS, source, FRAME_ADDRESS));
	CHECK(bus_is_filled(bytes + FRAME_HEADER, length - FRAME_HEADER, seed));
}

void port_expect(struct port *at, const u8 *source, const u8 *to, u32 length, u32 seed)
{
	struct vbus_returned got;
	const u8 *bytes = bus_await(&at->link, &got);

	CHECK_EQ(got.used, length);
	check_frame(bytes, source, to, length, seed);
}

u8 *port_await(struct bus_link *link, u32 *length, u32 *flags)
{
	static u8 whole[FRAME_MAX];
	struct vbus_returned got;
	const u8 *bytes;

	*length = 0;
	do {
		bytes = bus_await(link, &got);
		if (!*length)
			*flags = got.flags & ~VBUS_ETHERNET_MORE;
		CHECK_OP(*length + got.used, <=, FRAME_MAX);
		/* Only the last buffer has room left. */
		if (got.flags & VBUS_ETHERNET_MORE)
			CHECK_EQ(got.used, got.len);
		memcpy(whole + *length, bytes, got.used);
		*length += got.used;
	} while (got.flags & VBUS_ETHERNET_MORE);
	return whole;
}

void port_expect_parts(struct port *at, const u8 *source, const u8 *to, u32 length, u32 seed)
{
	u32 got, flags;
	const u8 *bytes = port_await(&at->link, &got, &flags);

	CHECK_EQ(got, length);
	CHECK_EQ(flags, 0);
	check_frame(bytes, source, to, length, seed);
}
