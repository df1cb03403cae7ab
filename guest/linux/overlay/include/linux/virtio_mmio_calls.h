/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Platform data of a virtio-mmio device whose hypervisor has calls for the two registers that a
 * driver writes while it works. A write to a register costs a trap, a call does not.
 */
#ifndef _LINUX_VIRTIO_MMIO_CALLS_H
#define _LINUX_VIRTIO_MMIO_CALLS_H

#include <linux/types.h>

struct virtio_mmio_calls {
	/* In place of a write to QueueNotify. */
	int (*notify)(u32 device, u32 queue);
	/* In place of a read of InterruptStatus and a write to InterruptACK: returns the status. */
	int (*status)(u32 device);
	/* The device, as the calls know it. */
	u32 device;
};

#endif
