/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A process as a client of a virtual bus: link with -lparavane_vbus_c, or with
 * libparavane_vbus_c.a. docs/vbus.md has the concepts.
 *
 * A client belongs to one thread at a time. vbus_send and vbus_receive make no
 * host call but a notification that the device asked for, allocate nothing,
 * and end after a bounded number of steps.
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
 */
int vbus_wait(struct vbus_client *client, int milliseconds, int room);
/* Packets that were sent and that the device has not taken over, or an error. */
int64_t vbus_undelivered(struct vbus_client *client);
/*
 * Makes the connection anew after VBUS_LOST, within this time. What was sent
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
 * Disks: devices of the type virtual-block. Each function waits until the request is done. If vbusd
 * dies meanwhile, the request is made again, for at most the time that vbus_disk_open got.
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
