// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device classes and devices: what a device model implements.

use crate::endpoint::{Broken, Endpoint};
use crate::error::{Error, Kind};
use crate::events::Event;
use crate::name::Name;
use crate::table::Table;
use paravane_vbus_shm::Role;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A connection of a client to a device. Numbers are not used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnectionId(pub u64);

/// A type of device that can be made.
pub trait Class: Send {
    /// Its name, for administrators.
    fn name(&self) -> &'static str;

    /// Makes a device.
    fn create(&self, name: &Name) -> Box<dyn Device>;
}

/// A property of a device that an administrator sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its value now.
    pub value: String,
    /// Whether it can be set, and is part of the configuration.
    pub writable: bool,
}

impl Attribute {
    /// A setting.
    #[must_use]
    pub fn setting(name: &str, value: String) -> Self {
        Attribute {
            name: name.to_string(),
            value,
            writable: true,
        }
    }

    /// A statistic.
    #[must_use]
    pub fn figure(name: &str, value: u64) -> Self {
        Attribute {
            name: name.to_string(),
            value: value.to_string(),
            writable: false,
        }
    }
}

/// A queue that a client may share with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueKind {
    /// Its number.
    pub number: u32,
    /// What the client does with it.
    pub role: Role,
}

/// What a round of work leads to, besides its own connection.
#[derive(Debug, Default)]
pub struct Round {
    /// Connections whose clients broke the protocol. They are reset.
    pub broken: Vec<(ConnectionId, Broken)>,
    /// Connections that have work now, too.
    pub also: Vec<ConnectionId>,
    /// Connections that the device cannot serve any more, and why. They are closed.
    pub ended: Vec<(ConnectionId, String)>,
    /// Events for clients of connections.
    pub events: Vec<(ConnectionId, Event)>,
}

/// What a round of work was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Work {
    /// There was nothing to do.
    Nothing,
    /// All there was is done.
    Done,
    /// The budget is used up, and there is more.
    More,
}

impl Work {
    /// By whether a round did something, and whether it left something.
    pub fn of(done: bool, more: bool) -> Self {
        match (done, more) {
            (_, true) => Work::More,
            (true, false) => Work::Done,
            (false, false) => Work::Nothing,
        }
    }
}

/// A device. Everything is called on one thread at a time.
///
/// A device bounds what it does in a call: it handles at most `budget` packets. Where its clients
/// do not trust each other, it begins none after it has copied [`TURN`](crate::limits::TURN) bytes.
pub trait Device: Send {
    /// What a driver must speak, such as `virtual-ethernet`.
    fn interface(&self) -> &'static str;

    /// Version of that.
    fn version(&self) -> u32 {
        1
    }

    /// Its attributes.
    fn attributes(&self) -> Vec<Attribute>;

    /// Sets an attribute.
    ///
    /// # Errors
    /// There is none that can be set, or the value is not possible.
    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let _ = value;
        Err(no_attribute(name))
    }

    /// How long it looks for work by itself (`poll-us`): for a device that does so on a thread of
    /// its own.
    fn set_poll(&mut self, time: Duration) {
        let _ = time;
    }

    /// The queues that a client shares.
    fn queues(&self) -> &'static [QueueKind];

    /// A client has connected.
    ///
    /// # Errors
    /// The device takes no further connection.
    fn connect(&mut self, id: ConnectionId) -> Result<(), Error>;

    /// A connection has ended, for whatever reason. The device drops its queues.
    fn disconnect(&mut self, id: ConnectionId);

    /// A client calls the device: a slow path for set-up. Writes the result, and returns its bytes.
    ///
    /// # Errors
    /// The device has no such call, or refuses it.
    fn call(
        &mut self,
        id: ConnectionId,
        call: u32,
        argument: &[u8],
        result: &mut [u8],
    ) -> Result<usize, Error> {
        let _ = (id, argument, result);
        Err(Error::new(
            Kind::NotFound,
            format!("the device has no call {call}"),
        ))
    }

    /// A client shares a queue: one of [`Device::queues`], which it has not shared yet.
    ///
    /// # Errors
    /// The device refuses it.
    fn share(&mut self, id: ConnectionId, queue: u32, endpoint: Endpoint) -> Result<(), Error>;

    /// A client agrees that others read the frames that it sends, from memory that its queues can
    /// name besides its own, and reads theirs. It has shared no queue yet.
    ///
    /// # Errors
    /// The device's clients do not lend, or no more of them may.
    fn lend(&mut self, id: ConnectionId, table: Table) -> Result<(), Error> {
        let _ = (id, table);
        let text = "clients of this device do not share memory";
        Err(Error::new(Kind::NotFound, text))
    }

    /// Whether a connection that has ended has left loans: its client may still read them.
    fn left_loans(&self, id: ConnectionId) -> bool {
        let _ = id;
        false
    }

    /// The client of such a connection reads no more.
    fn released(&mut self, id: ConnectionId) {
        let _ = id;
    }

    /// Works for a connection. Needs no notification of its client from now on until
    /// [`Device::rest`].
    fn work(&mut self, id: ConnectionId, budget: u32, round: &mut Round) -> Work;

    /// Whether it may help to look for work again at once, though there was none: the device's
    /// attribute `poll-us` says for how long.
    #[must_use]
    fn polls(&mut self, id: ConnectionId) -> bool {
        let _ = id;
        true
    }

    /// Whether its polls become rare where they are in vain, as its connector sees it
    /// ([`Polling`](crate::polls::Polling)). A device that decides by itself, or that never polls,
    /// says no.
    fn adapts(&self) -> bool {
        true
    }

    /// Whether its last work was a part of a stream, which is better done by a thread of the
    /// device's own than by the one that notifies.
    #[must_use]
    fn streams(&self) -> bool {
        false
    }

    /// The device waits for a notification of the client. True: there is work for which none will
    /// come.
    #[must_use]
    fn rest(&mut self, id: ConnectionId) -> bool;

    /// Something happened outside of the bus of which the device had requested a notification. Its
    /// connections work then.
    fn woken(&mut self) {}
}

/// The error of a device without this attribute.
#[must_use]
pub fn no_attribute(name: &str) -> Error {
    Error::new(
        Kind::NotFound,
        format!("the device has no attribute {name:.40} that can be set"),
    )
}

/// Reads a setting of two positions.
///
/// # Errors
/// The value is neither 0 nor 1.
pub fn flag(name: &str, value: &str) -> Result<bool, Error> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => {
            let text = format!("{value:.40?} is no value of {name}: 0 or 1 are");
            Err(Error::new(Kind::Invalid, text))
        }
    }
}
