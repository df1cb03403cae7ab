// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pair of queues of a card.

use paravane_vbus::ethernet::{Frame, Unfinished, more};
use paravane_vbus::{Broken, Content, Culprit, Endpoint, MemoryContext, Sent, limits};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A pair that has had no buffers for this time is stalled. A guest whose vCPU waits for a
/// processor is not that slow, as a rule.
pub const STALL: Duration = Duration::from_millis(10);

/// A frame that was taken and lies in the guest's memory.
pub struct Lying {
    /// Its headers, which were copied and checked, and where the rest is.
    pub frame: Frame,
    /// The memory with the rest.
    pub memory: Arc<dyn MemoryContext>,
}

impl fmt::Debug for Lying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lying").finish_non_exhaustive()
    }
}

/// The pair.
#[derive(Debug, Default)]
pub struct Pair {
    pub rx: Option<Endpoint>,
    pub tx: Option<Endpoint>,
    /// A frame was taken and not passed on: its flags.
    held: Option<u32>,
    frame: Vec<u8>,
    /// The frame in the guest's memory, for cards that take it there.
    lying: Frame,
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
        self.held.is_some() || self.lying.form().is_some()
    }

    /// Its flags.
    pub fn flags(&self) -> u32 {
        self.held.unwrap_or(0)
    }

    /// Takes the next frame of the guest, or the one that it holds.
    pub fn take(&mut self, caps: u32) -> Result<Option<Vec<u8>>, Broken> {
        let Some(tx) = &mut self.tx else {
            return Ok(None);
        };
        if self.held.is_none() {
            self.held = match more(caps) {
                0 => tx.packet(&mut self.frame, limits::PACKET)?,
                more => tx.gather(&mut self.frame, limits::PACKET, more)?,
            };
        }
        Ok(self.held.map(|_| std::mem::take(&mut self.frame)))
    }

    /// Takes the next frame, or the one that it holds, and leaves it in the guest's memory.
    pub fn take_lying(&mut self, caps: u32) -> Result<Option<Lying>, Broken> {
        let Some(tx) = &mut self.tx else {
            return Ok(None);
        };
        let memory = tx.memory();
        if self.lying.form().is_none() {
            if !tx.collect(&mut self.lying.parts, limits::PACKET, more(caps))? {
                return Ok(None);
            }
            let read = self.lying.read(&*memory, Unfinished::sent(caps));
            read.map_err(Broken::Memory)?;
        }
        let frame = std::mem::take(&mut self.lying);
        Ok(Some(Lying { frame, memory }))
    }

    /// The frame of [`Pair::take_lying`] waits.
    pub fn keep_lying(&mut self, lying: Lying) {
        self.lying = lying.frame;
    }

    /// The frame of [`Pair::take_lying`] has gone.
    pub fn passed_lying(&mut self, mut lying: Lying) {
        let parts = &lying.frame.parts;
        if let Some(tx) = &mut self.tx {
            tx.give_back(parts.count(), parts.len());
        }
        lying.frame.clear();
        self.lying = lying.frame;
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
    pub fn give(&mut self, frame: &Content<'_>, flags: u32, caps: u32) -> Result<Sent, Culprit> {
        let Some(rx) = &mut self.rx else {
            return Ok(Sent::TooLong);
        };
        let sent = rx.put(frame, flags, more(caps))?;
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
