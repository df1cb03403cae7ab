// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of a guest: how they lie in its memory. A command is read once, and used from the copy.

use crate::card::word;
use crate::memory::Guest;
use paravane_vbus::{Error, Event, Kind, MemoryContext, Outside};
use paravane_vbus_shm::layout::{self, Command as Layout};
use std::mem::offset_of;

/// Bytes of a command.
const SIZE: usize = size_of::<Layout>();
const _: () = assert!(SIZE as u64 == paravane_abi::BUS_COMMAND_ALIGN);

/// What a guest can ask for.
pub const OPEN: u32 = word(layout::VBUS_COMMAND_OPEN);
pub const CLOSE: u32 = word(layout::VBUS_COMMAND_CLOSE);
pub const SHARE: u32 = word(layout::VBUS_COMMAND_SHARE);
pub const CALL: u32 = word(layout::VBUS_COMMAND_CALL);
pub const START: u32 = word(layout::VBUS_COMMAND_START);
pub const INTERFACE: u32 = word(layout::VBUS_COMMAND_INTERFACE);
pub const EVENT: u32 = word(layout::VBUS_COMMAND_EVENT);
pub const INTERRUPT: u32 = word(layout::VBUS_COMMAND_INTERRUPT);

/// A copy of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Command {
    pub command: u32,
    pub status: u32,
    pub interface: u32,
    pub connection: u32,
    pub queue: u32,
    pub number: u32,
    pub data: u64,
    pub length: u32,
    pub apic: u32,
}

impl Command {
    /// Copies a command out of the guest's memory. `None`: there is none at that address.
    pub fn read(guest: &Guest, address: u64) -> Option<Self> {
        if !address.is_multiple_of(SIZE as u64) {
            return None;
        }
        let mut bytes = [0; SIZE];
        guest.read(address, &mut bytes).ok()?;
        let word = |offset: usize| {
            let part = bytes.get(offset..offset + 4)?;
            Some(u32::from_le_bytes(part.try_into().ok()?))
        };
        let low = word(offset_of!(Layout, data))?;
        let high = word(offset_of!(Layout, data) + 4)?;
        Some(Command {
            command: word(offset_of!(Layout, command))?,
            status: 0,
            interface: word(offset_of!(Layout, interface))?,
            connection: word(offset_of!(Layout, connection))?,
            queue: word(offset_of!(Layout, queue))?,
            number: word(offset_of!(Layout, number))?,
            data: u64::from(high) << 32 | u64::from(low),
            length: word(offset_of!(Layout, length))?,
            apic: word(offset_of!(Layout, apic))?,
        })
    }

    /// Writes what is the device's: all but the command and the address.
    ///
    /// # Errors
    /// The address is not in the guest's memory.
    pub fn write(&self, guest: &Guest, address: u64) -> Result<(), Outside> {
        for (offset, value) in [
            (offset_of!(Layout, interface), self.interface),
            (offset_of!(Layout, connection), self.connection),
            (offset_of!(Layout, number), self.number),
            (offset_of!(Layout, length), self.length),
            (offset_of!(Layout, status), self.status),
        ] {
            guest.write(address + offset as u64, &value.to_le_bytes())?;
        }
        Ok(())
    }
}

/// The error of a command whose data is not in the guest's memory.
pub fn outside(why: Outside) -> Error {
    Error::new(Kind::Invalid, why.to_string())
}

/// The status for an error.
pub fn status(kind: Kind) -> u32 {
    word(match kind {
        Kind::NotFound => layout::VBUS_ERROR_NOT_FOUND,
        Kind::Exists => layout::VBUS_ERROR_EXISTS,
        Kind::Busy => layout::VBUS_ERROR_BUSY,
        Kind::Denied => layout::VBUS_ERROR_DENIED,
        Kind::Invalid => layout::VBUS_ERROR_INVALID,
        Kind::Limit => layout::VBUS_ERROR_LIMIT,
        Kind::Broken => layout::VBUS_ERROR_BROKEN,
        Kind::Host => layout::VBUS_ERROR_HOST,
    })
}

/// The number of an event. For a connection's event it is the guest's number of the connection.
pub fn event(event: &Event) -> (u32, u32) {
    match event {
        Event::Added { id, .. } => (word(layout::VBUS_EVENT_ADDED), *id),
        Event::Dropped { id } => (word(layout::VBUS_EVENT_DROPPED), *id),
        Event::Closed { .. } => (word(layout::VBUS_EVENT_CLOSED), 0),
        // A guest's memory is never lent.
        Event::Removed | Event::Lost | Event::Lends { .. } | Event::Withdrawn { .. } => {
            (word(layout::VBUS_EVENT_LOST), 0)
        }
    }
}
