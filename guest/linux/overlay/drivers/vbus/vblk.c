// SPDX-License-Identifier: GPL-2.0-only
/*
 * Disks of the virtual bus. A disk's connection lives as long as its device. If it ends before,
 * another one replaces it, and the device gets the requests that it had again.
 *
 * A disk is added by a thread of its own, since that reads the partitions. The thread that adds and
 * removes devices must not wait for a device: it is the one that removes a device that has ended.
 */
#include <linux/async.h>
#include <linux/blkdev.h>
#include <linux/err.h>
#include <linux/idr.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include "vblk.h"

static DEFINE_IDA(indices);

void vblk_break(struct vblk *vblk, int error)
{
	if (vblk->broken || vblk->dead)
		return;
	vblk->broken = true;
	dev_err(&vblk->connection.device->dev, "the connection ended: %d\n", error);
	schedule_work(&vblk->restart);
}

/* Opens the connection, asks for the geometry, and shares the queue. */
static int connect(struct vblk *vblk, struct vbus_block_geometry *geometry)
{
	struct vbus_connection *connection = &vblk->connection;
	int length, error;

	error = vbus_open(connection);
	if (error)
		return error;
	length = vbus_call(connection, VBUS_BLOCK_GEOMETRY, geometry, 0, sizeof(*geometry));
	if (length < 0)
		return length;
	if (length != sizeof(*geometry) || !geometry->sectors || !geometry->segments)
		return -EPROTO;
	return vbus_share(connection, VBLK_TX, VBUS_ROLE_TRANSMIT, VBLK_COUNT);
}

/* From now on the device notifies. */
static void listen(struct vblk *vblk)
{
	unsigned long flags;

	spin_lock_irqsave(&vblk->lock, flags);
	vblk->broken = false;
	spin_unlock_irqrestore(&vblk->lock, flags);
	/* Nothing was posted yet, so nothing can have come. */
	vbus_side_rest(vblk_queue(vblk)->here);
}

static void disconnect(struct vblk *vblk)
{
	vbus_close(&vblk->connection);
	vbus_free_queues(&vblk->connection);
}

/* There is no device any more: whatever it had fails, and whatever comes. */
static void die(struct vblk *vblk)
{
	unsigned long flags;

	spin_lock_irqsave(&vblk->lock, flags);
	vblk->dead = true;
	spin_unlock_irqrestore(&vblk->lock, flags);
	/* The device touches nothing after this. */
	disconnect(vblk);
	vblk_return_all(vblk, false);
	blk_mq_start_stopped_hw_queues(vblk->disk->queue, true);
}

static void restart(struct work_struct *work)
{
	struct vblk *vblk = container_of(work, struct vblk, restart);
	struct vbus_block_geometry geometry;
	int error;

	/* The connection ended, and no other one could replace it. */
	if (READ_ONCE(vblk->dead))
		return;
	blk_mq_quiesce_queue(vblk->disk->queue);
	disconnect(vblk);
	vblk_return_all(vblk, true);
	error = connect(vblk, &geometry);
	if (!error && (geometry.sectors != vblk->geometry.sectors ||
		       geometry.flags != vblk->geometry.flags))
		error = -ENXIO;
	if (error) {
		dev_err(&vblk->connection.device->dev, "cannot connect again: %d\n", error);
		die(vblk);
	} else {
		listen(vblk);
	}
	blk_mq_unquiesce_queue(vblk->disk->queue);
	blk_mq_start_stopped_hw_queues(vblk->disk->queue, true);
	blk_mq_kick_requeue_list(vblk->disk->queue);
	if (!error)
		return;
	/* What an addition reads has failed. */
	wait_for_completion(&vblk->tried);
	if (vblk->added)
		blk_mark_disk_dead(vblk->disk);
}

static void free_vblk(struct vblk *vblk)
{
	ida_free(&indices, vblk->index);
	free_pages_exact(vblk->headers, VBLK_COUNT * sizeof(*vblk->headers));
	kfree(vblk);
}

/* The last user of a disk that was added has closed it. */
static void free_disk(struct gendisk *disk)
{
	free_vblk(disk->private_data);
}

static const struct block_device_operations vblk_operations = {
	.owner		= THIS_MODULE,
	.free_disk	= free_disk,
};

static ssize_t serial_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	struct vblk *vblk = dev_to_disk(dev)->private_data;

	return sysfs_emit(text, "%.*s", (int)sizeof(vblk->geometry.serial),
			  (const char *)vblk->geometry.serial);
}
static DEVICE_ATTR_RO(serial);

static struct attribute *vblk_attrs[] = {
	&dev_attr_serial.attr,
	NULL,
};
ATTRIBUTE_GROUPS(vblk);

static void set_limits(const struct vbus_block_geometry *geometry, struct queue_limits *limits)
{
	limits->logical_block_size = geometry->block;
	limits->physical_block_size = geometry->physical;
	limits->max_segments = min(geometry->segments, (u32)VBLK_SEGMENTS);
	limits->max_segment_size = UINT_MAX;
	limits->max_hw_sectors = UINT_MAX;
	if (geometry->flags & VBUS_BLOCK_HAS_FLUSH)
		limits->features |= BLK_FEAT_WRITE_CACHE;
	if (geometry->flags & VBUS_BLOCK_HAS_DISCARD) {
		limits->max_hw_discard_sectors = geometry->most;
		limits->discard_granularity = geometry->physical;
	}
	if (geometry->flags & VBUS_BLOCK_HAS_ZERO)
		limits->max_write_zeroes_sectors = geometry->most;
}

/* Makes the disk of a connection. */
static int make_disk(struct vblk *vblk)
{
	struct queue_limits limits = {};
	struct gendisk *disk;
	int error;

	vblk->tags.ops = &vblk_mq_ops;
	vblk->tags.nr_hw_queues = 1;
	vblk->tags.queue_depth = VBLK_DEPTH;
	vblk->tags.numa_node = NUMA_NO_NODE;
	/* The host's kernel orders requests. */
	vblk->tags.flags = BLK_MQ_F_SHOULD_MERGE | BLK_MQ_F_NO_SCHED_BY_DEFAULT;
	vblk->tags.cmd_size = sizeof(struct vblk_request);
	error = blk_mq_alloc_tag_set(&vblk->tags);
	if (error)
		return error;
	set_limits(&vblk->geometry, &limits);
	disk = blk_mq_alloc_disk(&vblk->tags, &limits, vblk);
	if (IS_ERR(disk)) {
		blk_mq_free_tag_set(&vblk->tags);
		return PTR_ERR(disk);
	}
	disk->fops = &vblk_operations;
	disk->private_data = vblk;
	snprintf(disk->disk_name, DISK_NAME_LEN, "vbd%d", vblk->index);
	set_capacity(disk, vblk->geometry.sectors);
	set_disk_ro(disk, vblk->geometry.flags & VBUS_BLOCK_READ_ONLY);
	vblk->disk = disk;
	return 0;
}

static void add_disk_async(void *data, async_cookie_t cookie)
{
	struct vblk *vblk = data;
	struct device *device = &vblk->connection.device->dev;
	int error = device_add_disk(device, vblk->disk, vblk_groups);

	if (error)
		dev_err(device, "cannot add %s: %d\n", vblk->disk->disk_name, error);
	vblk->added = !error;
	complete_all(&vblk->tried);
}

static int vblk_probe(struct vbus_device *device)
{
	struct vblk *vblk = kzalloc(sizeof(*vblk), GFP_KERNEL);
	int error = -ENOMEM;

	BUILD_BUG_ON(VBLK_COUNT < 2 * (VBLK_SEGMENTS + 1));
	if (!vblk)
		return -ENOMEM;
	vblk->connection.device = device;
	vblk->connection.signal = vblk_signal;
	spin_lock_init(&vblk->lock);
	INIT_LIST_HEAD(&vblk->busy);
	INIT_WORK(&vblk->restart, restart);
	init_completion(&vblk->tried);
	vblk->headers = alloc_pages_exact(VBLK_COUNT * sizeof(*vblk->headers),
					  GFP_KERNEL | __GFP_ZERO);
	if (!vblk->headers)
		goto free;
	vblk->index = ida_alloc(&indices, GFP_KERNEL);
	if (vblk->index < 0) {
		error = vblk->index;
		goto free_headers;
	}
	error = connect(vblk, &vblk->geometry);
	if (!error)
		error = make_disk(vblk);
	if (error)
		goto free_index;
	listen(vblk);
	dev_set_drvdata(&device->dev, vblk);
	async_schedule(add_disk_async, vblk);
	return 0;
free_index:
	disconnect(vblk);
	ida_free(&indices, vblk->index);
free_headers:
	free_pages_exact(vblk->headers, VBLK_COUNT * sizeof(*vblk->headers));
free:
	kfree(vblk);
	return error;
}

static void vblk_remove(struct vbus_device *device)
{
	struct vblk *vblk = dev_get_drvdata(&device->dev);

	if (device->gone) {
		/* What the device had must not be waited for. */
		cancel_work_sync(&vblk->restart);
		die(vblk);
	}
	wait_for_completion(&vblk->tried);
	if (vblk->added && device->gone)
		blk_mark_disk_dead(vblk->disk);
	if (vblk->added)
		del_gendisk(vblk->disk);
	dev_set_drvdata(&device->dev, NULL);
	/* No request comes any more. */
	cancel_work_sync(&vblk->restart);
	die(vblk);
	if (vblk->added) {
		/* The last user of the disk frees the rest. */
		blk_mq_free_tag_set(&vblk->tags);
		put_disk(vblk->disk);
	} else {
		/* A disk that was not added gives its queue up here, which needs the tags. */
		put_disk(vblk->disk);
		blk_mq_free_tag_set(&vblk->tags);
		free_vblk(vblk);
	}
}

static void vblk_closed(struct vbus_device *device)
{
	struct vblk *vblk = dev_get_drvdata(&device->dev);
	unsigned long flags;

	if (!vblk)
		return;
	spin_lock_irqsave(&vblk->lock, flags);
	vblk_break(vblk, -EPIPE);
	/* It may be the connection that restart() has just made. */
	if (!vblk->dead)
		schedule_work(&vblk->restart);
	spin_unlock_irqrestore(&vblk->lock, flags);
}

static struct vbus_driver vblk_driver = {
	.driver.name	= "vblk",
	.type		= "virtual-block",
	.version	= 1,
	.probe		= vblk_probe,
	.remove		= vblk_remove,
	.closed		= vblk_closed,
};

static int __init vblk_init(void)
{
	return vbus_register_driver(&vblk_driver);
}
device_initcall(vblk_init);
