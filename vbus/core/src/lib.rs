// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The virtual bus: software devices in containers that an administrator creates (Haskins,
//! "virtual-bus", 2009).
//!
//! A *class* makes *devices*. A *bus* is a container: an administrator links devices to it, and
//! each link is an *interface* with a number. A *client* joins one bus, sees its interfaces and
//! nothing else, opens a *connection* to one, and shares queues with the device. [`Vbus`] holds all
//! of these and checks every access.
//!
//! This crate knows neither sockets, processes nor virtual machines. A *connector* brings clients:
//! it checks their identity, maps their memory ([`Region`], [`MemoryContext`]), and passes
//! notifications in both directions ([`Notify`], [`Vbus::work`]). All of it runs on one thread at a
//! time. docs/vbus.md has the rules.

#![deny(unsafe_code)]

mod access;
mod administration;
mod client;
mod configuration;
mod content;
mod device;
pub mod devices;
mod endings;
#[expect(unsafe_code, reason = "rings in memory that a connector has mapped")]
mod endpoint;
mod error;
pub mod ethernet;
mod events;
mod memory;
mod name;
#[expect(
    unsafe_code,
    reason = "copies from and to memory that a connector has mapped"
)]
mod offsets;
pub mod polls;
pub mod spaces;
#[expect(unsafe_code, reason = "words in memory that a connector has mapped")]
mod table;
mod turns;

pub use access::{Access, Credentials};
pub use administration::{BusInfo, DeviceInfo, Vbus, microseconds};
pub use client::{Interface, MemberId};
pub use configuration::{BusConfiguration, Configuration, DeviceConfiguration};
pub use content::{Content, Culprit, Parts};
pub use device::{
    Attribute, Class, ConnectionId, Device, QueueKind, Round, Work, flag, no_attribute,
};
pub use endpoint::{Broken, Endpoint, Notify, Sent, Statistics};
pub use error::{Error, Kind};
pub use events::Event;
pub use memory::{MemoryContext, Missing, Outside, Piece, Region, copy};
pub use name::Name;
pub use offsets::{Offsets, ReadOnly, Readable};
pub use paravane_vbus_shm::south::Place;
pub use spaces::Spaces;
pub use table::Table;

/// Bounds of everything that an administrator or a client can make more of.
pub mod limits {
    /// Buses.
    pub const BUSES: usize = 64;
    /// Devices.
    pub const DEVICES: usize = 256;
    /// Interfaces of a bus.
    pub const INTERFACES: usize = 64;
    /// Clients of a bus.
    pub const MEMBERS: usize = 64;
    /// Connections of a client.
    pub const CONNECTIONS: usize = 16;
    /// Descriptors of a queue.
    pub const DESCRIPTORS: u32 = 4096;
    /// Events that wait for a client. After more than these it learns that it has lost some.
    pub const EVENTS: usize = 64;
    /// Users and groups that may join a bus.
    pub const ALLOWED: usize = 64;
    /// Characters of a name.
    pub const NAME: usize = 32;
    /// Priorities of a connection: 0 to one less.
    pub const PRIORITIES: usize = crate::turns::PRIORITIES;
    /// Microseconds that a device looks for work by itself, and that a machine's cards take for
    /// soon.
    pub const MICROSECONDS: u32 = 10_000;
    /// Bytes of an attribute's value.
    pub const VALUE: usize = 128;
    /// Bytes of the argument and of the result of a call.
    pub const CALL: usize = 1024;
    /// Bytes of a packet that a device copies.
    pub const PACKET: usize = 65_550;
    /// Descriptors of a packet.
    pub const PARTS: usize = 128;
    /// Bytes that a turn copies before it ends. Its last packet is copied whole.
    pub const TURN: usize = 1 << 20;
}
