// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Section bus. A command is a request to the bridge's thread in the monitor. A store of the
 * command's address makes the same request, but needs a signal and the decoding of an instruction
 * (device/device.c). The monitor copies the command, checks the copy, and answers.
 */
#include "calls/calls.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "device/device.h"
#include "device/notify.h"
#include "state/state.h"

static bool is_bridge(u32 number)
{
	return device_exists(number) &&
	       (READ_ONCE(shared->s.bridges) >> number & 1 || FAULT(BUS_TAKES_ANY_DEVICE));
}

/* Finds the bridge whose registers are at this address. */
static bool find_bridge(u64 registers, u32 *number)
{
	u64 at = registers - shared->s.device_gpa;

	if (at % PAGE_SIZE || at / PAGE_SIZE >= PHV_MAX_DEVICES)
		return false;
	*number = (u32)(at / PAGE_SIZE);
	return is_bridge(*number);
}

s64 process_bus_find(u32 number)
{
	u32 device;

	for (device = 0; device < PHV_MAX_DEVICES; device++)
		if (is_bridge(device) && (FAULT(BUS_FINDS_FIRST) || !number--))
			return (s64)(shared->s.device_gpa + device * PAGE_SIZE);
	return -VMI_ENOENT;
}

int process_bus_command(u64 bridge, u64 command)
{
	u32 number;

	if (command % VMI_BUS_COMMAND_ALIGN)
		return -VMI_EINVAL;
	if (!find_bridge(bridge, &number))
		return -VMI_ENOENT;
	if (FAULT(BUS_COMMAND_UNDONE))
		return 0;
	return device_command(this_vcpu(), number, command);
}

int process_bus_notify(u64 bridge, u32 connection)
{
	u32 number;

	if (!find_bridge(bridge, &number))
		return -VMI_ENOENT;
	if (connection < PHV_MAX_QUEUES && !FAULT(BUS_NOTIFY_NOTHING))
		device_notify_from(this_vcpu(), number, connection);
	return 0;
}
