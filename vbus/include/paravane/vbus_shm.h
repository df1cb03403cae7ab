/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * shm-signal and ioq for the north: the owner of the memory, such as a guest's
 * driver. Freestanding: no host call, no allocation, no C library. The rules
 * are in docs/vbus.md. The south can write all of the memory at any time, so
 * what the north needs is in struct vbus_north and struct vbus_posted, which
 * are not shared.
 *
 * A function is not safe against another call for the same struct vbus_north
 * that runs at the same time. The functions of a side are.
 */
#ifndef PARAVANE_VBUS_SHM_H
#define PARAVANE_VBUS_SHM_H

#include "vbus_layout.h"

/* The ring is full. */
#define VBUS_FULL 1
/* Breaches: the south broke a rule, and the connection must be reset. */
#define VBUS_BREACH_OWNER 2 /* a descriptor belongs to neither side */
#define VBUS_BREACH_INDEX 3 /* handed over, but the index does not cover it */
#define VBUS_BREACH_LENGTH 4 /* a packet is longer than its buffer */
/* The caller passed a count, role, alignment or size that is not allowed. */
#define VBUS_INVALID 5

/* What the north remembers of a posted buffer. */
struct vbus_posted {
	__u64 cookie;
	__u32 len;
	__u32 reserved;
};

/* A buffer for the south. */
struct vbus_buffer {
	__u64 cookie; /* the caller's number; returned with the buffer */
	__u64 ptr; /* address in the north's memory */
	__u32 len; /* bytes of the packet, or of the empty buffer */
	__u32 flags; /* the type of the device gives it a meaning */
};

/* A buffer that came back. */
struct vbus_returned {
	__u64 cookie; /* the number that the caller gave it */
	__u32 len; /* its bytes, as they were posted */
	__u32 used; /* receive: bytes of the packet, at most len */
	__u32 flags; /* receive: the sender's flags */
	__u32 reserved;
};

/* The north of an ioq. */
struct vbus_north {
	struct vbus_ioq *ioq;
	struct vbus_descriptor *descriptors;
	struct vbus_posted *posted;
	__u32 count;
	__u32 role;
	__u32 head; /* the oldest buffer that is posted */
	__u32 tail; /* after the newest */
	__u32 seen; /* the south's index, as last read and checked */
	int breach; /* 0 or -VBUS_BREACH_* */
};

/* Bytes of an ioq. */
static inline __u64 vbus_ioq_size(__u32 count)
{
	return sizeof(struct vbus_ioq) + (__u64)count * sizeof(struct vbus_descriptor);
}

/*
 * Makes an ioq of `len` bytes at `memory`, which is aligned to 64, and becomes
 * its north. `posted` has `count` elements. Indices begin at `start`; only
 * tests choose other values than 0. Returns 0 or -VBUS_INVALID.
 */
int vbus_north_begin(struct vbus_north *north, void *memory, __u64 len, __u32 count,
		     __u32 role, struct vbus_posted *posted, __u32 start);
/* Posts a buffer. Returns 0, -VBUS_FULL or -VBUS_BREACH_*. */
int vbus_north_post(struct vbus_north *north, const struct vbus_buffer *buffer);
/* Takes the oldest buffer if it came back: 1, 0 (none) or -VBUS_BREACH_*. */
int vbus_north_take(struct vbus_north *north, struct vbus_returned *returned);
/* Whether vbus_north_take() has something to return: a cheap look at one word. */
static inline int vbus_north_returned(const struct vbus_north *north)
{
	__u32 index = north->head & (north->count - 1);

	return north->head != north->tail &&
	       __atomic_load_n(&north->descriptors[index].owner, __ATOMIC_ACQUIRE) != VBUS_SOUTH;
}

/* The other side has stored work. 1: the caller must notify `side`. */
int vbus_side_inject(struct vbus_side *side);
/* Asks for notifications. 1: work came before, so the caller wakes up. */
int vbus_side_enable(struct vbus_side *side);
/* Stops notifications. One that is on its way still comes. */
void vbus_side_disable(struct vbus_side *side);
/*
 * Does what a notification asks for: calls `work` while there may be work and
 * notifications are enabled, at most `rounds` times. 1: the caller must wake
 * up again, since no notification will come.
 */
int vbus_side_wake_up(struct vbus_side *side, __u32 rounds, void (*work)(void *), void *data);
/* Forgets what was announced until now, before the side looks for work. */
void vbus_side_look(struct vbus_side *side);
/* Clears `pending` and enables: before sleep. 1: the caller wakes up. */
int vbus_side_rest(struct vbus_side *side);

#endif /* PARAVANE_VBUS_SHM_H */
