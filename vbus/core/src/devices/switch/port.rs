// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port of the switch, and what the switch counts.

use super::Mac;
use crate::device::ConnectionId;
use crate::devices::{Port, RX, TX};
use crate::endpoint::{Broken, Endpoint};
use crate::error::{Error, Kind};
use crate::ethernet::queues::{self, PAIRS};
use crate::ethernet::{Frame, TYPE, call};
use crate::limits;

/// A pair of queues of a port.
#[derive(Debug, Default)]
pub struct Pair {
    pub queues: Port,
    /// The frame that is delivered or waits.
    pub frame: Frame,
    /// The port, and the pair there, whose buffers the held frame waits for.
    pub waits_for: Option<(ConnectionId, usize)>,
}

impl Pair {
    /// The frame was delivered or dropped: its descriptors go back to the sender.
    pub fn forget_frame(&mut self) {
        if let Some(tx) = &mut self.queues.tx {
            tx.give_back(self.frame.parts.count(), self.frame.parts.len());
        }
        self.frame.clear();
    }
}

/// The port of a connection.
#[derive(Debug)]
pub struct SwitchPort {
    /// At least one.
    pub pairs: Vec<Pair>,
    /// The pair whose turn it is.
    pub next: usize,
    pub mac: Mac,
    /// The client has asked for its address, or received it.
    pub settled: bool,
    pub up: bool,
    /// What was agreed on.
    pub caps: u32,
}

#[derive(Debug, Default)]
pub struct Dropped {
    pub no_buffer: u64,
    pub unknown: u64,
    pub source: u64,
    pub malformed: u64,
}

/// What was copied from one client to another.
#[derive(Debug, Default)]
pub struct Copied {
    pub frames: u64,
    pub bytes: u64,
}

impl Copied {
    pub fn count(&mut self, len: usize) {
        self.frames += 1;
        self.bytes += len as u64;
    }
}

/// Counts of the frames that were finished for receivers that cannot finish them.
#[derive(Debug, Default)]
pub struct Finished {
    pub checksums: u64,
    pub segments: u64,
}

impl SwitchPort {
    pub fn new(mac: Mac) -> Self {
        SwitchPort {
            pairs: vec![Pair::default()],
            next: 0,
            mac,
            settled: false,
            up: false,
            caps: 0,
        }
    }

    /// The client shares a queue of a pair that was agreed on.
    pub fn share(&mut self, queue: u32, endpoint: Endpoint) -> Result<(), Error> {
        let pair = queues::pair(queue).and_then(|pair| self.pairs.get_mut(pair));
        let pair = pair.ok_or_else(|| {
            let text = format!("the port has no queue {queue}");
            Error::new(Kind::NotFound, text)
        })?;
        let queue = if queues::transmits(queue) { TX } else { RX };
        pair.queues.share(queue, endpoint)
    }

    /// Carries out a call of a client with whom the switch agrees on these capabilities.
    pub fn call(
        &mut self,
        has: u32,
        call: u32,
        argument: &[u8],
        result: &mut [u8],
    ) -> Result<usize, Error> {
        match call {
            call::LINKUP if self.up => Err(Error::new(Kind::Exists, "the link is up already")),
            call::LINKUP if !self.pairs.iter().all(|pair| pair.queues.is_complete()) => {
                let text = "the link cannot be up before all queues are shared";
                Err(Error::new(Kind::Invalid, text))
            }
            call::LINKUP => {
                (self.up, self.settled) = (true, true);
                Ok(0)
            }
            call::LINKDOWN => {
                self.up = false;
                // Frames that are held wait for the link now, not for receivers.
                for pair in &mut self.pairs {
                    pair.waits_for = None;
                }
                Ok(0)
            }
            call::MACQUERY => {
                self.settled = true;
                put(result, &self.mac)
            }
            call::NEGCAP if self.up => Err(Error::new(
                Kind::Busy,
                "capabilities are negotiated while the link is down",
            )),
            call::NEGCAP if argument.len() == 8 => {
                let word = |at: usize| argument.get(at..).and_then(<[u8]>::first_chunk);
                let [group, wanted] =
                    [0, 4].map(|at| u32::from_le_bytes(*word(at).unwrap_or(&[0; 4])));
                let agreed = self.agree(group, wanted & has);
                put(result, &[group, agreed].map(u32::to_le_bytes).concat())
            }
            call::PAIRS if self.pairs.iter().any(|pair| pair.queues.is_shared()) => {
                let text = "pairs are negotiated before the queues are shared";
                Err(Error::new(Kind::Busy, text))
            }
            call::PAIRS => {
                let wanted = argument.try_into().map(u32::from_le_bytes);
                let Some(wanted) = wanted.ok().filter(|&wanted| wanted > 0) else {
                    return Err(Error::new(Kind::Invalid, "a number of pairs is wanted"));
                };
                let pairs = wanted.min(PAIRS);
                let len = put(result, &pairs.to_le_bytes())?;
                self.pairs = (0..pairs).map(|_| Pair::default()).collect();
                self.next = 0;
                Ok(len)
            }
            call::FLUSHRX => {
                for pair in &mut self.pairs {
                    let Some(rx) = &mut pair.queues.rx else {
                        continue;
                    };
                    let flushed = rx.flush_buffers(limits::DESCRIPTORS);
                    let text = |error: Broken| Error::new(Kind::Broken, error.to_string());
                    flushed.map_err(text)?;
                }
                Ok(0)
            }
            _ => Err(Error::new(
                Kind::NotFound,
                format!("{TYPE} has no call {call} with {} bytes", argument.len()),
            )),
        }
    }

    /// Agrees on capabilities that both sides have.
    fn agree(&mut self, group: u32, both: u32) -> u32 {
        if group != 0 {
            return 0;
        }
        self.caps = both;
        // Those that wait began under others.
        self.pairs.iter_mut().for_each(Pair::forget_frame);
        self.caps
    }
}

fn put(result: &mut [u8], bytes: &[u8]) -> Result<usize, Error> {
    let Some(place) = result.get_mut(..bytes.len()) else {
        let text = format!("the result has {} bytes", bytes.len());
        return Err(Error::new(Kind::Invalid, text));
    };
    place.copy_from_slice(bytes);
    Ok(bytes.len())
}
