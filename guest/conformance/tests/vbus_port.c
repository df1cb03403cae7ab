// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "vbus_port.h"
#include "test.h"

static u8 frame[BUS_PACKET];

const u8 everybody[FRAME_ADDRESS] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

void port_open(struct bus *bus, struct port *port, u32 interface)
{
	bus_open(bus, &port->link, interface);
	CHECK_EQ(bus_call(&port->link, VBUS_ETHERNET_MACQUERY, 0), VBUS_DONE);
	CHECK_EQ(bus->command->length, FRAME_ADDRESS);
	memcpy(port->address, bus->data, FRAME_ADDRESS);
	/* Of one receiver, and not of a manufacturer. */
	CHECK_EQ(port->address[0] & 3, 2);
	CHECK_EQ(bus_call(&port->link, VBUS_ETHERNET_LINKUP, 0), VBUS_ERROR_INVALID);
	CHECK_EQ(bus_share(&port->link, BUS_RX, 0), VBUS_DONE);
	CHECK_EQ(bus_share(&port->link, BUS_TX, 0), VBUS_DONE);
}

void port_up(struct port *port)
{
	CHECK_EQ(bus_call(&port->link, VBUS_ETHERNET_LINKUP, 0), VBUS_DONE);
}

u32 ports_open(struct bus *bus, struct port ports[2])
{
	u32 i, interface = bus_find(bus, "virtual-ethernet");

	for (i = 0; i < 2; i++)
		port_open(bus, &ports[i], interface);
	CHECK(memcmp(ports[0].address, ports[1].address, FRAME_ADDRESS));
	return interface;
}

void ports_close(struct bus *bus, struct port ports[2])
{
	bus_close(&ports[0].link);
	bus_close(&ports[1].link);
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

void port_expect(struct port *at, const u8 *source, const u8 *to, u32 length, u32 seed)
{
	struct vbus_returned got;
	const u8 *bytes = bus_await(&at->link, &got);

	CHECK_EQ(got.used, length);
	CHECK(!memcmp(bytes, to, FRAME_ADDRESS));
	CHECK(!memcmp(bytes + FRAME_ADDRESS, source, FRAME_ADDRESS));
	CHECK(bus_is_filled(bytes + FRAME_HEADER, length - FRAME_HEADER, seed));
}
