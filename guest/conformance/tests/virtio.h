/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* A virtio device over MMIO (virtio 1.2, section 4.2), without a driver framework. */
#ifndef TESTS_VIRTIO_H
#define TESTS_VIRTIO_H

#include "../kernel/types.h"

/* Registers. */
enum {
	MAGIC = 0x0, VERSION = 0x4, DEVICE_ID = 0x8, DEVICE_FEATURES = 0x10,
	DEVICE_FEATURES_SEL = 0x14, DRIVER_FEATURES = 0x20, DRIVER_FEATURES_SEL = 0x24,
	QUEUE_SEL = 0x30, QUEUE_NUM_MAX = 0x34, QUEUE_NUM = 0x38, QUEUE_READY = 0x44,
	QUEUE_NOTIFY = 0x50, INTERRUPT_STATUS = 0x60, INTERRUPT_ACK = 0x64, STATUS = 0x70,
	QUEUE_DESC = 0x80, QUEUE_DRIVER = 0x90, QUEUE_DEVICE = 0xa0,
};

/* Feature of the upper half: version 1. */
#define F_VERSION_1	0x1

/* Flags of a descriptor. */
#define DESC_NEXT	1
#define DESC_WRITE	2

struct virtio {
	u32 line;
	u64 registers;	/* linear; the registers of one device at a time are mapped there */
};

struct virtio_desc {
	u64 gpa;
	u32 length;
	u16 flags, next;
};

static inline u32 virtio_get(const struct virtio *device, u32 offset)
{
	return *(volatile u32 *)(device->registers + offset);
}

static inline void virtio_put(const struct virtio *device, u32 offset, u32 value)
{
	*(volatile u32 *)(device->registers + offset) = value;
}

/* Maps the registers of the first device with this number; false if there is none. */
bool virtio_find(struct virtio *device, u32 id);
void virtio_hide(struct virtio *device);
/* Resets and starts it with its first queue, whose parts are at these guest-physical addresses. */
void virtio_start(struct virtio *device, u32 size, u64 descriptors, u64 available, u64 used);

#endif
