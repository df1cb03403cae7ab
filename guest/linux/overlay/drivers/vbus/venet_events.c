// SPDX-License-Identifier: GPL-2.0-only
/* The event queue of a network card. */
#include <linux/rtnetlink.h>
#include "venet.h"

static int post(struct venet *venet, u64 number)
{
	struct vbus_buffer buffer = {
		.cookie	= number,
		.ptr	= virt_to_phys(&venet->events[number]),
		.len	= sizeof(*venet->events),
	};

	return vbus_north_post(&venet->connection.queues[VBUS_ETHERNET_EVENTS].north, &buffer);
}

/* Shares the queue. Its buffers stay until the card is removed. */
int venet_share_events(struct venet *venet)
{
	struct vbus_queue *queue = &venet->connection.queues[VBUS_ETHERNET_EVENTS];
	u64 i;
	int error;

	error = vbus_share(&venet->connection, VBUS_ETHERNET_EVENTS, VBUS_ROLE_RECEIVE,
			   VENET_EVENTS);
	for (i = 0; i < VENET_EVENTS && !error; i++)
		error = post(venet, i);
	/* What comes at once is notified. */
	if (!error && vbus_side_rest(queue->here))
		schedule_work(&venet->event);
	return error;
}

/* Handles a buffer that came back, and posts it again. */
static int handle(struct venet *venet, const struct vbus_returned *returned)
{
	struct vbus_ethernet_event *event = &venet->events[returned->cookie];

	if (returned->used == sizeof(*event) &&
	    READ_ONCE(event->event) == VBUS_ETHERNET_EVENT_LINK) {
		if (READ_ONCE(event->value))
			netif_carrier_on(venet->dev);
		else
			netif_carrier_off(venet->dev);
	}
	return post(venet, returned->cookie);
}

void venet_take_events(struct work_struct *work)
{
	struct venet *venet = container_of(work, struct venet, event);
	struct vbus_queue *queue = &venet->connection.queues[VBUS_ETHERNET_EVENTS];
	struct vbus_returned returned;
	int taken = 0, i;

	rtnl_lock();
	if (!venet->running || !queue->here)
		goto unlock;
	vbus_side_look(queue->here);
	/* A device that always has more lets others work in between. */
	for (i = 0; i < VENET_EVENTS; i++) {
		taken = vbus_north_take(&queue->north, &returned);
		if (taken > 0)
			taken = handle(venet, &returned) ?: 1;
		if (taken <= 0)
			break;
	}
	if (i)
		venet_kick(&venet->pairs[0], queue);
	if (taken < 0)
		venet_break(venet, taken);
	else if (taken || vbus_side_rest(queue->here))
		schedule_work(&venet->event);
unlock:
	rtnl_unlock();
}
