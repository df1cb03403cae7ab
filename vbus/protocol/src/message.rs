// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages. Their order is part of the protocol: new ones come last. A side that does not know
//! one ends the connection, so only a client that needs one sends it.

use paravane_vbus::{Access, BusInfo, ConnectionId, DeviceInfo, Error, Event, Interface, Name};
use serde::{Deserialize, Serialize};

/// A queue that a client shares: its place in the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Number of the queue.
    pub queue: u32,
    /// First byte, a multiple of 64.
    pub offset: u64,
    /// Descriptors.
    pub count: u32,
}

/// A request. The administrator's come first; vbusd takes them from its own user and from root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Names of the device classes: [`Reply::Names`].
    Classes,
    /// Buses whose names come after this one: [`Reply::Buses`].
    Buses {
        /// None: from the first.
        after: Option<Name>,
    },
    /// Devices whose names come after this one: [`Reply::Devices`].
    Devices {
        /// None: from the first.
        after: Option<Name>,
    },
    /// Makes a bus.
    CreateBus {
        /// Its name.
        bus: Name,
    },
    /// Removes a bus.
    RemoveBus {
        /// Its name.
        bus: Name,
    },
    /// Sets who may join a bus.
    SetAccess {
        /// Its name.
        bus: Name,
        /// The users and groups that may join.
        access: Access,
    },
    /// Makes a device.
    CreateDevice {
        /// Its name.
        device: Name,
        /// Its class.
        class: String,
        /// Attributes to set.
        attributes: Vec<(String, String)>,
    },
    /// Removes a device.
    RemoveDevice {
        /// Its name.
        device: Name,
    },
    /// Links a device to a bus: [`Reply::Number`] is that of the interface.
    Link {
        /// The bus.
        bus: Name,
        /// The device.
        device: Name,
    },
    /// Unlinks a device from a bus.
    Unlink {
        /// The bus.
        bus: Name,
        /// The device.
        device: Name,
    },
    /// Sets an attribute of a device.
    SetAttribute {
        /// The device.
        device: Name,
        /// The attribute.
        attribute: String,
        /// Its value.
        value: String,
    },
    /// Closes all connections to a device: [`Reply::Number`] says how many.
    Reset {
        /// The device.
        device: Name,
    },
    /// (client) Joins a bus.
    Join {
        /// Its name.
        bus: Name,
    },
    /// (client) Interfaces of the bus: [`Reply::Interfaces`].
    Interfaces,
    /// (client) Opens a connection, with the client's memory: a memfd of a fixed size, sealed so
    /// that it can neither shrink nor grow. [`Reply::Opened`].
    Open {
        /// Number of the interface.
        interface: u32,
        /// Version that the client speaks.
        version: u32,
    },
    /// (client) Shares a queue.
    Share {
        /// The connection.
        connection: ConnectionId,
        /// The queue.
        shared: Shared,
    },
    /// (client) Calls the device: [`Reply::Bytes`].
    Call {
        /// The connection.
        connection: ConnectionId,
        /// Number of the call.
        call: u32,
        /// Its argument.
        argument: Vec<u8>,
    },
    /// (client) Closes a connection.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
    /// (client) Sets the priority of a connection.
    Prioritize {
        /// The connection.
        connection: ConnectionId,
        /// 0 to 3, at first 1.
        priority: u8,
    },
    /// (client) Lets other clients of the device that do the same read what this one sends, and
    /// reads theirs ([`Event::Lends`], with a file). With the memory for that: a memfd as for
    /// `Open`, and sealed against being written by others. Before a queue is shared.
    Lend {
        /// The connection.
        connection: ConnectionId,
        /// Where the words of the slots are in the memory of the connection.
        table: u64,
        /// Number of slots.
        slots: u32,
        /// Bytes of a slot.
        size: u32,
    },
}

/// An answer, or an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// It is not done.
    Error(Error),
    /// Names.
    Names(Vec<String>),
    /// Some buses in the order of their names; none: there are no more.
    Buses(Vec<BusInfo>),
    /// Some devices in the order of their names; none: there are no more.
    Devices(Vec<DeviceInfo>),
    /// A number.
    Number(u64),
    /// Interfaces.
    Interfaces(Vec<Interface>),
    /// A connection, with two files: an eventfd on which the client notifies the device, and a
    /// socket on which it is notified (any byte; its end means that the connection has ended).
    Opened(ConnectionId),
    /// The result of a call.
    Bytes(Vec<u8>),
    /// Not an answer: something happened.
    Event(Event),
}
