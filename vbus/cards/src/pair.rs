// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pair of queues of a card.

use crate::card::word;
use paravane_vbus::{Broken, Endpoint, Sent, limits};
use paravane_vbus_shm::layout;
use std::time::{Duration, Instant};

/// A pair that has had no buffers for so long is stalled. A guest whose vCPU waits for a processor
/// is not that slow, as a rule.
pub const STALL: Duration = Duration::from_millis(10);

const MORE: u32 = word(layout::VBUS_ETHERNET_MORE);

/// The pair.
#[derive(Debug, Default)]
pub struct Pair {
    pub rx: Option<Endpoint>,
    pub tx: Option<Endpoint>,
    /// A frame was taken and not passed on: its flags.
    held: Option<u32>,
    frame: Vec<u8>,
    /// The guest had no buffer for a frame in this round.
    starved: bool,
    /// Since when the guest has had no buffer.
    dry: Option<Instant>,
}

impl Pair {
    pub fn is_shared(&self) -> bool {
        self.rx.is_some() || self.tx.is_some()
    }

    pub fn is_complete(&self) -> bool {
        self.rx.is_some() && self.tx.is_some()
    }

    pub fn queues(&mut self) -> impl Iterator<Item = &mut Endpoint> {
        self.rx.iter_mut().chain(&mut self.tx)
    }

    pub fn begin(&mut self) {
        self.starved = false;
    }

    /// The frame that was taken waits.
    pub fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// Its flags.
    pub fn flags(&self) -> u32 {
        self.held.unwrap_or(0)
    }

    /// Takes the next frame of the guest, or the one that it holds.
    pub fn take(&mut self, chained: bool) -> Result<Option<Vec<u8>>, Broken> {
        let Some(tx) = &mut self.tx else {
            return Ok(None);
        };
        if self.held.is_none() {
            self.held = if chained {
                tx.gather(&mut self.frame, limits::PACKET, MORE)?
            } else {
                tx.packet(&mut self.frame, limits::PACKET)?
            };
        }
        Ok(self.held.map(|_| std::mem::take(&mut self.frame)))
    }

    /// The frame that was taken waits.
    pub fn keep(&mut self, frame: Vec<u8>) {
        self.frame = frame;
    }

    /// The frame that was taken has gone.
    pub fn passed(&mut self, frame: Vec<u8>) {
        if let (Some(tx), Some(_)) = (&mut self.tx, self.held.take()) {
            tx.complete(frame.len());
        }
        self.frame = frame;
    }

    /// Gives the guest a frame.
    pub fn give(&mut self, frame: &[u8], flags: u32, chained: bool) -> Result<Sent, Broken> {
        let Some(rx) = &mut self.rx else {
            return Ok(Sent::TooLong);
        };
        let sent = if chained {
            rx.scatter(frame, flags, MORE)?
        } else {
            rx.send(frame, flags)?
        };
        if sent == Sent::NoBuffer {
            self.starved = true;
            self.dry.get_or_insert_with(Instant::now);
        } else {
            self.dry = None;
        }
        Ok(sent)
    }

    /// The guest has posted no buffers for so long that it may post none at all.
    pub fn is_stalled(&self) -> bool {
        self.dry.is_some_and(|since| since.elapsed() >= STALL)
    }

    /// Waits for frames of the guest, unless `full`; and for buffers, if there were none. True:
    /// they have come already.
    pub fn rest(&self, full: bool) -> bool {
        let rests = |queue: &Endpoint| queue.rest() || queue.ready();
        let tx = self.tx.as_ref().filter(|_| !full).is_some_and(rests);
        let rx = self.rx.as_ref().filter(|_| self.starved).is_some_and(rests);
        tx || rx
    }
}
