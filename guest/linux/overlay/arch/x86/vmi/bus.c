// SPDX-License-Identifier: GPL-2.0-only
/* A layer's section bus, for the driver of bridges (drivers/vbus/bridge.c). */
#include <linux/vbus_calls.h>
#include "vmi.h"

/* Bridges of a machine: the list has an end. */
#define MAX_BRIDGES 64

/* Drivers are not compiled for the stack that a layer needs, and this folder is. */
static int command(u64 bridge, u64 address)
{
	return vmi.bus_command(bridge, address);
}

static int notify(u64 bridge, u32 connection)
{
	return vmi.bus_notify(bridge, connection);
}

static const struct vbus_calls calls = {
	.command	= command,
	.notify		= notify,
};

const struct vbus_calls *vmi_vbus_calls(u64 bridge)
{
	s64 found;
	u32 i;

	if (!vmi_layer.present || !vmi.bus_find || !vmi.bus_command || !vmi.bus_notify)
		return NULL;
	for (i = 0; i < MAX_BRIDGES; i++) {
		found = vmi.bus_find(i);
		if (found < 0)
			break;
		if (found == bridge)
			return &calls;
	}
	return NULL;
}
