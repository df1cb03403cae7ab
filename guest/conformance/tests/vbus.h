/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * A driver of virtual buses (docs/vbus.md): commands of the bridge, connections and their queues.
 * The rings are those of vbus/guest. Every helper fails the test if a device breaks a rule.
 */
#ifndef TESTS_VBUS_H
#define TESTS_VBUS_H

#include "../kernel/types.h"
#include <paravane/vbus_shm.h>

/* Descriptors of a queue, and the largest packet: a page. */
#define BUS_COUNT	8
#define BUS_PACKET	PAGE_SIZE

/* The interrupt of a bus. */
#define VECTOR_BUS	0x59

/* Queues of every class. */
#define BUS_RX		0
#define BUS_TX		1

struct bus {
	u32 line;			/* BUS_NO_LINE: the machine has no lines */
	u64 gpa;			/* of the registers */
	struct vbus_bridge *registers;
	struct vbus_command *command;	/* in a page; its data follows */
	u8 *data;
	bool stores;			/* no calls: by stores to the registers */
};

#define BUS_NO_LINE	0xffffffff

struct bus_queue {
	struct vbus_north north;
	struct vbus_posted posted[BUS_COUNT];
	struct vbus_ioq *ioq;
	u8 *buffers[BUS_COUNT];		/* used in turn */
	u32 next;
};

struct bus_link {
	struct bus *bus;
	u32 connection;
	struct bus_queue rx, tx;
};

/*
 * Finds the bus that has an interface of this type, and begins on it. Returns the interface. The
 * test is skipped if the machine has none.
 */
u32 bus_find(struct bus *bus, const char *type);
/* Finds it from the bus with this number on, which becomes that of the bus that was found. */
u32 bus_find_from(struct bus *bus, u32 *number, const char *type);
/* The next interface of this type after `after`, or 0. */
u32 bus_next(struct bus *bus, u32 after, const char *type);
/* Ends all connections and frees what bus_find() took. */
void bus_end(struct bus *bus);

/*
 * Carries out *bus->command, whose `command` is this, by the call if the layer has it and no stores
 * are wanted. Returns the status.
 */
u32 bus_command(struct bus *bus, u32 command);
/* Gives a command at any address, by the call. */
int bus_command_at(struct bus *bus, u64 gpa);
/* Maps the registers of the bridge with this number, from 0. False: there is none. */
bool bus_show(struct bus *bus, u32 number);
/* Clears *bus->command, and sets what most commands need. */
struct vbus_command *bus_prepare(struct bus *bus, u32 interface, u32 connection);

/* Opens a connection without queues. */
void bus_open(struct bus *bus, struct bus_link *link, u32 interface);
/* Makes a queue whose indices begin at `start`, and shares it. Returns the status. */
u32 bus_share(struct bus_link *link, u32 queue, u32 start);
/* Makes and shares queue `number` of the device: it is the link's queue BUS_RX or BUS_TX. */
u32 bus_share_as(struct bus_link *link, u32 queue, u32 number, u32 start);
/* Opens a connection and shares both queues. */
void bus_connect(struct bus *bus, struct bus_link *link, u32 interface);
/* Closes the connection, and frees its queues. */
void bus_close(struct bus_link *link);
/* Frees the queues of a connection that has ended. */
void bus_free(struct bus_link *link);
/* Waits for an event. Returns its kind; what it is about is in *bus->command. */
u32 bus_event(struct bus *bus);
/* A call of the device. Its argument and its result are in bus->data. Returns the status. */
u32 bus_call(struct bus_link *link, u32 call, u32 length);

/* Sends a packet to an echo device, waits for its return, and checks it. */
void bus_exchange(struct bus_link *link, u32 length, u32 seed);

/* Notifies the device if it wants that of this queue. Returns whether it did. */
bool bus_kick(struct bus_link *link, struct bus_queue *queue);
/* Posts a buffer of the caller's. The device is not notified. */
void bus_post(struct bus_queue *queue, u64 gpa, u32 length, u32 flags);
/* Posts an empty buffer of `length` bytes. */
void bus_offer(struct bus_link *link, u32 length);
/* Sends a packet with these flags. A copy is made. */
void bus_send(struct bus_link *link, const void *packet, u32 length, u32 flags);
/*
 * Sends a packet in `count` buffers of these lengths. The first has the flags, and each but the
 * last has the flag `more`, too.
 */
void bus_send_parts(struct bus_link *link, const void *packet, const u32 *lengths, u32 count,
		    u32 flags, u32 more);
/* Takes back what was sent. Returns the number of buffers. */
u32 bus_reclaim(struct bus_link *link);
/* Waits until all that was sent has come back. */
void bus_drain(struct bus_link *link);
/* Takes a packet if there is one. It stays valid until BUS_COUNT - 1 more buffers are offered. */
const u8 *bus_receive(struct bus_link *link, struct vbus_returned *packet);
/* Waits for a packet by looking. */
const u8 *bus_await(struct bus_link *link, struct vbus_returned *packet);

/* Packets of a test: bytes that depend on seed and position. */
void bus_fill(u8 *packet, u32 length, u32 seed);
bool bus_is_filled(const u8 *packet, u32 length, u32 seed);

#endif
