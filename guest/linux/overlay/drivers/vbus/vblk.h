/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the block driver share. */
#ifndef DRIVERS_VBLK_H
#define DRIVERS_VBLK_H

#include <linux/blk-mq.h>
#include <linux/completion.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include "vbus.h"

/* The queue of requests, and its descriptors. */
#define VBLK_TX 1
#define VBLK_COUNT 1024
/* Most requests at a time, and most data descriptors of one. */
#define VBLK_DEPTH 128
#define VBLK_SEGMENTS 128

struct vblk {
	struct vbus_connection connection;
	struct gendisk *disk;
	struct blk_mq_tag_set tags;
	int index;
	struct vbus_block_geometry geometry;
	/* A request's header is at the place of its first descriptor, and stays as long. */
	struct vbus_block_request *headers;

	spinlock_t lock;
	/* Requests that the device has, the oldest first. */
	struct list_head busy;
	/* The connection ended, or the device broke the protocol: it must be connected again. */
	bool broken;
	/* There is no device any more. */
	bool dead;
	struct work_struct restart;
	/* The attempt to add the disk has ended, and whether it was added. */
	struct completion tried;
	bool added;
};

/* What belongs to a request. */
struct vblk_request {
	struct list_head busy;
	/* Of its header. */
	u32 place;
	/* Connections that ended while the device had it. */
	unsigned int lost;
	blk_status_t status;
};

static inline struct vbus_queue *vblk_queue(struct vblk *vblk)
{
	return &vblk->connection.queues[VBLK_TX];
}

/* vblk.c. Under the lock. */
void vblk_break(struct vblk *vblk, int error);

/* vblk_queue.c */
extern const struct blk_mq_ops vblk_mq_ops;
void vblk_signal(struct vbus_connection *connection);
/* After the connection was closed: requests that are not done go back to the queue, or fail. */
void vblk_return_all(struct vblk *vblk, bool again);

#endif
