// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
// Made by tools/abigen from abi/vbus.toml: change that, not this.
//! The memory that both sides share: constants, and views of atomic fields.

use crate::atomic::{AtomicU32, AtomicU64};
#[cfg(not(loom))]
use core::mem::{offset_of, size_of};
#[cfg(not(loom))]
use paravane_abi::view::View;

// Magic numbers and versions. A side refuses a version that it does not know
/// Magic of a shm-signal: VSGL.
pub const VBUS_SIGNAL_MAGIC: u64 = 0x4c475356;
/// Version of shm-signal.
pub const VBUS_SIGNAL_VERSION: u64 = 0x1;
/// Magic of an ioq: VIOQ.
pub const VBUS_IOQ_MAGIC: u64 = 0x514f4956;
/// Version of ioq.
pub const VBUS_IOQ_VERSION: u64 = 0x1;

// Sides: index into vbus_signal.sides, and value of vbus_descriptor.owner
/// The owner of the memory.
pub const VBUS_NORTH: u64 = 0x0;
/// The device.
pub const VBUS_SOUTH: u64 = 0x1;

// What the north does with a queue: vbus_ioq.role
/// The north sends packets.
pub const VBUS_ROLE_TRANSMIT: u64 = 0x1;
/// The north posts empty buffers and receives packets in them.
pub const VBUS_ROLE_RECEIVE: u64 = 0x2;

// Limits
/// Largest vbus_ioq.count. The count is a power of two, at least 1.
pub const VBUS_COUNT_MAX: u64 = 0x8000;

// virtual-ethernet: calls
/// Begins to pass frames.
pub const VBUS_ETHERNET_LINKUP: u64 = 0x0;
/// Stops.
pub const VBUS_ETHERNET_LINKDOWN: u64 = 0x1;
/// Result: the address, 6 bytes.
pub const VBUS_ETHERNET_MACQUERY: u64 = 0x2;
/// Argument: group and bits that the north has, u32 each; result: those that hold.
pub const VBUS_ETHERNET_NEGCAP: u64 = 0x3;
/// Returns the posted buffers empty.
pub const VBUS_ETHERNET_FLUSHRX: u64 = 0x4;
/// Result: the number of the event queue, u32; an error where nothing of group 1 holds.
pub const VBUS_ETHERNET_EVQQUERY: u64 = 0x6;
/// Argument: the wanted address, 6 bytes.
pub const VBUS_ETHERNET_MACSET: u64 = 0x10;
/// Result: MTU and largest MTU in bytes of an IP packet, u16 each.
pub const VBUS_ETHERNET_MTUQUERY: u64 = 0x11;
/// Argument: pairs of queues that the north wants, u32, before a queue is shared; result: those that it gets, at least 1. Without this call it has 1.
pub const VBUS_ETHERNET_PAIRS: u64 = 0x12;

// virtual-ethernet: queues. Pair 0 are the queues 0 and 1. Pair n, from 1 on, receives by queue 2n + 1 and transmits by queue 2n + 2
/// The event queue: the north receives.
pub const VBUS_ETHERNET_EVENTS: u64 = 0x2;
/// Most pairs.
pub const VBUS_ETHERNET_PAIRS_MAX: u64 = 0x8;

// virtual-ethernet: capability bits of group 1, and vbus_ethernet_event.event
/// The group, for VBUS_ETHERNET_NEGCAP.
pub const VBUS_ETHERNET_GROUP_EVENTS: u64 = 0x1;
/// Value is whether frames reach the host's network. Sent for VBUS_ETHERNET_LINKUP, and when it changes.
pub const VBUS_ETHERNET_EVENT_LINK: u64 = 0x1;

// virtual-ethernet: capability bits of group 0, by VBUS_ETHERNET_NEGCAP
/// A frame may take several descriptors, in both directions.
pub const VBUS_ETHERNET_CAP_CHAIN: u64 = 0x1;
/// Checksums may be incomplete or verified, in both directions.
pub const VBUS_ETHERNET_CAP_CSUM: u64 = 0x2;
/// The north sends TCP segments over IPv4 that are longer than the MTU.
pub const VBUS_ETHERNET_CAP_TSO4: u64 = 0x4;
/// The south does. Nothing without the first two.
pub const VBUS_ETHERNET_CAP_RX_TSO4: u64 = 0x8;
/// As VBUS_ETHERNET_CAP_TSO4, over IPv6.
pub const VBUS_ETHERNET_CAP_TSO6: u64 = 0x10;
/// As VBUS_ETHERNET_CAP_RX_TSO4, over IPv6.
pub const VBUS_ETHERNET_CAP_RX_TSO6: u64 = 0x20;

// virtual-ethernet: vbus_descriptor.flags. All but VBUS_ETHERNET_MORE are of a frame's first descriptor
/// The frame goes on in the next descriptor.
pub const VBUS_ETHERNET_MORE: u64 = 0x1;
/// The checksum at start + offset is that of the pseudo header: the rest, from start to the end, is to be added.
pub const VBUS_ETHERNET_CSUM: u64 = 0x2;
/// The checksum was verified.
pub const VBUS_ETHERNET_VALID: u64 = 0x4;
/// TCP over IPv4, as long as several segments of size bytes.
pub const VBUS_ETHERNET_TSO4: u64 = 0x8;
/// Both of these bits: TCP over IPv6 instead.
pub const VBUS_ETHERNET_TSO6: u64 = 0xc;
/// Offset / 2: 4 bits.
pub const VBUS_ETHERNET_OFFSET_SHIFT: u64 = 0x4;
/// Start: 8 bits.
pub const VBUS_ETHERNET_START_SHIFT: u64 = 0x8;
/// Size: 16 bits.
pub const VBUS_ETHERNET_SIZE_SHIFT: u64 = 0x10;

// virtual-block: calls
/// Result: vbus_block_geometry.
pub const VBUS_BLOCK_GEOMETRY: u64 = 0x0;

// virtual-block: vbus_block_geometry.flags
/// Writes are in a cache: they survive a power failure after a flush.
pub const VBUS_BLOCK_HAS_FLUSH: u64 = 0x1;
/// VBUS_BLOCK_DISCARD.
pub const VBUS_BLOCK_HAS_DISCARD: u64 = 0x2;
/// VBUS_BLOCK_ZERO.
pub const VBUS_BLOCK_HAS_ZERO: u64 = 0x4;
/// Whatever changes the disk fails.
pub const VBUS_BLOCK_READ_ONLY: u64 = 0x8;

// virtual-block: vbus_block_request.operation
/// Fills the buffers.
pub const VBUS_BLOCK_READ: u64 = 0x0;
/// Writes the buffers.
pub const VBUS_BLOCK_WRITE: u64 = 0x1;
/// Makes writes durable whose status was stored before. Without sectors and buffers.
pub const VBUS_BLOCK_FLUSH: u64 = 0x2;
/// The content of the sectors no longer matters. Without buffers.
pub const VBUS_BLOCK_DISCARD: u64 = 0x3;
/// Zeroes the sectors. Without buffers.
pub const VBUS_BLOCK_ZERO: u64 = 0x4;

// virtual-block: vbus_block_request.status
/// The north's: it is not done yet.
pub const VBUS_BLOCK_PENDING: u64 = 0x0;
/// It is done.
pub const VBUS_BLOCK_DONE: u64 = 0x1;
/// It is not, or only in part: the host could not do it, or it makes no sense for this disk.
pub const VBUS_BLOCK_FAILED: u64 = 0x2;
/// There is no such operation.
pub const VBUS_BLOCK_UNSUPPORTED: u64 = 0x3;

// virtual-block: flags
/// Vbus_descriptor.flags: the request goes on in the next descriptor.
pub const VBUS_BLOCK_MORE: u64 = 0x1;
/// Vbus_block_request.flags, of VBUS_BLOCK_ZERO: the room may be released.
pub const VBUS_BLOCK_UNMAP: u64 = 0x1;

// virtual-console: bytes in both directions, in packets without a meaning. It has no calls
/// Most bytes of a packet of the north.
pub const VBUS_CONSOLE_PACKET: u64 = 0x1000;

// The bridge of a machine
/// Vbus_bridge.magic: VSBG.
pub const VBUS_BRIDGE_MAGIC: u64 = 0x47425356;
/// Vbus_bridge.version.
pub const VBUS_BRIDGE_VERSION: u64 = 0x1;
/// Connections of a machine. A driver notifies connection n by queue n of the bridge's line.
pub const VBUS_BRIDGE_CONNECTIONS: u64 = 0x10;
/// Largest vbus_command.length.
pub const VBUS_BRIDGE_DATA: u64 = 0x400;

// vbus_bridge.features: a driver does not use what is not there
/// VBUS_COMMAND_INTERRUPT.
pub const VBUS_FEATURE_INTERRUPT: u64 = 0x1;

// vbus_command.command. What is in and out stands beside each field
/// A driver begins: all connections end, all events are forgotten.
pub const VBUS_COMMAND_START: u64 = 0x1;
/// The next interface after this number. interface; out: interface, number: its version, data: its type.
pub const VBUS_COMMAND_INTERFACE: u64 = 0x2;
/// Opens a connection. interface, number: the version; out: connection.
pub const VBUS_COMMAND_OPEN: u64 = 0x3;
/// Ends a connection: its device touches nothing any more. connection.
pub const VBUS_COMMAND_CLOSE: u64 = 0x4;
/// Shares a queue. connection, queue, data: its vbus_ioq, number: its descriptors.
pub const VBUS_COMMAND_SHARE: u64 = 0x5;
/// Calls the device. connection, number: the call, data and length: the argument; out: the result in their place, for which VBUS_BRIDGE_DATA bytes are free.
pub const VBUS_COMMAND_CALL: u64 = 0x6;
/// Takes the next event. out: number: VBUS_EVENT, interface or connection.
pub const VBUS_COMMAND_EVENT: u64 = 0x7;
/// Gives a shared queue an interrupt of its own, in place of the one that it has. connection, queue, number: a vector, apic: a vCPU; number 0: the queue has the bridge's line again.
pub const VBUS_COMMAND_INTERRUPT: u64 = 0x8;

// What happened on the machine's bus
/// Nothing more.
pub const VBUS_EVENT_NONE: u64 = 0x0;
/// An interface was added.
pub const VBUS_EVENT_ADDED: u64 = 0x1;
/// An interface was removed.
pub const VBUS_EVENT_DROPPED: u64 = 0x2;
/// The other side has ended a connection.
pub const VBUS_EVENT_CLOSED: u64 = 0x3;
/// Events were lost: list the interfaces.
pub const VBUS_EVENT_LOST: u64 = 0x4;

// vbus_command.status
/// It is done.
pub const VBUS_DONE: u64 = 0x0;
/// There is none.
pub const VBUS_ERROR_NOT_FOUND: u64 = 0x1;
/// There is one already.
pub const VBUS_ERROR_EXISTS: u64 = 0x2;
/// It is in use.
pub const VBUS_ERROR_BUSY: u64 = 0x3;
/// No permission.
pub const VBUS_ERROR_DENIED: u64 = 0x4;
/// It makes no sense.
pub const VBUS_ERROR_INVALID: u64 = 0x5;
/// A limit is reached.
pub const VBUS_ERROR_LIMIT: u64 = 0x6;
/// The protocol of a queue was broken.
pub const VBUS_ERROR_BROKEN: u64 = 0x7;
/// The host refused something.
pub const VBUS_ERROR_HOST: u64 = 0x8;

/// One direction of a shm-signal: notifications to the side of this index. Any number but 0 means yes.
#[repr(C)]
#[derive(Debug)]
pub struct Side {
    /// (the side itself) it wants to be notified.
    pub enabled: AtomicU32,
    /// A notification is on its way. The other side sets it; the side itself clears it when it has done the work.
    pub pending: AtomicU32,
    /// There may be work. The other side sets it; the side itself clears it before it looks.
    pub dirty: AtomicU32,
    /// Zero.
    pub reserved: [AtomicU32; 13],
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
#[cfg(not(loom))]
unsafe impl View for Side {}
#[cfg(not(loom))]
const _: () = assert!(size_of::<Side>() == 64);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Side, enabled) == 0);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Side, pending) == 4);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Side, dirty) == 8);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Side, reserved) == 12);

/// A shm-signal: edge-triggered notifications in both directions.
#[repr(C)]
#[derive(Debug)]
pub struct Signal {
    /// VBUS_SIGNAL_MAGIC.
    pub magic: AtomicU32,
    /// VBUS_SIGNAL_VERSION.
    pub version: AtomicU32,
    /// Zero.
    pub reserved: [AtomicU32; 14],
    /// By VBUS_SIDE.
    pub sides: [Side; 2],
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
#[cfg(not(loom))]
unsafe impl View for Signal {}
#[cfg(not(loom))]
const _: () = assert!(size_of::<Signal>() == 192);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Signal, magic) == 0);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Signal, version) == 4);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Signal, reserved) == 8);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Signal, sides) == 64);

/// A place of a ring.
#[repr(C)]
#[derive(Debug)]
pub struct Descriptor {
    /// Any number of the north's; the south ignores it.
    pub cookie: AtomicU64,
    /// (north) address of the buffer in the north's memory.
    pub ptr: AtomicU64,
    /// (north) bytes of the packet, or of the empty buffer.
    pub len: AtomicU32,
    /// (south) bytes of the received packet, at most len.
    pub used: AtomicU32,
    /// The device's type gives them a meaning. Written by the side that pushes inuse.
    pub flags: AtomicU32,
    /// VBUS_SIDE: the side that may access this descriptor and its buffer.
    pub owner: AtomicU32,
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
#[cfg(not(loom))]
unsafe impl View for Descriptor {}
#[cfg(not(loom))]
const _: () = assert!(size_of::<Descriptor>() == 32);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Descriptor, cookie) == 0);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Descriptor, ptr) == 8);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Descriptor, len) == 16);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Descriptor, used) == 20);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Descriptor, flags) == 24);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Descriptor, owner) == 28);

/// Head of an ioq; count descriptors follow. Indices count modulo 2^32: index modulo count is the descriptor. valid is the range of descriptors with a buffer, inuse that with a packet.
#[repr(C)]
#[derive(Debug)]
pub struct Ioq {
    /// VBUS_IOQ_MAGIC.
    pub magic: AtomicU32,
    /// VBUS_IOQ_VERSION.
    pub version: AtomicU32,
    /// Descriptors.
    pub count: AtomicU32,
    /// VBUS_ROLE.
    pub role: AtomicU32,
    /// Zero.
    pub reserved: [AtomicU32; 12],
    /// Its notifications.
    pub signal: Signal,
    /// (north) the oldest buffer.
    pub valid_head: AtomicU32,
    /// (north) after the newest buffer.
    pub valid_tail: AtomicU32,
    /// Zero.
    pub valid_reserved: [AtomicU32; 14],
    /// (the receiver of packets) the oldest packet.
    pub inuse_head: AtomicU32,
    /// Zero.
    pub head_reserved: [AtomicU32; 15],
    /// (the sender of packets) after the newest packet.
    pub inuse_tail: AtomicU32,
    /// Zero.
    pub tail_reserved: [AtomicU32; 15],
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
#[cfg(not(loom))]
unsafe impl View for Ioq {}
#[cfg(not(loom))]
const _: () = assert!(size_of::<Ioq>() == 448);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Ioq, magic) == 0);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Ioq, version) == 4);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Ioq, count) == 8);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Ioq, role) == 12);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Ioq, reserved) == 16);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Ioq, signal) == 64);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Ioq, valid_head) == 256);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Ioq, valid_tail) == 260);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Ioq, valid_reserved) == 264);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Ioq, inuse_head) == 320);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Ioq, head_reserved) == 324);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Ioq, inuse_tail) == 384);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Ioq, tail_reserved) == 388);

/// Virtual-ethernet: a packet of the event queue.
#[repr(C)]
#[derive(Debug)]
pub struct EthernetEvent {
    /// VBUS_ETHERNET_EVENT.
    pub event: AtomicU32,
    /// What the event says.
    pub value: AtomicU32,
    /// Zero.
    pub reserved: [AtomicU32; 2],
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
#[cfg(not(loom))]
unsafe impl View for EthernetEvent {}
#[cfg(not(loom))]
const _: () = assert!(size_of::<EthernetEvent>() == 16);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(EthernetEvent, event) == 0);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(EthernetEvent, value) == 4);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(EthernetEvent, reserved) == 8);

/// Virtual-block: a request, in the buffer of its first descriptor, at a multiple of 8. The data follows in the buffers of further descriptors. The south reads it once.
#[repr(C)]
#[derive(Debug)]
pub struct BlockRequest {
    /// VBUS_BLOCK_OPERATION.
    pub operation: AtomicU32,
    /// VBUS_BLOCK_STATUS. The south stores it last: after that it touches neither this nor the data.
    pub status: AtomicU32,
    /// The first sector, of 512 bytes.
    pub sector: AtomicU64,
    /// Their number: the data has exactly as many.
    pub sectors: AtomicU32,
    /// VBUS_BLOCK_UNMAP.
    pub flags: AtomicU32,
    /// Zero.
    pub reserved: [AtomicU32; 2],
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
#[cfg(not(loom))]
unsafe impl View for BlockRequest {}
#[cfg(not(loom))]
const _: () = assert!(size_of::<BlockRequest>() == 32);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockRequest, operation) == 0);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockRequest, status) == 4);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockRequest, sector) == 8);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockRequest, sectors) == 16);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockRequest, flags) == 20);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockRequest, reserved) == 24);

/// Virtual-block: a disk.
#[repr(C)]
#[derive(Debug)]
pub struct BlockGeometry {
    /// Size, in sectors of 512 bytes.
    pub sectors: AtomicU64,
    /// VBUS_BLOCK_HAS.
    pub flags: AtomicU32,
    /// Bytes of a logical block: requests begin and end at multiples of it.
    pub block: AtomicU32,
    /// Bytes of a block that the host writes as a whole.
    pub physical: AtomicU32,
    /// Most data descriptors of a request.
    pub segments: AtomicU32,
    /// Most sectors of VBUS_BLOCK_DISCARD and VBUS_BLOCK_ZERO.
    pub most: AtomicU32,
    /// Zero.
    pub reserved: [AtomicU32; 3],
    /// A name for people: 24 bytes, the rest zero.
    pub serial: [AtomicU32; 6],
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
#[cfg(not(loom))]
unsafe impl View for BlockGeometry {}
#[cfg(not(loom))]
const _: () = assert!(size_of::<BlockGeometry>() == 64);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockGeometry, sectors) == 0);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockGeometry, flags) == 8);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockGeometry, block) == 12);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockGeometry, physical) == 16);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockGeometry, segments) == 20);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockGeometry, most) == 24);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockGeometry, reserved) == 28);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(BlockGeometry, serial) == 40);

/// Registers of a device of kind VMI_DEVICE_VBUS. A driver reads all of them and stores to two.
#[repr(C)]
#[derive(Debug)]
pub struct Bridge {
    /// VBUS_BRIDGE_MAGIC.
    pub magic: AtomicU32,
    /// VBUS_BRIDGE_VERSION.
    pub version: AtomicU32,
    /// Changes when VBUS_COMMAND_EVENT has something new, before the interrupt.
    pub events: AtomicU32,
    /// VBUS_FEATURE.
    pub features: AtomicU32,
    /// A store of the guest-physical address of a vbus_command carries it out before it is over; bus.command does the same without a trap.
    pub command: AtomicU64,
    /// Zero.
    pub space: [AtomicU32; 14],
    /// A store of a connection's number is the same as bus.notify and line.notify, and slower.
    pub notify: AtomicU32,
    /// Zero.
    pub last: AtomicU32,
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
#[cfg(not(loom))]
unsafe impl View for Bridge {}
#[cfg(not(loom))]
const _: () = assert!(size_of::<Bridge>() == 88);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Bridge, magic) == 0);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Bridge, version) == 4);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Bridge, events) == 8);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Bridge, features) == 12);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Bridge, command) == 16);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Bridge, space) == 24);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Bridge, notify) == 80);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Bridge, last) == 84);

/// A command of a driver. It lies in the guest's memory, at a multiple of its size.
#[repr(C)]
#[derive(Debug)]
pub struct Command {
    /// VBUS_COMMAND.
    pub command: AtomicU32,
    /// (out) VBUS_DONE or VBUS_ERROR.
    pub status: AtomicU32,
    /// Number of an interface.
    pub interface: AtomicU32,
    /// Number of a connection, below VBUS_BRIDGE_CONNECTIONS.
    pub connection: AtomicU32,
    /// Number of a queue.
    pub queue: AtomicU32,
    /// Another number.
    pub number: AtomicU32,
    /// Guest-physical address.
    pub data: AtomicU64,
    /// Bytes there.
    pub length: AtomicU32,
    /// Id of a local APIC.
    pub apic: AtomicU32,
    /// Zero.
    pub reserved: [AtomicU32; 6],
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
#[cfg(not(loom))]
unsafe impl View for Command {}
#[cfg(not(loom))]
const _: () = assert!(size_of::<Command>() == 64);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Command, command) == 0);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Command, status) == 4);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Command, interface) == 8);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Command, connection) == 12);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Command, queue) == 16);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Command, number) == 20);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Command, data) == 24);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Command, length) == 32);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Command, apic) == 36);
#[cfg(not(loom))]
const _: () = assert!(offset_of!(Command, reserved) == 40);
