// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event queue of an Ethernet device: whether frames reach its network.
//!
//! Events are rare, so the device always notifies of them, and a client that works sees them
//! without a host call.

use crate::control::Error;
use crate::queues::{Queues, Shape};
use paravane_vbus::Parts;
use paravane_vbus::ethernet::queues::EVENTS;
use paravane_vbus_protocol::Shared;
use paravane_vbus_shm::layout::{self, EthernetEvent};
use paravane_vbus_shm::word;
use std::mem::offset_of;

/// Events that the device can have sent. Only the last one counts.
const COUNT: u32 = 4;
const BYTES: usize = size_of::<EthernetEvent>();
/// The transmit ring is not used.
#[allow(clippy::cast_possible_truncation)] // 16 bytes.
pub const SHAPE: Shape = Shape {
    counts: [COUNT, 1],
    buffer: BYTES as u32,
};
/// The group of capabilities, and the only event.
pub const GROUP: u32 = word(layout::VBUS_ETHERNET_GROUP_EVENTS);
pub const LINK: u32 = word(layout::VBUS_ETHERNET_EVENT_LINK);

/// The queue.
#[derive(Debug)]
pub struct Events {
    queues: Queues,
    /// The device has agreed to send events.
    agreed: bool,
    up: bool,
}

impl Events {
    /// With this queue, whose buffers are posted.
    pub fn new(queues: Queues) -> Self {
        Events {
            queues,
            agreed: false,
            up: true,
        }
    }

    /// Its queue.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Before a device attaches that has agreed or not. The link of one that says nothing is up.
    pub fn agree(&mut self, agreed: bool) {
        self.agreed = agreed;
        self.up |= !agreed;
    }

    /// The queue that the device gets.
    pub fn shared(&self) -> Option<Shared> {
        let [offset, _] = self.queues.offsets;
        self.agreed.then_some(Shared {
            queue: EVENTS,
            offset,
            count: COUNT,
        })
    }

    /// The device has attached and passes nothing on yet. Events of an earlier one are forgotten:
    /// the new one reports its own state when the link is up.
    pub fn attached(&mut self) -> Result<(), Error> {
        if self.agreed {
            let mut none = Parts::default();
            self.queues.attached(&mut none)?;
            self.queues.forget_all(&mut none)?;
            // `ready` sees an event that comes at once.
            let _ = self.queues.rx.rest();
        }
        Ok(())
    }

    /// Whether an event came.
    pub fn ready(&self) -> bool {
        self.agreed && self.queues.rx.ready()
    }

    /// Asks for notifications before a sleep. False: an event came before.
    ///
    /// The device stores an event, and notifies the client a little later. A client that has taken
    /// the event in between gets the notification after that. Unless this function forgets that,
    /// the device assumes that the client knows, and does not notify it of the next event.
    pub fn rest(&self) -> bool {
        if !self.agreed {
            return true;
        }
        self.queues.rx.watch();
        self.queues.rx.rest()
    }

    /// Takes events. Returns whether the link is up, and whether the device must be notified of
    /// buffers.
    pub fn take(&mut self) -> Result<(bool, bool), Error> {
        if !self.ready() {
            return Ok((self.up, false));
        }
        // A device that always has more has its turn again later.
        for _ in 0..COUNT {
            let mut event = [0; BYTES];
            let Some(length) = self.queues.receive(&mut event)? else {
                break;
            };
            let field = |at: usize| {
                let bytes = event.get(at..).and_then(<[u8]>::first_chunk);
                bytes.map(|bytes| u32::from_le_bytes(*bytes))
            };
            let kind = field(offset_of!(EthernetEvent, event));
            if length == BYTES && kind == Some(LINK) {
                self.up = field(offset_of!(EthernetEvent, value)) != Some(0);
            }
        }
        let inject = self.queues.rx.inject();
        self.queues.rx.watch();
        let _ = self.queues.rx.rest();
        Ok((self.up, inject))
    }
}
