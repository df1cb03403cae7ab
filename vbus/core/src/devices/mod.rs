// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices of this crate, one module each, and what they share.

pub mod block;
mod echo;
mod null;
mod switch;

pub use echo::Echo;
pub use null::Null;
pub use switch::Switch;

use crate::device::{Attribute, Class, QueueKind};
use crate::endpoint::{Broken, Endpoint, Statistics};
use crate::error::{Error, Kind};
use crate::limits;
use paravane_vbus_shm::Role;

/// Queue on which a client receives.
pub const RX: u32 = 0;
/// Queue on which a client sends.
pub const TX: u32 = 1;

const BOTH: &[QueueKind] = &[
    QueueKind {
        number: RX,
        role: Role::Receive,
    },
    QueueKind {
        number: TX,
        role: Role::Transmit,
    },
];

/// All classes.
#[must_use]
pub fn classes() -> Vec<Box<dyn Class>> {
    vec![
        Box::new(echo::EchoClass),
        Box::new(null::NullClass),
        Box::new(switch::SwitchClass),
    ]
}

/// The two queues of a client, and the packet that the device is working on.
#[derive(Debug, Default)]
struct Port {
    rx: Option<Endpoint>,
    tx: Option<Endpoint>,
    /// A packet that was taken and not delivered yet, with its flags.
    held: Option<u32>,
    buffer: Vec<u8>,
}

impl Port {
    fn share(&mut self, queue: u32, endpoint: Endpoint) -> Result<(), Error> {
        let place = match queue {
            RX => &mut self.rx,
            TX => &mut self.tx,
            _ => {
                let text = format!("the device has no queue {queue}");
                return Err(Error::new(Kind::NotFound, text));
            }
        };
        if place.is_some() {
            let text = format!("queue {queue} is shared already");
            return Err(Error::new(Kind::Exists, text));
        }
        *place = Some(endpoint);
        Ok(())
    }

    fn is_shared(&self) -> bool {
        self.rx.is_some() || self.tx.is_some()
    }

    fn is_complete(&self) -> bool {
        self.rx.is_some() && self.tx.is_some()
    }

    /// Takes a packet into `buffer` unless one is held. False: there is none.
    fn take(&mut self, most: usize) -> Result<bool, Broken> {
        if self.held.is_some() {
            return Ok(true);
        }
        let Some(tx) = &mut self.tx else {
            return Ok(false);
        };
        self.held = tx.packet(&mut self.buffer, most)?;
        Ok(self.held.is_some())
    }

    /// The packet that is held has been delivered or dropped.
    fn done(&mut self) {
        if let (Some(tx), Some(_)) = (&mut self.tx, self.held.take()) {
            tx.complete(self.buffer.len());
        }
    }

    fn begin(&self) {
        for queue in [&self.rx, &self.tx].into_iter().flatten() {
            queue.begin();
        }
    }

    /// Signals what was done.
    fn signal(&mut self) {
        for queue in [&mut self.rx, &mut self.tx].into_iter().flatten() {
            queue.signal();
        }
    }

    /// Waits for a packet or, with one that is held, for a buffer. True: it has come already.
    fn rest(&self) -> bool {
        let awaited = if self.held.is_some() {
            &self.rx
        } else {
            &self.tx
        };
        let rests = |queue: &Endpoint| queue.rest() || queue.ready();
        awaited.as_ref().is_some_and(rests)
    }

    fn statistics(&self) -> [Statistics; 2] {
        [&self.rx, &self.tx].map(|queue| {
            let statistics = queue.as_ref().map(|queue| queue.statistics);
            statistics.unwrap_or_default()
        })
    }
}

/// The rest of a turn.
#[derive(Debug)]
struct Turn {
    packets: u32,
    bytes: usize,
}

impl Turn {
    fn new(budget: u32) -> Self {
        Turn {
            packets: budget,
            bytes: limits::TURN,
        }
    }

    /// Whether another packet may be begun.
    fn goes_on(&self) -> bool {
        self.packets > 0 && self.bytes > 0
    }

    /// A packet was looked at, whatever becomes of it.
    fn looked(&mut self) {
        self.packets = self.packets.saturating_sub(1);
    }

    /// `len` bytes were copied for a receiver that has not taken them.
    fn wasted(&mut self, len: usize) {
        self.bytes = self.bytes.saturating_sub(len);
    }

    /// A packet of this length was copied.
    fn copied(&mut self, len: usize) {
        self.packets = self.packets.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(len);
    }
}

/// The counts of ended connections.
#[derive(Debug, Default)]
struct Totals {
    rx: Statistics,
    tx: Statistics,
}

impl Totals {
    fn add(&mut self, port: &Port) {
        let [rx, tx] = port.statistics();
        for (all, one) in [(&mut self.rx, rx), (&mut self.tx, tx)] {
            all.packets += one.packets;
            all.bytes += one.bytes;
            all.notified += one.notified;
            all.quiet += one.quiet;
        }
    }

    /// The attributes of all connections, those of now, with these queues, included.
    fn attributes<'a>(
        &self,
        connections: usize,
        ports: impl Iterator<Item = &'a Port>,
    ) -> Vec<Attribute> {
        let mut all = Totals {
            rx: self.rx,
            tx: self.tx,
        };
        for port in ports {
            all.add(port);
        }
        let Totals { rx, tx } = all;
        [
            ("connections", connections as u64),
            ("rx-packets", rx.packets),
            ("rx-bytes", rx.bytes),
            ("rx-notified", rx.notified),
            ("rx-quiet", rx.quiet),
            ("tx-packets", tx.packets),
            ("tx-bytes", tx.bytes),
            ("tx-notified", tx.notified),
            ("tx-quiet", tx.quiet),
        ]
        .map(|(name, value)| Attribute::figure(name, value))
        .to_vec()
    }
}
