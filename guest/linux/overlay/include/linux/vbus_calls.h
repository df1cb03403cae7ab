/* SPDX-License-Identifier: GPL-2.0-only */
/* Platform data of a bridge to a virtual bus whose hypervisor has a call for notifications. */
#ifndef _LINUX_VBUS_CALLS_H
#define _LINUX_VBUS_CALLS_H

#include <linux/types.h>

struct vbus_calls {
	/* In place of a store to the register. */
	int (*notify)(u32 device, u32 connection);
	/* The device, as the call knows it. */
	u32 device;
};

#endif
