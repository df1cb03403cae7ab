// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* ioq, the north's side. The rules are those of vbus/shm/src/north.rs. */
#include <paravane/vbus_shm.h>

static void store(__u32 *word, __u32 value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static struct vbus_descriptor *at(const struct vbus_north *north, __u32 index)
{
	return &north->descriptors[index & (north->count - 1)];
}

int vbus_north_begin(struct vbus_north *north, void *memory, __u64 len, __u32 count,
		     __u32 role, struct vbus_posted *posted, __u32 start)
{
	struct vbus_ioq *ioq = memory;
	__u32 i;

	if (!count || count > VBUS_COUNT_MAX || (count & (count - 1)) ||
	    (role != VBUS_ROLE_TRANSMIT && role != VBUS_ROLE_RECEIVE) ||
	    len < vbus_ioq_size(count) || ((__u64)memory & 63))
		return -VBUS_INVALID;
	north->ioq = ioq;
	north->descriptors = (struct vbus_descriptor *)(ioq + 1);
	north->posted = posted;
	north->count = count;
	north->role = role;
	north->head = start;
	north->tail = start;
	north->seen = start;
	north->breach = 0;
	for (i = 0; i < count; i++)
		store(&north->descriptors[i].owner, VBUS_NORTH);
	store(&ioq->valid_head, start);
	store(&ioq->valid_tail, start);
	store(&ioq->inuse_head, start);
	store(&ioq->inuse_tail, start);
	for (i = VBUS_NORTH; i <= VBUS_SOUTH; i++) {
		store(&ioq->signal.sides[i].enabled, 0);
		store(&ioq->signal.sides[i].pending, 0);
		store(&ioq->signal.sides[i].dirty, 0);
	}
	store(&ioq->role, role);
	store(&ioq->count, count);
	store(&ioq->version, VBUS_IOQ_VERSION);
	store(&ioq->signal.version, VBUS_SIGNAL_VERSION);
	store(&ioq->signal.magic, VBUS_SIGNAL_MAGIC);
	__atomic_store_n(&ioq->magic, VBUS_IOQ_MAGIC, __ATOMIC_RELEASE);
	return 0;
}

int vbus_north_post(struct vbus_north *north, const struct vbus_buffer *buffer)
{
	struct vbus_descriptor *descriptor = at(north, north->tail);
	struct vbus_posted *posted = &north->posted[north->tail & (north->count - 1)];

	if (north->breach)
		return north->breach;
	if (north->tail - north->head == north->count)
		return -VBUS_FULL;
	posted->cookie = buffer->cookie;
	posted->len = buffer->len;
	__atomic_store_n(&descriptor->cookie, buffer->cookie, __ATOMIC_RELAXED);
	__atomic_store_n(&descriptor->ptr, buffer->ptr, __ATOMIC_RELAXED);
	store(&descriptor->len, buffer->len);
	store(&descriptor->used, 0);
	store(&descriptor->flags, buffer->flags);
	north->tail++;
	store(&north->ioq->valid_tail, north->tail);
	if (north->role == VBUS_ROLE_TRANSMIT)
		store(&north->ioq->inuse_tail, north->tail);
	/* Hands over what was stored before. */
	__atomic_store_n(&descriptor->owner, VBUS_SOUTH, __ATOMIC_RELEASE);
	return 0;
}

/* The south moves its index before it hands a descriptor over. */
static int covered(struct vbus_north *north)
{
	__u32 *word = north->role == VBUS_ROLE_TRANSMIT ? &north->ioq->inuse_head :
							  &north->ioq->inuse_tail;
	__u32 value;

	if (north->seen != north->head)
		return 1;
	value = __atomic_load_n(word, __ATOMIC_RELAXED);
	if (value == north->head || value - north->head > north->tail - north->head)
		return 0;
	north->seen = value;
	return 1;
}

int vbus_north_take(struct vbus_north *north, struct vbus_returned *returned)
{
	struct vbus_descriptor *descriptor = at(north, north->head);
	struct vbus_posted *posted = &north->posted[north->head & (north->count - 1)];
	__u32 owner;

	if (north->breach)
		return north->breach;
	if (north->head == north->tail)
		return 0;
	owner = __atomic_load_n(&descriptor->owner, __ATOMIC_ACQUIRE);
	if (owner == VBUS_SOUTH)
		return 0;
	if (owner != VBUS_NORTH)
		return north->breach = -VBUS_BREACH_OWNER;
	if (!covered(north))
		return north->breach = -VBUS_BREACH_INDEX;
	returned->cookie = posted->cookie;
	returned->len = posted->len;
	returned->used = 0;
	returned->flags = 0;
	returned->reserved = 0;
	if (north->role == VBUS_ROLE_RECEIVE) {
		returned->used = __atomic_load_n(&descriptor->used, __ATOMIC_RELAXED);
		returned->flags = __atomic_load_n(&descriptor->flags, __ATOMIC_RELAXED);
		if (returned->used > posted->len)
			return north->breach = -VBUS_BREACH_LENGTH;
	}
	north->head++;
	if (north->role == VBUS_ROLE_RECEIVE)
		store(&north->ioq->inuse_head, north->head);
	store(&north->ioq->valid_head, north->head);
	return 1;
}
