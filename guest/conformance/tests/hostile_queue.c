// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * hostile=feed: a disk queue that feeds itself. The device reads the disk's data over the index of
 * the available ring and over the sector of the request that reads it. So it finds a new request
 * each time it completes one, without the guest. The host's test makes the disk
 * (tests/tests/run_ends.rs): sector n holds 16 bits of flags, 256 * (n + 1) + 1 as 16 bits for the
 * index, and the number of the next sector, modulo 256, as 64 bits.
 *
 * hostile=break: a driver that does nothing but break the rules of its queue, and start again.
 */
#include "hostile.h"
#include "test.h"
#include "virtio.h"

#define BLOCK_ID	2
#define SIZE		256
#define ENTROPY_ID	4
#define FEW		8
#define NEEDS_RESET	0x40		/* a device's status */
#define OTHER		8		/* the first descriptor of the second request */
/* Requests without a notification: more than a queue can hold. */
#define FED		300000

/* Requests (virtio 1.2, section 5.2.6). */
#define READ		0
#define GET_ID		8

struct header {
	u32 kind, reserved;
	u64 sector;
};

struct requests {
	struct header read, get_id;
	u8 status[2];
	u8 rest[512];
};

static void describe(struct virtio_desc *d, u64 gpa, u32 length, u16 flags)
{
	d->gpa = gpa;
	d->length = length;
	d->flags = flags;
}

void feed(bool stay)
{
	u64 table = alloc_page(), available = alloc_page(), used = alloc_page(),
		page = alloc_page();
	struct virtio_desc *d = to_linear(table);
	struct requests *r = to_linear(page);
	u16 *ring = to_linear(available), last = 0;
	volatile u16 *used_index = (u16 *)to_linear(used) + 1;
	struct virtio disk;
	u64 done = 0;
	u32 i;

	if (!virtio_find(&disk, BLOCK_ID))
		panic("no disk");
	virtio_start(&disk, SIZE, table, available, used);
	r->read = (struct header){ .kind = READ };
	describe(&d[0], page + offsetof(struct requests, read), sizeof(r->read), DESC_NEXT);
	describe(&d[1], available, 4, DESC_NEXT | DESC_WRITE);
	describe(&d[2], page + offsetof(struct requests, read.sector), 8, DESC_NEXT | DESC_WRITE);
	describe(&d[3], page + offsetof(struct requests, rest), 512 - 4 - 8,
		 DESC_NEXT | DESC_WRITE);
	describe(&d[4], page + offsetof(struct requests, status[0]), 1, DESC_WRITE);
	r->get_id = (struct header){ .kind = GET_ID };
	describe(&d[OTHER], page + offsetof(struct requests, get_id), sizeof(r->get_id), DESC_NEXT);
	describe(&d[OTHER + 1], page + offsetof(struct requests, rest), 20, DESC_NEXT | DESC_WRITE);
	describe(&d[OTHER + 2], page + offsetof(struct requests, status[1]), 1, DESC_WRITE);
	for (i = 0; i < 4; i++)
		d[i].next = (u16)(i + 1);
	for (i = OTHER; i < OTHER + 2; i++)
		d[i].next = (u16)(i + 1);
	/* One request reads in each round; the others fill the ring. */
	for (i = 1; i < SIZE; i++)
		ring[2 + i] = OTHER;
	ring[2] = 0;
	atomic_store(&ring[1], (u16)1);
	virtio_put(&disk, QUEUE_NOTIFY, 0);
	while (done < FED) {
		u16 now = *used_index;

		done += (u16)(now - last);
		last = now;
		pause();
		watch("the disk");
	}
	print("# the disk feeds itself\n");
	while (stay)
		halt();
}

void break_queues(void)
{
	u64 table = alloc_page(), available = alloc_page(), used = alloc_page();
	u16 *ring = to_linear(available);
	struct virtio entropy;

	if (!virtio_find(&entropy, ENTROPY_ID))
		panic("no entropy device");
	for (;;) {
		virtio_start(&entropy, FEW, table, available, used);
		/* More requests than the queue has room for. */
		atomic_store(&ring[1], (u16)(FEW + 1));
		virtio_put(&entropy, QUEUE_NOTIFY, 0);
		WAIT_UNTIL(virtio_get(&entropy, STATUS) & NEEDS_RESET);
	}
}
