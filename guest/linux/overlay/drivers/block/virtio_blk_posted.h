/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Posted writes of virtio_blk: a small write of fsync() ends when its data is copied for the
 * device, and the flush that follows takes it along.
 *
 * fsync() waits for its writes, and then for a flush. The end of a write to a disk with a
 * write-back cache promises nothing: the flush does. So the driver copies the data of a small
 * write, puts the copy into the ring and ends the request at once. It does not notify the device:
 * the next request does, which is the flush as a rule, or a timer. For one fsync(), the device
 * wakes up once in place of twice, and there is one interrupt and one wait in place of two.
 *
 * This needs a device that carries out each write before it takes the next request of the queue
 * (VIRTIO_BLK_F_WRITES_IN_TURN). Then a read sees what was posted before, a later write to the same
 * sectors replaces it, and a flush includes it. The request of a posted write has ended before its
 * error is known. After an error, every flush of the disk fails, as after a disk has lost its
 * cache, and no write is posted any more.
 *
 * Costs: a copy. Bounds: POSTED_BYTES for each write, POSTED_MOST writes, POSTED_JIFFIES until the
 * device is notified. Writes of programs that bypass the page cache (REQ_IDLE), and those of
 * background writeback, are not posted: their errors count, or no program waits for them.
 */
#ifndef VIRTIO_BLK_POSTED_H
#define VIRTIO_BLK_POSTED_H

#include <linux/delay.h>
#include <linux/timer.h>

/* Device-specific feature of Paravane's disks (devices.md), which have this vendor. */
#define VIRTIO_BLK_F_WRITES_IN_TURN 60
#define POSTED_VENDOR 0x454e5650	/* "PVNE" */

#define POSTED_BYTES (32 << 10)
#define POSTED_MOST 16
#define POSTED_JIFFIES 1

static bool posted_writes = true;
module_param(posted_writes, bool, 0644);
MODULE_PARM_DESC(posted_writes,
		 "Whether small writes of fsync() end before the flush, where the disk allows it");

/* A write whose request has ended. */
struct virtblk_posted {
	struct virtio_blk_outhdr out_hdr;
	u8 status;
	u8 data[];
};

/* The posted writes of a disk with one queue, whose lock protects everything. */
struct virtblk_posting {
	struct virtqueue *vq;
	spinlock_t *lock;
	struct timer_list timer;	/* notifies the device */
	unsigned int posted;		/* writes that the device has */
	unsigned int others;		/* requests that the device has */
	bool lost;			/* a posted write has failed */
};

/* What the ring returns for a posted write: the address with this bit. */
#define POSTED_TAG 1UL

static void virtblk_posting_notify(struct virtblk_posting *p)
{
	bool kick;

	spin_lock_irq(p->lock);
	kick = virtqueue_kick_prepare(p->vq);
	spin_unlock_irq(p->lock);
	if (kick)
		virtqueue_notify(p->vq);
}

static void virtblk_posting_timer(struct timer_list *timer)
{
	virtblk_posting_notify(from_timer((struct virtblk_posting *)NULL, timer, timer));
}

/* Sets vblk->posting, which stays NULL where nothing can be posted. */
static void virtblk_posting_init(struct virtio_blk *vblk)
{
	struct virtio_device *vdev = vblk->vdev;

	if (vblk->num_vqs != 1 || vdev->id.vendor != POSTED_VENDOR ||
	    !virtio_has_feature(vdev, VIRTIO_BLK_F_WRITES_IN_TURN))
		return;
	if (!vblk->posting) {
		vblk->posting = kzalloc(sizeof(*vblk->posting), GFP_KERNEL);
		if (!vblk->posting)
			return;
		timer_setup(&vblk->posting->timer, virtblk_posting_timer, TIMER_PINNED);
	}
	vblk->posting->vq = vblk->vqs[0].vq;
	vblk->posting->lock = &vblk->vqs[0].lock;
}

/*
 * Takes what the ring returned, if it is a posted write. The device returns writes before it
 * carries out a later flush, so a flush ends after `lost` is set.
 */
static bool virtblk_posting_took(struct virtblk_posting *p, void *token)
{
	struct virtblk_posted *write = token - POSTED_TAG;

	if (!p)
		return false;
	if (!((unsigned long)token & POSTED_TAG)) {
		p->others--;
		return false;
	}
	p->posted--;
	if (unlikely(write->status != VIRTIO_BLK_S_OK && !p->lost)) {
		dev_err(&p->vq->vdev->dev, "lost a write of sector %llu: no flush succeeds\n",
			virtio64_to_cpu(p->vq->vdev, write->out_hdr.sector));
		WRITE_ONCE(p->lost, true);
	}
	kfree(write);
	return true;
}

static bool virtblk_posting_lost(const struct virtblk_posting *p)
{
	return p && READ_ONCE(p->lost);
}

/*
 * Counts a request that was added. The device interrupts for posted writes only while there are
 * such requests. True: the ring has something that no interrupt will tell of.
 */
static bool virtblk_posting_other(struct virtblk_posting *p)
{
	return p && !p->others++ && !virtqueue_enable_cb(p->vq);
}

static bool virtblk_posting_may(const struct virtblk_posting *p, struct request *req)
{
	return READ_ONCE(posted_writes) && !READ_ONCE(p->lost) &&
		req_op(req) == REQ_OP_WRITE &&
		(req->cmd_flags & (REQ_SYNC | REQ_IDLE)) == REQ_SYNC &&
		blk_rq_bytes(req) <= POSTED_BYTES;
}

static struct virtblk_posted *virtblk_posted_copy(struct request *req)
{
	struct virtio_blk *vblk = req->mq_hctx->queue->queuedata;
	struct virtblk_posted *write;
	struct req_iterator iter;
	struct bio_vec bv;
	u8 *to;

	write = kmalloc(sizeof(*write) + blk_rq_bytes(req), GFP_NOWAIT | __GFP_NOWARN);
	if (!write)
		return NULL;
	write->status = VIRTIO_BLK_S_IOERR;
	write->out_hdr = (struct virtio_blk_outhdr){
		.type = cpu_to_virtio32(vblk->vdev, VIRTIO_BLK_T_OUT),
		.ioprio = cpu_to_virtio32(vblk->vdev, req_get_ioprio(req)),
		.sector = cpu_to_virtio64(vblk->vdev, blk_rq_pos(req)),
	};
	to = write->data;
	rq_for_each_segment(bv, req, iter) {
		memcpy_from_bvec(to, &bv);
		to += bv.bv_len;
	}
	return write;
}

static int virtblk_posted_add(struct virtblk_posting *p, struct virtblk_posted *write,
			      unsigned int bytes)
{
	struct scatterlist out_hdr, data, status, *sgs[] = { &out_hdr, &data, &status };

	sg_init_one(&out_hdr, &write->out_hdr, sizeof(write->out_hdr));
	sg_init_one(&data, write->data, bytes);
	sg_init_one(&status, &write->status, sizeof(write->status));
	return virtqueue_add_sgs(p->vq, sgs, 2, 1, (void *)write + POSTED_TAG, GFP_ATOMIC);
}

/* Takes the posted writes that are done, while the driver expects nothing else. */
static void virtblk_posting_reap(struct virtblk_posting *p)
{
	unsigned int len;
	void *token;

	while (!p->others && (token = virtqueue_get_buf(p->vq, &len)))
		virtblk_posting_took(p, token);
}

/* Posts a write and ends its request. False: it is a request like any other. */
static bool virtblk_post(struct virtblk_posting *p, struct request *req)
{
	struct virtblk_posted *write;
	unsigned long flags;
	bool added = false;

	if (!p || !virtblk_posting_may(p, req))
		return false;
	write = virtblk_posted_copy(req);
	if (!write)
		return false;
	spin_lock_irqsave(p->lock, flags);
	virtblk_posting_reap(p);
	if (p->posted < POSTED_MOST && !virtblk_posted_add(p, write, blk_rq_bytes(req))) {
		added = true;
		p->posted++;
		if (!p->others)
			virtqueue_disable_cb(p->vq);
		if (!timer_pending(&p->timer))
			mod_timer(&p->timer, jiffies + POSTED_JIFFIES);
	}
	spin_unlock_irqrestore(p->lock, flags);
	if (!added) {
		kfree(write);
		return false;
	}
	blk_mq_start_request(req);
	blk_mq_end_request(req, BLK_STS_OK);
	return true;
}

/* Has the device carry out what was posted. Nothing else is under way, and nothing comes. */
static void virtblk_posting_drain(struct virtblk_posting *p)
{
	unsigned int tries;

	if (!p)
		return;
	timer_delete_sync(&p->timer);
	virtblk_posting_notify(p);
	for (tries = 0; tries < 5000; tries++) {
		spin_lock_irq(p->lock);
		virtblk_posting_reap(p);
		spin_unlock_irq(p->lock);
		if (!p->posted || virtqueue_is_broken(p->vq))
			return;
		usleep_range(500, 1000);
	}
}

/* Frees what a device that was reset has left. */
static void virtblk_posting_free(struct virtblk_posting *p)
{
	void *token;

	if (!p)
		return;
	while ((token = virtqueue_detach_unused_buf(p->vq)))
		if ((unsigned long)token & POSTED_TAG)
			kfree(token - POSTED_TAG);
	p->posted = 0;
	p->others = 0;
}

#endif
