/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the Ethernet driver share. */
#ifndef DRIVERS_VENET_H
#define DRIVERS_VENET_H

#include <linux/list.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/smp.h>
#include <linux/timer.h>
#include <linux/workqueue.h>
#include "vbus.h"

/* Descriptors of a queue, and of the event queue. */
#define VENET_COUNT 256
#define VENET_EVENTS 4

struct venet;

/* Two queues, and the work for them on one CPU. */
struct venet_pair {
	struct venet *venet;
	struct vbus_queue *rx, *tx;
	struct napi_struct napi;
	unsigned int number;
	/* Where the work is done that an interrupt on another CPU asks for. */
	int cpu;
	call_single_data_t csd;
	/* In place of that, unless the pair has the bus's interrupt. */
	struct vbus_interrupt own;
	/* It left its CPU, which went offline. */
	bool moved;
	char name[32];

	/* Receive: the frame of which parts are missing. */
	struct sk_buff *partial;
	u32 partial_flags;
	/* The frame was dropped, and parts of it are still to come. */
	bool skips;

	/* Transmit, under the lock of the device's queue: bytes that the device has. */
	unsigned int bytes;
	/* The device notifies when it has sent, until it has sent all before this index. */
	bool awaited;
	u32 until;
	/* Looks for what was sent where nothing else does. */
	struct timer_list timer;

	/* For ethtool. */
	u64 interrupts, kicks, quiet, received, sent;
} ____cacheline_aligned_in_smp;

struct venet {
	struct vbus_connection connection;
	struct net_device *dev;
	/* Capabilities that both sides have. */
	u32 caps, event_caps;
	/* Receive: the pages of a buffer. */
	unsigned int order;

	/* The number of pairs that the user wants, and the number that the card has. */
	unsigned int wanted, count;
	/* They may be looked at. */
	bool running;
	/* To hear of CPUs that are online again, while pairs have interrupts of their own. */
	struct hlist_node online;

	/* What the event queue brings. */
	struct vbus_ethernet_event *events;
	struct work_struct event;

	/* The device broke the protocol, or closed the connection. */
	struct delayed_work restart;
	unsigned int failures;		/* attempts in a row to connect again */
	bool broken;
	bool closed;

	struct venet_pair pairs[VBUS_ETHERNET_PAIRS_MAX];
};

static inline unsigned int venet_room(const struct vbus_queue *queue)
{
	return queue->north.count - (queue->north.tail - queue->north.head);
}

/* Tells the device of what was posted to a queue, if it wants to know. */
static inline void venet_kick(struct venet_pair *pair, struct vbus_queue *queue)
{
	if (vbus_side_inject(queue->there)) {
		pair->kicks++;
		vbus_notify(&pair->venet->connection);
	} else {
		pair->quiet++;
	}
}

/* venet.c */
void venet_break(struct venet *venet, int error);

/* venet_events.c */
int venet_share_events(struct venet *venet);
void venet_take_events(struct work_struct *work);

/* Which pairs have interrupts of their own: 0: none; 1: those of a card with several; 2: all. */
extern unsigned int venet_interrupts;

/* venet_irq.c */
void venet_init_pair(struct venet_pair *pair);
void venet_place(struct venet *venet);
void venet_signal(struct vbus_connection *connection);
void venet_request_interrupts(struct venet *venet);
void venet_free_interrupts(struct venet *venet);

/* venet_ethtool.c */
extern const struct ethtool_ops venet_ethtool_ops;
/* Connects again with `wanted` pairs. Under the lock of network devices. */
int venet_again(struct venet *venet);

/* venet_rx.c */
int venet_fill(struct venet_pair *pair);
int venet_receive(struct venet_pair *pair, int budget);
void venet_free_buffers(struct venet_pair *pair);

/* venet_tx.c. Under the lock of the device's queue, but for the first. */
netdev_tx_t venet_xmit(struct sk_buff *skb, struct net_device *dev);
void venet_reclaim(struct venet_pair *pair, int budget);
void venet_free_sent(struct venet_pair *pair);

#endif
