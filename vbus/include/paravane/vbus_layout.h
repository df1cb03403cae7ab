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

/* virtual-ethernet: calls */
#define VBUS_ETHERNET_LINKUP 0x0 /* begins to pass frames */
#define VBUS_ETHERNET_LINKDOWN 0x1 /* stops */
#define VBUS_ETHERNET_MACQUERY 0x2 /* result: the address, 6 bytes */
#define VBUS_ETHERNET_NEGCAP 0x3 /* argument: group and bits that the north has, u32 each; result: those that hold */
#define VBUS_ETHERNET_FLUSHRX 0x4 /* returns the posted buffers empty */
#define VBUS_ETHERNET_EVQQUERY 0x6 /* result: the number of the event queue, u32; an error where nothing of group 1 holds */
#define VBUS_ETHERNET_MACSET 0x10 /* argument: the wanted address, 6 bytes */
#define VBUS_ETHERNET_MTUQUERY 0x11 /* result: MTU and largest MTU in bytes of an IP packet, u16 each */
#define VBUS_ETHERNET_PAIRS 0x12 /* argument: pairs of queues that the north wants, u32, before a queue is shared; result: those that it gets, at least 1. Without this call it has 1 */

/* virtual-ethernet: queues. Pair 0 are the queues 0 and 1. Pair n, from 1 on, receives by queue 2n + 1 and transmits by queue 2n + 2 */
#define VBUS_ETHERNET_EVENTS 0x2 /* the event queue: the north receives */
#define VBUS_ETHERNET_PAIRS_MAX 0x8 /* most pairs */

/* virtual-ethernet: capability bits of group 1, and vbus_ethernet_event.event */
#define VBUS_ETHERNET_GROUP_EVENTS 0x1 /* the group, for VBUS_ETHERNET_NEGCAP */
#define VBUS_ETHERNET_EVENT_LINK 0x1 /* value is whether frames reach the host's network. Sent for VBUS_ETHERNET_LINKUP, and when it changes */

/* virtual-ethernet: capability bits of group 0, by VBUS_ETHERNET_NEGCAP */
#define VBUS_ETHERNET_CAP_CHAIN 0x1 /* a frame may take several descriptors, in both directions */
#define VBUS_ETHERNET_CAP_CSUM 0x2 /* checksums may be incomplete or verified, in both directions */
#define VBUS_ETHERNET_CAP_TSO4 0x4 /* the north sends TCP segments over IPv4 that are longer than the MTU */
#define VBUS_ETHERNET_CAP_RX_TSO4 0x8 /* the south does. Nothing without the first two */
#define VBUS_ETHERNET_CAP_TSO6 0x10 /* as VBUS_ETHERNET_CAP_TSO4, over IPv6 */
#define VBUS_ETHERNET_CAP_RX_TSO6 0x20 /* as VBUS_ETHERNET_CAP_RX_TSO4, over IPv6 */

/* virtual-ethernet: vbus_descriptor.flags. All but VBUS_ETHERNET_MORE are of a frame's first descriptor */
#define VBUS_ETHERNET_MORE 0x1 /* the frame goes on in the next descriptor */
#define VBUS_ETHERNET_CSUM 0x2 /* the checksum at start + offset is that of the pseudo header: the rest, from start to the end, is to be added */
#define VBUS_ETHERNET_VALID 0x4 /* the checksum was verified */
#define VBUS_ETHERNET_TSO4 0x8 /* TCP over IPv4, as long as several segments of size bytes */
#define VBUS_ETHERNET_TSO6 0xc /* both of these bits: TCP over IPv6 instead */
#define VBUS_ETHERNET_OFFSET_SHIFT 0x4 /* offset / 2: 4 bits */
#define VBUS_ETHERNET_START_SHIFT 0x8 /* start: 8 bits */
#define VBUS_ETHERNET_SIZE_SHIFT 0x10 /* size: 16 bits */

/* virtual-block: calls */
#define VBUS_BLOCK_GEOMETRY 0x0 /* result: vbus_block_geometry */

/* virtual-block: vbus_block_geometry.flags */
#define VBUS_BLOCK_HAS_FLUSH 0x1 /* writes are in a cache: they survive a power failure after a flush */
#define VBUS_BLOCK_HAS_DISCARD 0x2 /* VBUS_BLOCK_DISCARD */
#define VBUS_BLOCK_HAS_ZERO 0x4 /* VBUS_BLOCK_ZERO */
#define VBUS_BLOCK_READ_ONLY 0x8 /* whatever changes the disk fails */

/* virtual-block: vbus_block_request.operation */
#define VBUS_BLOCK_READ 0x0 /* fills the buffers */
#define VBUS_BLOCK_WRITE 0x1 /* writes the buffers */
#define VBUS_BLOCK_FLUSH 0x2 /* makes writes durable whose status was stored before. Without sectors and buffers */
#define VBUS_BLOCK_DISCARD 0x3 /* the content of the sectors no longer matters. Without buffers */
#define VBUS_BLOCK_ZERO 0x4 /* zeroes the sectors. Without buffers */

/* virtual-block: vbus_block_request.status */
#define VBUS_BLOCK_PENDING 0x0 /* the north's: it is not done yet */
#define VBUS_BLOCK_DONE 0x1 /* it is done */
#define VBUS_BLOCK_FAILED 0x2 /* it is not, or only in part: the host could not do it, or it makes no sense for this disk */
#define VBUS_BLOCK_UNSUPPORTED 0x3 /* there is no such operation */

/* virtual-block: flags */
#define VBUS_BLOCK_MORE 0x1 /* vbus_descriptor.flags: the request goes on in the next descriptor */
#define VBUS_BLOCK_UNMAP 0x1 /* vbus_block_request.flags, of VBUS_BLOCK_ZERO: the room may be released */

/* virtual-console: bytes in both directions, in packets without a meaning. It has no calls */
#define VBUS_CONSOLE_PACKET 0x1000 /* most bytes of a packet of the north */

/* The bridge of a machine */
#define VBUS_BRIDGE_MAGIC 0x47425356 /* vbus_bridge.magic: VSBG */
#define VBUS_BRIDGE_VERSION 0x1 /* vbus_bridge.version */
#define VBUS_BRIDGE_CONNECTIONS 0x10 /* connections of a machine. A driver notifies connection n by queue n of the bridge's line */
#define VBUS_BRIDGE_DATA 0x400 /* largest vbus_command.length */

/* vbus_bridge.features: a driver does not use what is not there */
#define VBUS_FEATURE_INTERRUPT 0x1 /* VBUS_COMMAND_INTERRUPT */

/* vbus_command.command. What is in and out stands beside each field */
#define VBUS_COMMAND_START 0x1 /* a driver begins: all connections end, all events are forgotten */
#define VBUS_COMMAND_INTERFACE 0x2 /* the next interface after this number. interface; out: interface, number: its version, data: its type */
#define VBUS_COMMAND_OPEN 0x3 /* opens a connection. interface, number: the version; out: connection */
#define VBUS_COMMAND_CLOSE 0x4 /* ends a connection: its device touches nothing any more. connection */
#define VBUS_COMMAND_SHARE 0x5 /* shares a queue. connection, queue, data: its vbus_ioq, number: its descriptors */
#define VBUS_COMMAND_CALL 0x6 /* calls the device. connection, number: the call, data and length: the argument; out: the result in their place, for which VBUS_BRIDGE_DATA bytes are free */
#define VBUS_COMMAND_EVENT 0x7 /* takes the next event. out: number: VBUS_EVENT, interface or connection */
#define VBUS_COMMAND_INTERRUPT 0x8 /* gives a shared queue an interrupt of its own, in place of the one that it has. connection, queue, number: a vector, apic: a vCPU; number 0: the queue has the bridge's line again */

/* What happened on the machine's bus */
#define VBUS_EVENT_NONE 0x0 /* nothing more */
#define VBUS_EVENT_ADDED 0x1 /* an interface was added */
#define VBUS_EVENT_DROPPED 0x2 /* an interface was removed */
#define VBUS_EVENT_CLOSED 0x3 /* the other side has ended a connection */
#define VBUS_EVENT_LOST 0x4 /* events were lost: list the interfaces */

/* vbus_command.status */
#define VBUS_DONE 0x0 /* it is done */
#define VBUS_ERROR_NOT_FOUND 0x1 /* there is none */
#define VBUS_ERROR_EXISTS 0x2 /* there is one already */
#define VBUS_ERROR_BUSY 0x3 /* it is in use */
#define VBUS_ERROR_DENIED 0x4 /* no permission */
#define VBUS_ERROR_INVALID 0x5 /* it makes no sense */
#define VBUS_ERROR_LIMIT 0x6 /* a limit is reached */
#define VBUS_ERROR_BROKEN 0x7 /* the protocol of a queue was broken */
#define VBUS_ERROR_HOST 0x8 /* the host refused something */

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

/* struct vbus_ethernet_event */
#define VBUS_SIZE_ETHERNET_EVENT 16
#define VBUS_OFF_ETHERNET_EVENT_EVENT 0
#define VBUS_OFF_ETHERNET_EVENT_VALUE 4
#define VBUS_OFF_ETHERNET_EVENT_RESERVED 8

/* struct vbus_block_request */
#define VBUS_SIZE_BLOCK_REQUEST 32
#define VBUS_OFF_BLOCK_REQUEST_OPERATION 0
#define VBUS_OFF_BLOCK_REQUEST_STATUS 4
#define VBUS_OFF_BLOCK_REQUEST_SECTOR 8
#define VBUS_OFF_BLOCK_REQUEST_SECTORS 16
#define VBUS_OFF_BLOCK_REQUEST_FLAGS 20
#define VBUS_OFF_BLOCK_REQUEST_RESERVED 24

/* struct vbus_block_geometry */
#define VBUS_SIZE_BLOCK_GEOMETRY 64
#define VBUS_OFF_BLOCK_GEOMETRY_SECTORS 0
#define VBUS_OFF_BLOCK_GEOMETRY_FLAGS 8
#define VBUS_OFF_BLOCK_GEOMETRY_BLOCK 12
#define VBUS_OFF_BLOCK_GEOMETRY_PHYSICAL 16
#define VBUS_OFF_BLOCK_GEOMETRY_SEGMENTS 20
#define VBUS_OFF_BLOCK_GEOMETRY_MOST 24
#define VBUS_OFF_BLOCK_GEOMETRY_RESERVED 28
#define VBUS_OFF_BLOCK_GEOMETRY_SERIAL 40

/* struct vbus_bridge */
#define VBUS_SIZE_BRIDGE 88
#define VBUS_OFF_BRIDGE_MAGIC 0
#define VBUS_OFF_BRIDGE_VERSION 4
#define VBUS_OFF_BRIDGE_EVENTS 8
#define VBUS_OFF_BRIDGE_FEATURES 12
#define VBUS_OFF_BRIDGE_COMMAND 16
#define VBUS_OFF_BRIDGE_SPACE 24
#define VBUS_OFF_BRIDGE_NOTIFY 80
#define VBUS_OFF_BRIDGE_LAST 84

/* struct vbus_command */
#define VBUS_SIZE_COMMAND 64
#define VBUS_OFF_COMMAND_COMMAND 0
#define VBUS_OFF_COMMAND_STATUS 4
#define VBUS_OFF_COMMAND_INTERFACE 8
#define VBUS_OFF_COMMAND_CONNECTION 12
#define VBUS_OFF_COMMAND_QUEUE 16
#define VBUS_OFF_COMMAND_NUMBER 20
#define VBUS_OFF_COMMAND_DATA 24
#define VBUS_OFF_COMMAND_LENGTH 32
#define VBUS_OFF_COMMAND_APIC 36
#define VBUS_OFF_COMMAND_RESERVED 40

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

/* virtual-ethernet: a packet of the event queue */
struct vbus_ethernet_event {
	__u32 event; /* VBUS_ETHERNET_EVENT */
	__u32 value; /* what the event says */
	__u32 reserved[2]; /* zero */
};
_Static_assert(sizeof(struct vbus_ethernet_event) == VBUS_SIZE_ETHERNET_EVENT, "vbus_ethernet_event");
_Static_assert(offsetof(struct vbus_ethernet_event, event) == VBUS_OFF_ETHERNET_EVENT_EVENT, "vbus_ethernet_event.event");
_Static_assert(offsetof(struct vbus_ethernet_event, value) == VBUS_OFF_ETHERNET_EVENT_VALUE, "vbus_ethernet_event.value");
_Static_assert(offsetof(struct vbus_ethernet_event, reserved) == VBUS_OFF_ETHERNET_EVENT_RESERVED, "vbus_ethernet_event.reserved");

/* virtual-block: a request, in the buffer of its first descriptor, at a multiple of 8. The data follows in the buffers of further descriptors. The south reads it once */
struct vbus_block_request {
	__u32 operation; /* VBUS_BLOCK_OPERATION */
	__u32 status; /* VBUS_BLOCK_STATUS. The south stores it last: after that it touches neither this nor the data */
	__u64 sector; /* the first sector, of 512 bytes */
	__u32 sectors; /* their number: the data has exactly as many */
	__u32 flags; /* VBUS_BLOCK_UNMAP */
	__u32 reserved[2]; /* zero */
};
_Static_assert(sizeof(struct vbus_block_request) == VBUS_SIZE_BLOCK_REQUEST, "vbus_block_request");
_Static_assert(offsetof(struct vbus_block_request, operation) == VBUS_OFF_BLOCK_REQUEST_OPERATION, "vbus_block_request.operation");
_Static_assert(offsetof(struct vbus_block_request, status) == VBUS_OFF_BLOCK_REQUEST_STATUS, "vbus_block_request.status");
_Static_assert(offsetof(struct vbus_block_request, sector) == VBUS_OFF_BLOCK_REQUEST_SECTOR, "vbus_block_request.sector");
_Static_assert(offsetof(struct vbus_block_request, sectors) == VBUS_OFF_BLOCK_REQUEST_SECTORS, "vbus_block_request.sectors");
_Static_assert(offsetof(struct vbus_block_request, flags) == VBUS_OFF_BLOCK_REQUEST_FLAGS, "vbus_block_request.flags");
_Static_assert(offsetof(struct vbus_block_request, reserved) == VBUS_OFF_BLOCK_REQUEST_RESERVED, "vbus_block_request.reserved");

/* virtual-block: a disk */
struct vbus_block_geometry {
	__u64 sectors; /* size, in sectors of 512 bytes */
	__u32 flags; /* VBUS_BLOCK_HAS */
	__u32 block; /* bytes of a logical block: requests begin and end at multiples of it */
	__u32 physical; /* bytes of a block that the host writes as a whole */
	__u32 segments; /* most data descriptors of a request */
	__u32 most; /* most sectors of VBUS_BLOCK_DISCARD and VBUS_BLOCK_ZERO */
	__u32 reserved[3]; /* zero */
	__u32 serial[6]; /* a name for people: 24 bytes, the rest zero */
};
_Static_assert(sizeof(struct vbus_block_geometry) == VBUS_SIZE_BLOCK_GEOMETRY, "vbus_block_geometry");
_Static_assert(offsetof(struct vbus_block_geometry, sectors) == VBUS_OFF_BLOCK_GEOMETRY_SECTORS, "vbus_block_geometry.sectors");
_Static_assert(offsetof(struct vbus_block_geometry, flags) == VBUS_OFF_BLOCK_GEOMETRY_FLAGS, "vbus_block_geometry.flags");
_Static_assert(offsetof(struct vbus_block_geometry, block) == VBUS_OFF_BLOCK_GEOMETRY_BLOCK, "vbus_block_geometry.block");
_Static_assert(offsetof(struct vbus_block_geometry, physical) == VBUS_OFF_BLOCK_GEOMETRY_PHYSICAL, "vbus_block_geometry.physical");
_Static_assert(offsetof(struct vbus_block_geometry, segments) == VBUS_OFF_BLOCK_GEOMETRY_SEGMENTS, "vbus_block_geometry.segments");
_Static_assert(offsetof(struct vbus_block_geometry, most) == VBUS_OFF_BLOCK_GEOMETRY_MOST, "vbus_block_geometry.most");
_Static_assert(offsetof(struct vbus_block_geometry, reserved) == VBUS_OFF_BLOCK_GEOMETRY_RESERVED, "vbus_block_geometry.reserved");
_Static_assert(offsetof(struct vbus_block_geometry, serial) == VBUS_OFF_BLOCK_GEOMETRY_SERIAL, "vbus_block_geometry.serial");

/* Registers of a device of kind VMI_DEVICE_VBUS. A driver reads all of them and stores to two */
struct vbus_bridge {
	__u32 magic; /* VBUS_BRIDGE_MAGIC */
	__u32 version; /* VBUS_BRIDGE_VERSION */
	__u32 events; /* changes when VBUS_COMMAND_EVENT has something new, before the interrupt */
	__u32 features; /* VBUS_FEATURE */
	__u64 command; /* a store of the guest-physical address of a vbus_command carries it out before it is over; bus.command does the same without a trap */
	__u32 space[14]; /* zero */
	__u32 notify; /* a store of a connection's number is the same as bus.notify and line.notify, and slower */
	__u32 last; /* zero */
};
_Static_assert(sizeof(struct vbus_bridge) == VBUS_SIZE_BRIDGE, "vbus_bridge");
_Static_assert(offsetof(struct vbus_bridge, magic) == VBUS_OFF_BRIDGE_MAGIC, "vbus_bridge.magic");
_Static_assert(offsetof(struct vbus_bridge, version) == VBUS_OFF_BRIDGE_VERSION, "vbus_bridge.version");
_Static_assert(offsetof(struct vbus_bridge, events) == VBUS_OFF_BRIDGE_EVENTS, "vbus_bridge.events");
_Static_assert(offsetof(struct vbus_bridge, features) == VBUS_OFF_BRIDGE_FEATURES, "vbus_bridge.features");
_Static_assert(offsetof(struct vbus_bridge, command) == VBUS_OFF_BRIDGE_COMMAND, "vbus_bridge.command");
_Static_assert(offsetof(struct vbus_bridge, space) == VBUS_OFF_BRIDGE_SPACE, "vbus_bridge.space");
_Static_assert(offsetof(struct vbus_bridge, notify) == VBUS_OFF_BRIDGE_NOTIFY, "vbus_bridge.notify");
_Static_assert(offsetof(struct vbus_bridge, last) == VBUS_OFF_BRIDGE_LAST, "vbus_bridge.last");

/* A command of a driver. It lies in the guest's memory, at a multiple of its size */
struct vbus_command {
	__u32 command; /* VBUS_COMMAND */
	__u32 status; /* (out) VBUS_DONE or VBUS_ERROR */
	__u32 interface; /* number of an interface */
	__u32 connection; /* number of a connection, below VBUS_BRIDGE_CONNECTIONS */
	__u32 queue; /* number of a queue */
	__u32 number; /* another number */
	__u64 data; /* guest-physical address */
	__u32 length; /* bytes there */
	__u32 apic; /* id of a local APIC */
	__u32 reserved[6]; /* zero */
};
_Static_assert(sizeof(struct vbus_command) == VBUS_SIZE_COMMAND, "vbus_command");
_Static_assert(offsetof(struct vbus_command, command) == VBUS_OFF_COMMAND_COMMAND, "vbus_command.command");
_Static_assert(offsetof(struct vbus_command, status) == VBUS_OFF_COMMAND_STATUS, "vbus_command.status");
_Static_assert(offsetof(struct vbus_command, interface) == VBUS_OFF_COMMAND_INTERFACE, "vbus_command.interface");
_Static_assert(offsetof(struct vbus_command, connection) == VBUS_OFF_COMMAND_CONNECTION, "vbus_command.connection");
_Static_assert(offsetof(struct vbus_command, queue) == VBUS_OFF_COMMAND_QUEUE, "vbus_command.queue");
_Static_assert(offsetof(struct vbus_command, number) == VBUS_OFF_COMMAND_NUMBER, "vbus_command.number");
_Static_assert(offsetof(struct vbus_command, data) == VBUS_OFF_COMMAND_DATA, "vbus_command.data");
_Static_assert(offsetof(struct vbus_command, length) == VBUS_OFF_COMMAND_LENGTH, "vbus_command.length");
_Static_assert(offsetof(struct vbus_command, apic) == VBUS_OFF_COMMAND_APIC, "vbus_command.apic");
_Static_assert(offsetof(struct vbus_command, reserved) == VBUS_OFF_COMMAND_RESERVED, "vbus_command.reserved");

#endif /* __ASSEMBLER__ */
#endif /* PARAVANE_VBUS_LAYOUT_H */
