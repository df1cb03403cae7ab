// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests to a disk of the virtual bus. The device stores a request's status when it is done, in
 * any order; descriptors come back in the order of the ring. It notifies unless this side looks
 * already.
 */
#include <linux/bvec.h>
#include "vblk.h"

/* Looks for one notification, before the interrupts of the CPU get a turn in between. */
#define ROUNDS 16
/* The most connections that a request is given to, if each ends before it is done. */
#define CONNECTIONS 3

static unsigned int room(const struct vbus_queue *queue)
{
	return queue->north.count - (queue->north.tail - queue->north.head);
}

static blk_status_t to_status(u32 status)
{
	switch (status) {
	case VBUS_BLOCK_DONE:
		return BLK_STS_OK;
	case VBUS_BLOCK_UNSUPPORTED:
		return BLK_STS_NOTSUPP;
	default:
		return BLK_STS_IOERR;
	}
}

static void finish(struct vblk_request *mine, blk_status_t status)
{
	list_del(&mine->busy);
	mine->status = status;
	blk_mq_complete_request(blk_mq_rq_from_pdu(mine));
}

/* Completes what is done, and takes descriptors back. Under the lock. */
static void reap(struct vblk *vblk)
{
	struct vblk_request *mine, *next;
	struct vbus_returned returned;
	int taken;

	/* First, since what comes back has a status: its header is used again after this. */
	do
		taken = vbus_north_take(&vblk_queue(vblk)->north, &returned);
	while (taken > 0);
	list_for_each_entry_safe(mine, next, &vblk->busy, busy) {
		/* After it the device touches no data. */
		u32 status = smp_load_acquire(&vblk->headers[mine->place].status);

		if (status != VBUS_BLOCK_PENDING)
			finish(mine, to_status(status));
	}
	if (taken < 0)
		vblk_break(vblk, taken);
}

static void work(void *data)
{
	struct vblk *vblk = data;

	reap(vblk);
	blk_mq_start_stopped_hw_queues(vblk->disk->queue, true);
}

void vblk_signal(struct vbus_connection *connection)
{
	struct vblk *vblk = container_of(connection, struct vblk, connection);
	struct vbus_queue *queue = vblk_queue(vblk);

	/* Before the queue is shared there is nothing; it may be another device's interrupt. */
	if (!smp_load_acquire(&queue->here) || !READ_ONCE(queue->here->pending))
		return;
	spin_lock(&vblk->lock);
	if (!vblk->broken && !vblk->dead) {
		while (vbus_side_wake_up(queue->here, ROUNDS, work, vblk))
			;
	}
	spin_unlock(&vblk->lock);
}

/* Describes the request. Returns false if the device has no such operation. */
static bool describe(struct request *rq, struct vbus_block_request *header)
{
	u32 flags = 0, operation;

	switch (req_op(rq)) {
	case REQ_OP_READ:
		operation = VBUS_BLOCK_READ;
		break;
	case REQ_OP_WRITE:
		operation = VBUS_BLOCK_WRITE;
		break;
	case REQ_OP_FLUSH:
		operation = VBUS_BLOCK_FLUSH;
		break;
	case REQ_OP_DISCARD:
		operation = VBUS_BLOCK_DISCARD;
		break;
	case REQ_OP_WRITE_ZEROES:
		operation = VBUS_BLOCK_ZERO;
		if (!(rq->cmd_flags & REQ_NOUNMAP))
			flags = VBUS_BLOCK_UNMAP;
		break;
	default:
		return false;
	}
	header->operation = operation;
	header->flags = flags;
	header->sector = operation == VBUS_BLOCK_FLUSH ? 0 : blk_rq_pos(rq);
	header->sectors = operation == VBUS_BLOCK_FLUSH ? 0 : blk_rq_sectors(rq);
	WRITE_ONCE(header->status, VBUS_BLOCK_PENDING);
	return true;
}

static int post(struct vbus_queue *queue, u64 ptr, u32 len, bool more)
{
	struct vbus_buffer buffer = {
		.ptr	= ptr,
		.len	= len,
		.flags	= more ? VBUS_BLOCK_MORE : 0,
	};

	return vbus_north_post(&queue->north, &buffer);
}

/* Posts header and data, of `left` bytes; there is room for them. */
static int post_all(struct vbus_queue *queue, struct request *rq,
		    struct vbus_block_request *header, u32 left)
{
	struct req_iterator iterator;
	struct bio_vec vec;
	int error;

	error = post(queue, virt_to_phys(header), sizeof(*header), left);
	if (error || !left)
		return error;
	rq_for_each_bvec(vec, rq, iterator) {
		left -= vec.bv_len;
		error = post(queue, page_to_phys(vec.bv_page) + vec.bv_offset, vec.bv_len, left);
		if (error)
			return error;
	}
	return 0;
}

/* Under the lock. Returns whether the device is to be notified. */
static bool inject(struct vblk *vblk)
{
	return !vblk->broken && !vblk->dead && vbus_side_inject(vblk_queue(vblk)->there);
}

static blk_status_t submit(struct vblk *vblk, struct blk_mq_hw_ctx *hctx, struct request *rq)
{
	struct vblk_request *mine = blk_mq_rq_to_pdu(rq);
	struct vbus_queue *queue = vblk_queue(vblk);
	struct vbus_block_request *header;
	u32 bytes;
	int error;

	if (vblk->dead)
		return BLK_STS_IOERR;
	if (vblk->broken)
		return BLK_STS_RESOURCE;
	if (room(queue) < VBLK_SEGMENTS + 1)
		reap(vblk);
	if (room(queue) < VBLK_SEGMENTS + 1) {
		/* Started again when the device notifies. */
		blk_mq_stop_hw_queue(hctx);
		return BLK_STS_DEV_RESOURCE;
	}
	mine->place = queue->north.tail & (VBLK_COUNT - 1);
	header = &vblk->headers[mine->place];
	if (!describe(rq, header))
		return BLK_STS_NOTSUPP;
	list_add_tail(&mine->busy, &vblk->busy);
	bytes = req_op(rq) == REQ_OP_READ || req_op(rq) == REQ_OP_WRITE ? blk_rq_bytes(rq) : 0;
	error = post_all(queue, rq, header, bytes);
	/* A part of it may be posted, so it is returned with the rest. */
	if (unlikely(error))
		vblk_break(vblk, error);
	return BLK_STS_OK;
}

static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *data)
{
	struct vblk *vblk = hctx->queue->queuedata;
	blk_status_t status;
	unsigned long flags;
	bool notify;

	blk_mq_start_request(data->rq);
	spin_lock_irqsave(&vblk->lock, flags);
	status = submit(vblk, hctx, data->rq);
	/* What was posted before a request that has no room must not wait for it. */
	notify = (data->last || status != BLK_STS_OK) && inject(vblk);
	spin_unlock_irqrestore(&vblk->lock, flags);
	if (notify)
		vbus_notify(&vblk->connection);
	return status;
}

static void commit_rqs(struct blk_mq_hw_ctx *hctx)
{
	struct vblk *vblk = hctx->queue->queuedata;
	unsigned long flags;
	bool notify;

	spin_lock_irqsave(&vblk->lock, flags);
	notify = inject(vblk);
	spin_unlock_irqrestore(&vblk->lock, flags);
	if (notify)
		vbus_notify(&vblk->connection);
}

static void complete_rq(struct request *rq)
{
	struct vblk_request *mine = blk_mq_rq_to_pdu(rq);

	mine->lost = 0;
	blk_mq_end_request(rq, mine->status);
}

void vblk_return_all(struct vblk *vblk, bool again)
{
	struct vblk_request *mine, *next;
	unsigned long flags;

	spin_lock_irqsave(&vblk->lock, flags);
	list_for_each_entry_safe(mine, next, &vblk->busy, busy) {
		u32 status = smp_load_acquire(&vblk->headers[mine->place].status);

		if (status != VBUS_BLOCK_PENDING) {
			finish(mine, to_status(status));
		} else if (!again || ++mine->lost >= CONNECTIONS) {
			finish(mine, BLK_STS_IOERR);
		} else {
			list_del(&mine->busy);
			blk_mq_requeue_request(blk_mq_rq_from_pdu(mine), false);
		}
	}
	spin_unlock_irqrestore(&vblk->lock, flags);
}

const struct blk_mq_ops vblk_mq_ops = {
	.queue_rq	= queue_rq,
	.commit_rqs	= commit_rqs,
	.complete	= complete_rq,
};
