/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Section bus, by ports: their exits are the lightest, since the host decodes no instruction for
 * them. A notification does not leave the host's kernel. A command reaches the monitor, which finds
 * the arguments in registers: KVM passes on no hypercall. The monitor copies the command, checks
 * the copy, and answers.
 */
#include "io.h"
#include "kvm.h"

static bool is_bridge(u32 number)
{
	return kvm.bridges >> number & 1;
}

/* Finds the bridge whose registers are at this address. */
static bool find_bridge(u64 registers, u32 *number)
{
	u64 at = registers - kvm.devices_gpa;

	if (at % MONITOR_DEVICE_SIZE || at / MONITOR_DEVICE_SIZE >= MONITOR_DEVICES)
		return false;
	*number = (u32)(at / MONITOR_DEVICE_SIZE);
	return is_bridge(*number);
}

s64 kvm_bus_find(u32 number)
{
	for (u32 device = 0; device < MONITOR_DEVICES; device++)
		if (is_bridge(device) && !number--)
			return (s64)kvm.devices_gpa + device * MONITOR_DEVICE_SIZE;
	return FAULT(BUS_FINDS_NOTHING_AT_0) ? 0 : -VMI_ENOENT;
}

/*
 * The monitor has stored the answer in rax before it lets the vCPU go on, and changed no other
 * register. A host that does not know the port leaves rax as it was.
 */
int kvm_bus_command(u64 bridge, u64 command)
{
	s64 answer = -VMI_ENOSYS;
	u32 number;

	if (command % VMI_BUS_COMMAND_ALIGN && !FAULT(BUS_TAKES_MISPLACED))
		return -VMI_EINVAL;
	if (!find_bridge(bridge, &number))
		return -VMI_ENOENT;
	if (FAULT(BUS_COMMANDS_NOTHING))
		return 0;
	__asm__ volatile("outl %%eax, %%dx"
			 : "+a"(answer)
			 : "b"(bridge), "c"(command), "d"(kvm.bus_call)
			 : "memory");
	return (int)answer;
}

int kvm_bus_notify(u64 bridge, u32 connection)
{
	u32 number;

	if (!find_bridge(bridge, &number))
		return FAULT(BUS_NOTIFIES_ANYWHERE) ? 0 : -VMI_ENOENT;
	if (FAULT(BUS_RINGS_CONNECTION_0))
		connection = 0;
	outl((u16)(kvm.bus_doorbell + number * MONITOR_DOORBELL_SIZE), connection);
	return 0;
}
