/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the Ethernet driver share. */
#ifndef DRIVERS_VENET_H
#define DRIVERS_VENET_H

#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/timer.h>
#include <linux/workqueue.h>
#include "vbus.h"

#define VENET_RX 0
#define VENET_TX 1
/* Descriptors of a queue. */
#define VENET_COUNT 256

struct venet {
	struct vbus_connection connection;
	struct net_device *dev;
	struct napi_struct napi;
	/* Capabilities that both sides have. */
	u32 caps;

	/* Receive: the pages of a buffer, and the frame of which parts are missing. */
	unsigned int order;
	struct sk_buff *partial;
	u32 partial_flags;

	/* Transmit, under the lock of the device's queue: bytes that the device has. */
	unsigned int bytes;
	/* The device tells when it has sent. */
	bool awaited;
	/* Looks for what was sent where nothing else does. */
	struct timer_list timer;

	/* The device broke the protocol, or closed the connection. */
	struct work_struct restart;
	bool broken;

	/* For ethtool. */
	u64 interrupts, kicks, quiet;
};

static inline struct vbus_queue *venet_queue(struct venet *venet, int number)
{
	return &venet->connection.queues[number];
}

static inline unsigned int venet_room(const struct vbus_queue *queue)
{
	return queue->north.count - (queue->north.tail - queue->north.head);
}

/* Tells the device of what was posted to a queue, if it wants to know. */
static inline void venet_kick(struct venet *venet, struct vbus_queue *queue)
{
	if (vbus_side_inject(queue->there)) {
		venet->kicks++;
		vbus_notify(&venet->connection);
	} else {
		venet->quiet++;
	}
}

/* venet.c */
void venet_break(struct venet *venet, int error);

/* venet_rx.c */
int venet_fill(struct venet *venet);
int venet_receive(struct venet *venet, int budget);
void venet_free_buffers(struct venet *venet);

/* venet_tx.c. Under the lock of the device's queue, but for the first. */
netdev_tx_t venet_xmit(struct sk_buff *skb, struct net_device *dev);
void venet_reclaim(struct venet *venet, int budget);
void venet_free_sent(struct venet *venet);

#endif
