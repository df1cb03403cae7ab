/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* What a device's thread in the monitor is told. */
#ifndef PROCESS_NOTIFY_H
#define PROCESS_NOTIFY_H

#include "state/state.h"

static inline struct phv_device *device_at(u32 number)
{
	struct phv_device *all = to_pointer(PHV_SHARED + PHV_SHARED_DEVICES);

	return &all[number];
}

/* Gives the device's thread something to do: bits of phv_device.notify. */
void device_notify(struct phv_device *device, u32 bits);
/* A write to a register that changes others: returns when the device's thread has done it. */
void device_request(struct vcpu *v, u32 number, u32 offset, u32 width, u64 value);

#endif
