/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* A driver of virtual-ethernet (docs/vbus.md): ports of one switch, and frames between them. */
#ifndef TESTS_VBUS_PORT_H
#define TESTS_VBUS_PORT_H

#include "vbus.h"

/* Bytes of a frame's header, and of an address. */
#define FRAME_HEADER	14
#define FRAME_ADDRESS	6
/* The largest frame: a queue full of pages. */
#define FRAME_MAX	(BUS_COUNT * BUS_PACKET)

struct port {
	struct bus_link link;
	u8 address[FRAME_ADDRESS];
};

extern const u8 everybody[FRAME_ADDRESS];

/* Asks for capabilities of a group. Returns those that hold. */
u32 port_agree(struct port *port, u32 group, u32 bits);
/* Opens a port, asks for its address, agrees on `caps` of group 0, and shares its queues. */
void port_open(struct bus *bus, struct port *port, u32 interface, u32 caps);
void port_up(struct port *port);
/* Finds a bus and opens two ports of its device, whose number is returned. */
u32 ports_open(struct bus *bus, struct port ports[2]);
/* Finds a bus and opens `count` ports, of which each agrees on capabilities of its own. */
u32 ports_open_with(struct bus *bus, struct port *ports, const u32 *caps, u32 count);
/* Closes both ports, and ends on the bus. */
void ports_close(struct bus *bus, struct port ports[2]);
void ports_close_all(struct bus *bus, struct port *ports, u32 count);

/*
 * Makes a frame of `length` bytes, at least FRAME_HEADER, which stays valid until the next one is
 * made. The data after its header depends on `seed`.
 */
u8 *frame_make(const u8 *source, const u8 *to, u32 length, u32 seed);
/* Sends such a frame. */
void port_send(struct port *from, const u8 *source, const u8 *to, u32 length, u32 seed);
/* Waits for the next frame, which must be this one. */
void port_expect(struct port *at, const u8 *source, const u8 *to, u32 length, u32 seed);
/*
 * Waits for a frame that may take several buffers. Returns a copy, which stays valid until the next
 * call. The flags lack VBUS_ETHERNET_MORE.
 */
u8 *port_await(struct bus_link *link, u32 *length, u32 *flags);
/* As port_expect(), for a frame that may take several buffers. */
void port_expect_parts(struct port *at, const u8 *source, const u8 *to, u32 length, u32 seed);

#endif
