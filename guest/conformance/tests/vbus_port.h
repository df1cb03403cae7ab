/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* A driver of virtual-ethernet (docs/vbus.md): ports of one switch, and frames between them. */
#ifndef TESTS_VBUS_PORT_H
#define TESTS_VBUS_PORT_H

#include "vbus.h"

/* Bytes of a frame's header, and of an address. */
#define FRAME_HEADER	14
#define FRAME_ADDRESS	6

struct port {
	struct bus_link link;
	u8 address[FRAME_ADDRESS];
};

extern const u8 everybody[FRAME_ADDRESS];

/* Opens a port, asks for its address, and shares its queues. */
void port_open(struct bus *bus, struct port *port, u32 interface);
void port_up(struct port *port);
/* Finds a bus and opens two ports of its device, whose number is returned. */
u32 ports_open(struct bus *bus, struct port ports[2]);
/* Closes both ports, and ends on the bus. */
void ports_close(struct bus *bus, struct port ports[2]);

/*
 * Makes a frame of `length` bytes, at least FRAME_HEADER, which stays valid until the next one is
 * made. What follows its header depends on `seed`.
 */
u8 *frame_make(const u8 *source, const u8 *to, u32 length, u32 seed);
/* Sends such a frame. */
void port_send(struct port *from, const u8 *source, const u8 *to, u32 length, u32 seed);
/* Waits for the next frame, which must be this one. */
void port_expect(struct port *at, const u8 *source, const u8 *to, u32 length, u32 seed);

#endif
