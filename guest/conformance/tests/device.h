/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The table of devices that a hypervisor gives the kernel. */
#ifndef TESTS_DEVICE_H
#define TESTS_DEVICE_H

#include "../kernel/types.h"

/* The entry of this number, below machine.info.device_count. */
const struct vmi_device *device_at(u32 number);
/* Linear address at which the registers of one device at a time are shown. */
u64 device_registers(void);
void device_show(const struct vmi_device *device);
void device_hide(void);

#endif
