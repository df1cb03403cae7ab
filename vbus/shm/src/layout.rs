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
