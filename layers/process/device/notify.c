// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Messages to a device's thread in the monitor. */
#include "device/notify.h"
#include "common/faults.h"
#include "host/doorbell.h"
#include "host/futex.h"
#include "state/state.h"

void device_notify(struct phv_device *device, u32 bits)
{
	__atomic_fetch_or(&device->notify, bits, __ATOMIC_SEQ_CST);
	wake_announced(&device->sleeping);
}

void device_notify_from(const struct vcpu *v, u32 number, u32 queue)
{
	struct phv_device *device = device_at(number);

	/* Most often the same vCPU: the cache line then stays shared with the device's thread. */
	if (READ_ONCE(device->notifier) != v->number && !FAULT(LINE_NOTIFIER_FIRST))
		WRITE_ONCE(device->notifier, v->number);
	device_notify(device, FAULT(NOTIFY_FIRST_QUEUE) ? 1 : 1U << queue);
}

/* A vCPU has one request at a time: it waits for the answer. */
static struct phv_request *request_of(const struct vcpu *v)
{
	struct phv_request *all = to_pointer(PHV_SHARED + PHV_SHARED_REQUESTS);

	return &all[FAULT(REQUESTS_SHARED) ? 0 : v->number];
}

static u32 ask(struct phv_request *r, u32 number)
{
	u32 answer;

	r->device = number;
	__atomic_store_n(&r->state, PHV_REQUEST_ASKED, __ATOMIC_RELEASE);
	device_notify(device_at(number), PHV_NOTIFY_REGISTER);
	while (__atomic_load_n(&r->state, __ATOMIC_ACQUIRE) == PHV_REQUEST_ASKED)
		futex_wait(&r->state, PHV_REQUEST_ASKED, U64_MAX);
	answer = READ_ONCE(r->answer);
	WRITE_ONCE(r->state, PHV_REQUEST_NONE);
	return answer;
}

void device_store(struct vcpu *v, u32 number, u32 offset, u32 width, u64 value)
{
	struct phv_request *r = request_of(v);

	r->kind = PHV_ASK_STORE;
	r->offset = offset;
	r->width = width;
	r->value = value;
	ask(r, number);
}

int device_command(struct vcpu *v, u32 number, u64 command)
{
	struct phv_request *r = request_of(v);

	r->kind = PHV_ASK_COMMAND;
	r->value = command;
	return (int)ask(r, number);
}
