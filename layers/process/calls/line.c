// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Section line. */
#include "calls/calls.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "device/device.h"
#include "device/notify.h"
#include "state/state.h"
#include "vcpu/irq.h"
#include "vcpu/lines.h"

int process_line_route(u32 line, u32 apic_id, u32 vector)
{
	struct vcpu *v = this_vcpu(), *to;
	struct phv_device *device;
	u32 place = apic_id;
	u64 signals;

	if (vector && (vector < VMI_VECTOR_MIN || vector > VMI_VECTOR_MAX))
		return -VMI_EINVAL;
	if (apic_id == VMI_LINE_NOTIFIER)
		place = PHV_ROUTE_NOTIFIER;
	else if (vector && apic_id >= shared->s.vcpu_count)
		return -VMI_ENOENT;
	if (!device_exists(line))
		return -VMI_ENOENT;
	device = device_at(line);
	__atomic_store_n(&device->route, vector ? place << 8 | vector : 0, __ATOMIC_SEQ_CST);
	/* W1 to W3 of host/doorbell.h: the monitor stores raised, fence, then reads route. */
	if (!vector)
		return 0;
	signals = __atomic_exchange_n(&device->raised, 0, __ATOMIC_SEQ_CST);
	/* A signal whose vCPU was stopped while the line was masked (lines_resend). */
	if (place == PHV_ROUTE_NOTIFIER && !FAULT(LINE_FORGETS_STOPPED))
		signals |= READ_ONCE(shared->s.lines) >> line & 1;
	if (!signals)
		return 0;
	to = line_signal(line, place);
	irq_request(to, vector);
	if (to == v)
		irq_refresh(v);
	else
		vcpu_kick(to);
	return 0;
}

int process_line_notify(u32 line, u32 queue)
{
	if (!device_exists(line))
		return -VMI_ENOENT;
	if (queue < PHV_MAX_QUEUES && !FAULT(LINE_NOTIFY_NOTHING))
		device_notify_from(this_vcpu(), line, queue);
	return 0;
}

int process_line_status(u32 line)
{
	if (!device_exists(line))
		return -VMI_ENOENT;
	return (int)device_acknowledge(line, FAULT(LINE_STATUS_STAYS) ? 0 : INTERRUPT_STATUS_BITS);
}

u64 process_line_pending(void)
{
	if (FAULT(LINE_PENDING_STAYS))
		return READ_ONCE(shared->s.lines);
	return __atomic_exchange_n(&shared->s.lines, 0, __ATOMIC_SEQ_CST);
}
