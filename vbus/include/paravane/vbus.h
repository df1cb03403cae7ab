/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A process as a client of a virtual bus: link with -lparavane_vbus_c, or with
 * libparavane_vbus_c.a. docs/vbus.md has the concepts.
 *
 * A client belongs to one thread at a time. vbus_send, vbus_post, vbus_flush,
 * vbus_receive, vbus_undelivered and vbus_watch make no host call but a
 * notification that the device asked for, allocate nothing, and end after a
 * bounded number of steps. vbus_rest and vbus_drain allocate nothing, too.
 */
#ifndef PARAVANE_VBUS_H
#define PARAVANE_VBUS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbus_client;

/* Errors. */
#define VBUS_LOST (-1) /* vbusd or the connection has ended: vbus_reconnect */
#define VBUS_BREACH (-2) /* the device broke the protocol */
#define VBUS_INVALID_ARGUMENT (-3) /* such as a packet longer than a buffer */
#define VBUS_REFUSED (-4) /* vbusd refuses */
#define VBUS_HOST (-5) /* the host refuses something */
#define VBUS_FAILED (-6) /* the disk could not do it */
/* vbus_receive: there is no packet. */
#define VBUS_NO_PACKET ((int64_t)INT_MIN)

/*
 * Joins a bus and opens a device of it. `socket` NULL: that of this user's
 * vbusd. Each of the two queues has `count` descriptors (a power of two), with
 * a buffer of `buffer` bytes each. Returns NULL on failure, with a line that
 * says why in `error`.
 */
struct vbus_client *vbus_connect(const char *socket, const char *bus, const char *device,
				 uint32_t count, uint32_t buffer, char *error, size_t error_len);
/*
 * Connects with at most `pairs` pairs of such queues, 1 to 8: as many as the device has, which
 * vbus_pairs says. The frames of a flow go by one pair, in order.
 */
struct vbus_client *vbus_connect_pairs(const char *socket, const char *bus, const char *device,
				       uint32_t count, uint32_t buffer, uint32_t pairs,
				       char *error, size_t error_len);
uint32_t vbus_pairs(const struct vbus_client *client);
/*
 * vbus_connect for a client that hears whether frames reach the network of the
 * device, such as the host's by a tap. vbus_link says so: 1, 0, or an error. A
 * change ends vbus_wait and vbus_rest until vbus_link was called. Without
 * vbus_connect_hearing, and for devices that do not say so, it is always 1.
 */
struct vbus_client *vbus_connect_hearing(const char *socket, const char *bus, const char *device,
					 uint32_t count, uint32_t buffer, char *error,
					 size_t error_len);
int vbus_link(struct vbus_client *client);
/*
 * vbus_connect for a client that shares its memory, if the attribute `share` of
 * the switch is 1, which vbus_shares says. The other clients of the switch that
 * share may then READ ALL that this one sends, and the device copies only the
 * headers of long packets between two of these. A client that shares takes
 * events: when vbus_wait returns 1 and there is no packet, or fds[1] of vbus_fds
 * is readable, call vbus_event. What was lent to it and not received is lost if
 * vbusd or the connection ends.
 */
struct vbus_client *vbus_connect_sharing(const char *socket, const char *bus, const char *device,
					 uint32_t count, uint32_t buffer, char *error,
					 size_t error_len);
int vbus_shares(const struct vbus_client *client);
/* Leaves the bus. */
void vbus_close(struct vbus_client *client);
/*
 * Sends a packet: 1, 0 if no buffer is free (vbus_wait with `room`), or an error.
 * `packet` may be NULL if `len` is 0.
 */
int vbus_send(struct vbus_client *client, const uint8_t *packet, size_t len);
/*
 * Copies the next packet, at most `len` bytes of it. Returns its length,
 * VBUS_NO_PACKET or an error. `to` may be NULL if `len` is 0.
 */
int64_t vbus_receive(struct vbus_client *client, uint8_t *to, size_t len);
/*
 * Waits for a packet, and with `room` for a free buffer; without end if
 * `milliseconds` is negative. Returns 1 (look), 0 (time over), or an error.
 * It ends for an event, too, which vbus_event then has.
 */
int vbus_wait(struct vbus_client *client, int milliseconds, int room);
/*
 * Packets that were sent and that the device has not taken over, or an error.
 * Takes back the buffers of the others.
 */
int64_t vbus_undelivered(struct vbus_client *client);
/*
 * Connects again after VBUS_LOST, within this time. What was sent
 * and not delivered is delivered, some of it perhaps twice. 1 or an error.
 */
int vbus_reconnect(struct vbus_client *client, uint32_t milliseconds);
/*
 * For real-time clients: how early vbusd does what this one asks for, 0 to 3,
 * at first 1; and memory that causes no page fault. 1 or an error. docs/vbus.md
 * has the bounds.
 */
int vbus_set_priority(struct vbus_client *client, int priority);
int vbus_lock_memory(const struct vbus_client *client);
/* The Ethernet address, 6 bytes: 1, or 0 if the device has none. */
int vbus_mac(const struct vbus_client *client, uint8_t *to);

/*
 * A program with a loop of its own posts several packets and notifies once, and
 * waits in its own poll:
 *
 *	vbus_set_priority(client, 3);
 *	vbus_lock_memory(client);
 *	vbus_fds(client, fds);
 *	for (;;) {
 *		while (work to send && vbus_post(client, packet, len) > 0)
 *			;
 *		vbus_flush(client);
 *		while (vbus_receive(client, packet, len) >= 0)
 *			...
 *		if (vbus_rest(client, 0)) {
 *			poll fds[0] and fds[1] for POLLIN
 *			if (fds[0] is readable)
 *				vbus_drain(client);
 *			if (fds[1] is readable)
 *				vbus_event(client, &event), until it returns 0
 *		}
 *		vbus_watch(client);
 *	}
 *
 * The end of the connection comes as an event, too, of which vbus_event makes
 * VBUS_LOST. So a program that needs no others takes them all the same.
 */
/* vbus_send without the notification. */
int vbus_post(struct vbus_client *client, const uint8_t *packet, size_t len);
/* Notifies the device of what was posted, if it sleeps. */
void vbus_flush(struct vbus_client *client);
/*
 * Asks for a notification on fds[0] of vbus_fds. 1: the caller may sleep. 0:
 * there is a packet, a free buffer if `room` is not 0, or an event.
 */
int vbus_rest(struct vbus_client *client, int room);
/* Ends vbus_rest: the client looks by itself again, also if it returned 0. */
void vbus_watch(struct vbus_client *client);
/*
 * The descriptors that become readable: [0] for notifications after vbus_rest,
 * [1] for events. They are the client's, until vbus_reconnect or vbus_close.
 */
void vbus_fds(const struct vbus_client *client, int fds[2]);
/* Takes the notifications from fds[0], without a wait. 1 or an error. */
int vbus_drain(const struct vbus_client *client);

#define VBUS_EVENT_ADDED 1 /* a device came to the bus */
#define VBUS_EVENT_DROPPED 2 /* a device has left it */
#define VBUS_EVENT_MISSED 3 /* more came than were taken: some are lost */

/* An event of the bus. Texts end with a 0. */
struct vbus_event {
	uint32_t kind; /* VBUS_EVENT_* */
	uint32_t interface; /* its number, which is not used twice */
	char name[64]; /* VBUS_EVENT_ADDED: the device's name */
	char type[64]; /* VBUS_EVENT_ADDED: what a driver must speak */
};

/*
 * The next event: 1, 0 if none has come, or an error. VBUS_LOST: the device was
 * taken away or reset, or vbusd has ended.
 */
int vbus_event(struct vbus_client *client, struct vbus_event *to);
/*
 * Calls the device, for set-up: waits for vbusd. Returns the bytes of the result,
 * of which at most `len` are copied, or an error. Each of the two may be NULL if
 * its length is 0.
 */
int64_t vbus_call(struct vbus_client *client, uint32_t call, const uint8_t *argument,
		  size_t argument_len, uint8_t *to, size_t len);

/* What a client has counted. */
struct vbus_statistics {
	uint64_t sent; /* packets that were posted */
	uint64_t delivered; /* those that the device has taken over */
	uint64_t received; /* packets */
	uint64_t notified; /* notifications to the device: host calls */
	uint64_t slept; /* times that vbus_wait slept */
};

void vbus_statistics(const struct vbus_client *client, struct vbus_statistics *to);

/*
 * Disks: devices of the type virtual-block. Each function waits until the request is done. If vbusd
 * dies during a request, the request is repeated, for at most the time that vbus_disk_open got.
 */
struct vbus_disk;

/* As vbus_connect. `milliseconds`: how long a request waits for another vbusd. */
struct vbus_disk *vbus_disk_open(const char *socket, const char *bus, const char *device,
				 uint32_t milliseconds, char *error, size_t error_len);
void vbus_disk_close(struct vbus_disk *disk);
/* Its size in sectors of 512 bytes. */
uint64_t vbus_disk_sectors(const struct vbus_disk *disk);
/* Whole sectors: `len` is a multiple of 512. 1 or an error. */
int vbus_disk_read(struct vbus_disk *disk, uint64_t sector, uint8_t *to, size_t len);
int vbus_disk_write(struct vbus_disk *disk, uint64_t sector, const uint8_t *from, size_t len);
/* Makes durable what was written before. 1 or an error. */
int vbus_disk_flush(struct vbus_disk *disk);

#ifdef __cplusplus
}
#endif

#endif /* PARAVANE_VBUS_H */
