/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The memory that both sides of a virtual-bus connection share. Made by
 * tools/abigen from abi/vbus.toml: change that, not this. The rules that are
 * not tables are in docs/vbus.md.
 */
#ifndef PARAVANE_VBUS_LAYOUT_H
#define PARAVANE_VBUS_LAYOUT_H

/* Magic numbers and versions. A side refuses a version that it does not know */
#define VBUS_SIGNAL_MAGIC 0x4c475356 /* magic of a shm-signal: VSGL */
#define VBUS_SIGNAL_VERSION 0x1 /* version of shm-signal */
#define VBUS_IOQ_MAGIC 0x514f4956 /* magic of an ioq: VIOQ */
#define VBUS_IOQ_VERSION 0x1 /* version of ioq */

/* Sides: index into vbus_signal.sides, and value of vbus_descriptor.owner */
#define VBUS_NORTH 0x0 /* the owner of the memory */
#define VBUS_SOUTH 0x1 /* the device */

/* What the north does with a queue: vbus_ioq.role */
#define VBUS_ROLE_TRANSMIT 0x1 /* the north sends packets */
#define VBUS_ROLE_RECEIVE 0x2 /* the north posts empty buffers and receives packets in them */

/* Limits */
#define VBUS_COUNT_MAX 0x8000 /* largest vbus_ioq.count. The count is a power of two, at least 1 */

/* struct vbus_side */
#define VBUS_SIZE_SIDE 64
#define VBUS_OFF_SIDE_ENABLED 0
#define VBUS_OFF_SIDE_PENDING 4
#define VBUS_OFF_SIDE_DIRTY 8
#define VBUS_OFF_SIDE_RESERVED 12

/* struct vbus_signal */
#define VBUS_SIZE_SIGNAL 192
#define VBUS_OFF_SIGNAL_MAGIC 0
#define VBUS_OFF_SIGNAL_VERSION 4
#define VBUS_OFF_SIGNAL_RESERVED 8
#define VBUS_OFF_SIGNAL_SIDES 64

/* struct vbus_descriptor */
#define VBUS_SIZE_DESCRIPTOR 32
#define VBUS_OFF_DESCRIPTOR_COOKIE 0
#define VBUS_OFF_DESCRIPTOR_PTR 8
#define VBUS_OFF_DESCRIPTOR_LEN 16
#define VBUS_OFF_DESCRIPTOR_USED 20
#define VBUS_OFF_DESCRIPTOR_FLAGS 24
#define VBUS_OFF_DESCRIPTOR_OWNER 28

/* struct vbus_ioq */
#define VBUS_SIZE_IOQ 448
#define VBUS_OFF_IOQ_MAGIC 0
#define VBUS_OFF_IOQ_VERSION 4
#define VBUS_OFF_IOQ_COUNT 8
#define VBUS_OFF_IOQ_ROLE 12
#define VBUS_OFF_IOQ_RESERVED 16
#define VBUS_OFF_IOQ_SIGNAL 64
#define VBUS_OFF_IOQ_VALID_HEAD 256
#define VBUS_OFF_IOQ_VALID_TAIL 260
#define VBUS_OFF_IOQ_VALID_RESERVED 264
#define VBUS_OFF_IOQ_INUSE_HEAD 320
#define VBUS_OFF_IOQ_HEAD_RESERVED 324
#define VBUS_OFF_IOQ_INUSE_TAIL 384
#define VBUS_OFF_IOQ_TAIL_RESERVED 388

#ifndef __ASSEMBLER__

#ifdef __KERNEL__
#include <linux/types.h>
#include <linux/stddef.h>
#else
#include <stddef.h>
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef signed int __s32;
typedef unsigned long long __u64;
typedef signed long long __s64;
#endif

/* One direction of a shm-signal: notifications to the side of this index. Any number but 0 means yes */
struct vbus_side {
	__u32 enabled; /* (the side itself) it wants to be notified */
	__u32 pending; /* a notification is on its way. The other side sets it; the side itself clears it when it has done the work */
	__u32 dirty; /* there may be work. The other side sets it; the side itself clears it before it looks */
	__u32 reserved[13]; /* zero */
};
_Static_assert(sizeof(struct vbus_side) == VBUS_SIZE_SIDE, "vbus_side");
_Static_assert(offsetof(struct vbus_side, enabled) == VBUS_OFF_SIDE_ENABLED, "vbus_side.enabled");
_Static_assert(offsetof(struct vbus_side, pending) == VBUS_OFF_SIDE_PENDING, "vbus_side.pending");
_Static_assert(offsetof(struct vbus_side, dirty) == VBUS_OFF_SIDE_DIRTY, "vbus_side.dirty");
_Static_assert(offsetof(struct vbus_side, reserved) == VBUS_OFF_SIDE_RESERVED, "vbus_side.reserved");

/* A shm-signal: edge-triggered notifications in both directions */
struct vbus_signal {
	__u32 magic; /* VBUS_SIGNAL_MAGIC */
	__u32 version; /* VBUS_SIGNAL_VERSION */
	__u32 reserved[14]; /* zero */
	struct vbus_side sides[2]; /* by VBUS_SIDE */
};
_Static_assert(sizeof(struct vbus_signal) == VBUS_SIZE_SIGNAL, "vbus_signal");
_Static_assert(offsetof(struct vbus_signal, magic) == VBUS_OFF_SIGNAL_MAGIC, "vbus_signal.magic");
_Static_assert(offsetof(struct vbus_signal, version) == VBUS_OFF_SIGNAL_VERSION, "vbus_signal.version");
_Static_assert(offsetof(struct vbus_signal, reserved) == VBUS_OFF_SIGNAL_RESERVED, "vbus_signal.reserved");
_Static_assert(offsetof(struct vbus_signal, sides) == VBUS_OFF_SIGNAL_SIDES, "vbus_signal.sides");

/* A place of a ring */
struct vbus_descriptor {
	__u64 cookie; /* any number of the north's; the south ignores it */
	__u64 ptr; /* (north) address of the buffer in the north's memory */
	__u32 len; /* (north) bytes of the packet, or of the empty buffer */
	__u32 used; /* (south) bytes of the received packet, at most len */
	__u32 flags; /* the device's type gives them a meaning. Written by the side that pushes inuse */
	__u32 owner; /* VBUS_SIDE: the side that may access this descriptor and its buffer */
};
_Static_assert(sizeof(struct vbus_descriptor) == VBUS_SIZE_DESCRIPTOR, "vbus_descriptor");
_Static_assert(offsetof(struct vbus_descriptor, cookie) == VBUS_OFF_DESCRIPTOR_COOKIE, "vbus_descriptor.cookie");
_Static_assert(offsetof(struct vbus_descriptor, ptr) == VBUS_OFF_DESCRIPTOR_PTR, "vbus_descriptor.ptr");
_Static_assert(offsetof(struct vbus_descriptor, len) == VBUS_OFF_DESCRIPTOR_LEN, "vbus_descriptor.len");
_Static_assert(offsetof(struct vbus_descriptor, used) == VBUS_OFF_DESCRIPTOR_USED, "vbus_descriptor.used");
_Static_assert(offsetof(struct vbus_descriptor, flags) == VBUS_OFF_DESCRIPTOR_FLAGS, "vbus_descriptor.flags");
_Static_assert(offsetof(struct vbus_descriptor, owner) == VBUS_OFF_DESCRIPTOR_OWNER, "vbus_descriptor.owner");

/* Head of an ioq; count descriptors follow. Indices count modulo 2^32: index modulo count is the descriptor. valid is the range of descriptors with a buffer, inuse that with a packet */
struct vbus_ioq {
	__u32 magic; /* VBUS_IOQ_MAGIC */
	__u32 version; /* VBUS_IOQ_VERSION */
	__u32 count; /* descriptors */
	__u32 role; /* VBUS_ROLE */
	__u32 reserved[12]; /* zero */
	struct vbus_signal signal; /* its notifications */
	__u32 valid_head; /* (north) the oldest buffer */
	__u32 valid_tail; /* (north) after the newest buffer */
	__u32 valid_reserved[14]; /* zero */
	__u32 inuse_head; /* (the receiver of packets) the oldest packet */
	__u32 head_reserved[15]; /* zero */
	__u32 inuse_tail; /* (the sender of packets) after the newest packet */
	__u32 tail_reserved[15]; /* zero */
};
_Static_assert(sizeof(struct vbus_ioq) == VBUS_SIZE_IOQ, "vbus_ioq");
_Static_assert(offsetof(struct vbus_ioq, magic) == VBUS_OFF_IOQ_MAGIC, "vbus_ioq.magic");
_Static_assert(offsetof(struct vbus_ioq, version) == VBUS_OFF_IOQ_VERSION, "vbus_ioq.version");
_Static_assert(offsetof(struct vbus_ioq, count) == VBUS_OFF_IOQ_COUNT, "vbus_ioq.count");
_Static_assert(offsetof(struct vbus_ioq, role) == VBUS_OFF_IOQ_ROLE, "vbus_ioq.role");
_Static_assert(offsetof(struct vbus_ioq, reserved) == VBUS_OFF_IOQ_RESERVED, "vbus_ioq.reserved");
_Static_assert(offsetof(struct vbus_ioq, signal) == VBUS_OFF_IOQ_SIGNAL, "vbus_ioq.signal");
_Static_assert(offsetof(struct vbus_ioq, valid_head) == VBUS_OFF_IOQ_VALID_HEAD, "vbus_ioq.valid_head");
_Static_assert(offsetof(struct vbus_ioq, valid_tail) == VBUS_OFF_IOQ_VALID_TAIL, "vbus_ioq.valid_tail");
_Static_assert(offsetof(struct vbus_ioq, valid_reserved) == VBUS_OFF_IOQ_VALID_RESERVED, "vbus_ioq.valid_reserved");
_Static_assert(offsetof(struct vbus_ioq, inuse_head) == VBUS_OFF_IOQ_INUSE_HEAD, "vbus_ioq.inuse_head");
_Static_assert(offsetof(struct vbus_ioq, head_reserved) == VBUS_OFF_IOQ_HEAD_RESERVED, "vbus_ioq.head_reserved");
_Static_assert(offsetof(struct vbus_ioq, inuse_tail) == VBUS_OFF_IOQ_INUSE_TAIL, "vbus_ioq.inuse_tail");
_Static_assert(offsetof(struct vbus_ioq, tail_reserved) == VBUS_OFF_IOQ_TAIL_RESERVED, "vbus_ioq.tail_reserved");

#endif /* __ASSEMBLER__ */
#endif /* PARAVANE_VBUS_LAYOUT_H */
