// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all cards of a guest share: the calls of virtual-ethernet, and frames to and from the
//! guest's queues.

use paravane_vbus::{
    Broken, ConnectionId, Endpoint, Error, Kind, QueueKind, Sent, devices, limits,
};
use paravane_vbus_shm::Role;
use paravane_vbus_shm::layout;

/// The interface's type.
pub const TYPE: &str = "virtual-ethernet";

/// The queues of every card.
pub const QUEUES: &[QueueKind] = &[
    QueueKind {
        number: devices::RX,
        role: Role::Receive,
    },
    QueueKind {
        number: devices::TX,
        role: Role::Transmit,
    },
];

/// A number of the table as one of 32 bits.
pub const fn word(value: u64) -> u32 {
    assert!(value <= 0xffff_ffff);
    #[allow(clippy::cast_possible_truncation)] // just asserted
    {
        value as u32
    }
}

/// Capabilities, and flags of descriptors.
pub mod cap {
    use super::{layout, word};

    pub const CHAIN: u32 = word(layout::VBUS_ETHERNET_CAP_CHAIN);
    pub const CSUM: u32 = word(layout::VBUS_ETHERNET_CAP_CSUM);
    pub const TSO4: u32 = word(layout::VBUS_ETHERNET_CAP_TSO4);
}

const MORE: u32 = word(layout::VBUS_ETHERNET_MORE);

mod call {
    use super::{layout, word};

    pub const LINKUP: u32 = word(layout::VBUS_ETHERNET_LINKUP);
    pub const LINKDOWN: u32 = word(layout::VBUS_ETHERNET_LINKDOWN);
    pub const MACQUERY: u32 = word(layout::VBUS_ETHERNET_MACQUERY);
    pub const NEGCAP: u32 = word(layout::VBUS_ETHERNET_NEGCAP);
    pub const FLUSHRX: u32 = word(layout::VBUS_ETHERNET_FLUSHRX);
    pub const MTUQUERY: u32 = word(layout::VBUS_ETHERNET_MTUQUERY);
}

/// The properties of a card.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    pub mac: [u8; 6],
    pub mtu: u16,
    pub mtu_max: u16,
    /// Capabilities that the card has.
    pub caps: u32,
}

/// What a call has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// The link is up now.
    Up,
    /// The link is down now.
    Down,
    /// So many bytes of the result were written, and nothing has changed.
    Result(usize),
}

/// The guest's end of a card: at most one connection.
#[derive(Debug, Default)]
pub struct Port {
    id: Option<ConnectionId>,
    rx: Option<Endpoint>,
    tx: Option<Endpoint>,
    up: bool,
    /// Capabilities that both sides have.
    pub caps: u32,
    /// A frame was taken and not passed on: its flags.
    held: Option<u32>,
    frame: Vec<u8>,
    /// The guest had no buffer for a frame.
    pub starved: bool,
}

impl Port {
    pub fn connect(&mut self, id: ConnectionId) -> Result<(), Error> {
        if self.id.is_some() {
            return Err(Error::new(Kind::Busy, "the card has a connection already"));
        }
        *self = Port {
            id: Some(id),
            frame: std::mem::take(&mut self.frame),
            ..Port::default()
        };
        Ok(())
    }

    /// Whether the connection was the card's.
    pub fn disconnect(&mut self, id: ConnectionId) -> bool {
        let mine = self.id == Some(id);
        if mine {
            *self = Port::default();
        }
        mine
    }

    /// There is a driver.
    pub fn is_connected(&self) -> bool {
        self.id.is_some()
    }

    /// The link is up: frames pass.
    pub fn is_up(&self) -> bool {
        self.up
    }

    pub fn share(&mut self, queue: u32, endpoint: Endpoint) -> Result<(), Error> {
        let place = match queue {
            devices::RX => &mut self.rx,
            devices::TX => &mut self.tx,
            _ => return Err(Error::new(Kind::NotFound, "the card has no such queue")),
        };
        if place.is_some() {
            return Err(Error::new(Kind::Exists, "the queue is shared already"));
        }
        *place = Some(endpoint);
        Ok(())
    }

    pub fn call(
        &mut self,
        properties: &Properties,
        call: u32,
        argument: &[u8],
        result: &mut [u8],
    ) -> Result<Called, Error> {
        let mut put = |bytes: &[u8]| match result.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Ok(Called::Result(bytes.len()))
            }
            None => Err(Error::new(Kind::Invalid, "there is no room for the result")),
        };
        match call {
            call::LINKUP if self.up => Err(Error::new(Kind::Exists, "the link is up already")),
            call::LINKUP if self.rx.is_none() || self.tx.is_none() => Err(Error::new(
                Kind::Invalid,
                "the link cannot be up before both queues are shared",
            )),
            call::LINKUP => {
                self.up = true;
                Ok(Called::Up)
            }
            call::LINKDOWN => {
                self.up = false;
                Ok(Called::Down)
            }
            call::MACQUERY => put(&properties.mac),
            call::MTUQUERY => {
                let [a, b] = properties.mtu.to_le_bytes();
                let [c, d] = properties.mtu_max.to_le_bytes();
                put(&[a, b, c, d])
            }
            // A frame in parts that began under other capabilities makes no sense.
            call::NEGCAP if self.up || self.tx.is_some() => Err(Error::new(
                Kind::Busy,
                "capabilities are negotiated before the queues are shared",
            )),
            call::NEGCAP => {
                let &[g0, g1, g2, g3, b0, b1, b2, b3] = argument else {
                    return Err(Error::new(Kind::Invalid, "a group and its bits are wanted"));
                };
                let bits = match [g0, g1, g2, g3] {
                    [0, 0, 0, 0] => u32::from_le_bytes([b0, b1, b2, b3]) & properties.caps,
                    _ => 0,
                };
                if [g0, g1, g2, g3] == [0; 4] {
                    self.caps = bits;
                }
                let [b0, b1, b2, b3] = bits.to_le_bytes();
                put(&[g0, g1, g2, g3, b0, b1, b2, b3])
            }
            call::FLUSHRX => {
                if let Some(rx) = &mut self.rx {
                    let flushed = rx.flush_buffers(limits::DESCRIPTORS);
                    flushed.map_err(|why| Error::new(Kind::Broken, why.to_string()))?;
                }
                Ok(Called::Result(0))
            }
            _ => {
                let text = format!("{TYPE} has no call {call}");
                Err(Error::new(Kind::NotFound, text))
            }
        }
    }

    /// The card looks at its queues by itself from now on.
    pub fn begin(&mut self) {
        self.starved = false;
        for queue in [&self.rx, &self.tx].into_iter().flatten() {
            queue.begin();
        }
    }

    /// Takes the next frame of the guest out of the card, until it is [passed](Port::passed) on or
    /// [kept](Port::keep).
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let Some(tx) = self.tx.as_mut().filter(|_| self.up) else {
            return Ok(None);
        };
        if self.held.is_none() {
            self.held = if self.caps & cap::CHAIN == 0 {
                tx.packet(&mut self.frame, limits::PACKET)?
            } else {
                tx.gather(&mut self.frame, limits::PACKET, MORE)?
            };
        }
        Ok(self.held.map(|_| std::mem::take(&mut self.frame)))
    }

    /// The flags of the frame that was taken.
    pub fn flags(&self) -> u32 {
        self.held.unwrap_or(0)
    }

    /// The frame of [`Port::take`] waits for another time.
    pub fn keep(&mut self, frame: Vec<u8>) {
        self.frame = frame;
    }

    /// The frame of [`Port::take`] was passed on.
    pub fn passed(&mut self, frame: Vec<u8>) {
        if let (Some(tx), Some(_)) = (&mut self.tx, self.held.take()) {
            tx.complete(frame.len());
        }
        self.frame = frame;
    }

    /// Gives the guest a frame. False: it has no buffers now.
    pub fn give(&mut self, frame: &[u8], flags: u32) -> Result<bool, Broken> {
        let Some(rx) = self.rx.as_mut().filter(|_| self.up) else {
            // Lost, as on a cable that is not plugged in.
            return Ok(true);
        };
        let sent = if self.caps & cap::CHAIN == 0 {
            rx.send(frame, flags)?
        } else {
            rx.scatter(frame, flags, MORE)?
        };
        // A frame for which no buffer is large enough is lost.
        self.starved |= sent == Sent::NoBuffer;
        Ok(sent != Sent::NoBuffer)
    }

    /// Tells the guest of what was passed on: one interrupt, after which it looks at both queues.
    pub fn signal(&mut self) {
        let mut due = None;
        for queue in [&mut self.rx, &mut self.tx].into_iter().flatten() {
            if queue.inject() {
                due = Some(&*queue);
            }
        }
        if let Some(queue) = due {
            queue.notify();
        }
    }

    /// Waits for frames of the guest, unless `full`; and for buffers, if it had none. True: they
    /// have come already.
    pub fn rest(&mut self, full: bool) -> bool {
        if !self.up {
            return false;
        }
        let rests = |queue: &Endpoint| queue.rest() || queue.ready();
        let tx = self.tx.as_ref().filter(|_| !full).is_some_and(rests);
        let rx = self.rx.as_ref().filter(|_| self.starved).is_some_and(rests);
        tx || rx
    }
}
