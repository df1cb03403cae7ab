/* SPDX-License-Identifier: GPL-2.0-only */
/* Calls of the hypervisor for a bridge to a virtual bus. */
#ifndef _LINUX_VBUS_CALLS_H
#define _LINUX_VBUS_CALLS_H

#include <linux/types.h>

/* In place of stores to the bridge's registers, which are at this physical address. */
struct vbus_calls {
	/*
	 * Carries out the command at a physical address. Returns its status, or a negative number
	 * if there is no such bridge or memory.
	 */
	int (*command)(u64 bridge, u64 command);
	int (*notify)(u64 bridge, u32 connection);
};

/* Those for this bridge; NULL: the hypervisor has none. */
const struct vbus_calls *vmi_vbus_calls(u64 bridge);

/* Platform data of a bridge whose hypervisor has a call for the notifications of all devices. */
struct vbus_line {
	/* In place of a store to the register. */
	int (*notify)(u32 device, u32 connection);
	/* The device, as the call knows it. */
	u32 device;
};

#endif
