// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "vcpu/lines.h"
#include "common/faults.h"
#include "host/step.h"
#include "state/cpu.h"
#include "vcpu/irq.h"

static bool off(u32 vcpu)
{
	return READ_ONCE(vcpu_at(vcpu)->s.state) == PHV_VCPU_OFF;
}

/* The vCPU that notified the device last, or the first one that runs if it is off. */
static struct vcpu *notifier(u32 line)
{
	u32 vcpu = READ_ONCE(device_at(line)->notifier), i;

	if (vcpu < shared->s.vcpu_count && !off(vcpu))
		return vcpu_at(vcpu);
	for (i = 0; i < shared->s.vcpu_count; i++)
		if (!off(i))
			return vcpu_at(i);
	return vcpu_at(0);
}

struct vcpu *line_signal(u32 line, u32 place)
{
	if (place != PHV_ROUTE_NOTIFIER)
		return vcpu_at(place < shared->s.vcpu_count ? place : 0);
	__atomic_fetch_or(&shared->s.lines, 1ULL << line, __ATOMIC_SEQ_CST);
	return notifier(line);
}

void lines_resend(void)
{
	u64 lines;
	u32 line;

	/*
	 * A sender sets the bit, then looks whether the vCPU is off, then requests the vector. The
	 * vCPU was off, has no requests any more, and this thread then looks for the bit: one of
	 * the two finds what the other did, also if the vCPU runs again.
	 */
	fence();
	step();
	lines = FAULT(LINES_STAY) ? 0 : READ_ONCE(shared->s.lines);
	for (line = 0; line < shared->s.device_count && line < PHV_MAX_DEVICES; line++) {
		u32 route = READ_ONCE(device_at(line)->route);
		struct vcpu *to;

		if (!(lines >> line & 1) || route >> 8 != PHV_ROUTE_NOTIFIER || !(route & 0xff))
			continue;
		to = notifier(line);
		irq_send(to, route & 0xff);
	}
}
