// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! ioq: a ring of descriptors without locks (Haskins, "virtual-bus", 2009). Its words, its rules,
//! and their breaches.
//!
//! `valid` is the range of descriptors that have a buffer, and `inuse` that of those with a packet.
//! The four indices count modulo 2^32, so a full ring needs no flag: its tail is its head plus the
//! count. Each index has one writer. A push or pop moves the index first and then hands the
//! descriptor over (`owner`). The other side waits for `owner`.
//!
//! * transmit: the north pushes both; the south pops inuse; the north then pops valid and has its
//!   buffer back. The tails are equal.
//! * receive: the north pushes valid; the south fills the buffer and pushes inuse; the north pops
//!   both. The heads are equal.
//!
//! A packet has been delivered when inuse is popped, and a buffer is free when valid is popped.

use crate::atomic::{AtomicU32, Ordering};
use crate::fault::{self, Fault};
use crate::layout::{self, Descriptor};
use core::fmt;

/// Value of `owner`: the north.
pub const NORTH: u32 = 0;
/// Value of `owner`: the south.
pub const SOUTH: u32 = 1;
const _: () = assert!(layout::VBUS_NORTH == 0 && layout::VBUS_SOUTH == 1);

/// What the north does with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends packets.
    Transmit,
    /// It receives packets.
    Receive,
}

/// The peer broke a rule. The connection must be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// A descriptor belongs to neither side.
    Owner {
        /// Index of the descriptor.
        slot: u32,
        /// What it says.
        value: u32,
    },
    /// A descriptor was handed over that the peer's index does not cover.
    Index {
        /// Index of the descriptor.
        slot: u32,
        /// The peer's index, modulo 2^32.
        value: u32,
    },
    /// A received packet is longer than its buffer.
    Length {
        /// Index of the descriptor.
        slot: u32,
        /// Bytes of the packet.
        used: u32,
        /// Bytes of the buffer.
        posted: u32,
    },
    /// The head of the ring is not what both sides agreed on.
    Head {
        /// The wrong field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Breach::Owner { slot, value } => {
                write!(f, "descriptor {slot} belongs to side {value}, not 0 or 1")
            }
            Breach::Index { slot, value } => {
                write!(
                    f,
                    "descriptor {slot} was handed over, but the index is {value}"
                )
            }
            Breach::Length { slot, used, posted } => {
                write!(
                    f,
                    "descriptor {slot} has {used} bytes in a buffer of {posted}"
                )
            }
            Breach::Head { field, value } => write!(f, "{field} of the ring is {value}"),
        }
    }
}

impl core::error::Error for Breach {}

/// The shared words of a ring. `memory` makes it of mapped memory.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    /// The oldest buffer.
    pub valid_head: &'a AtomicU32,
    /// After the newest buffer.
    pub valid_tail: &'a AtomicU32,
    /// The oldest packet.
    pub inuse_head: &'a AtomicU32,
    /// After the newest packet.
    pub inuse_tail: &'a AtomicU32,
    /// The descriptors. Their number is a power of two, at most `VBUS_COUNT_MAX`.
    pub descriptors: &'a [Descriptor],
}

impl<'a> Ring<'a> {
    /// Number of descriptors.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most VBUS_COUNT_MAX")]
    pub fn count(&self) -> u32 {
        self.descriptors.len() as u32
    }

    /// Whether a ring may have `count` descriptors.
    #[must_use]
    pub fn allowed(count: u32) -> bool {
        count.is_power_of_two() && u64::from(count) <= layout::VBUS_COUNT_MAX
    }

    /// The descriptor of an index, and its number.
    pub(crate) fn at(&self, index: u32) -> (u32, &'a Descriptor) {
        let slot = index & (self.count() - 1);
        (slot, &self.descriptors[slot as usize])
    }

    /// Whether `me` owns the descriptor of an index.
    pub(crate) fn mine(&self, index: u32, me: u32) -> Result<bool, Breach> {
        let (slot, descriptor) = self.at(index);
        match descriptor.owner.load(Ordering::Acquire) {
            owner @ (NORTH | SOUTH) => Ok(owner == me),
            value => Err(Breach::Owner { slot, value }),
        }
    }

    /// Hands the descriptor of an index over, with everything that was stored before.
    pub(crate) fn hand(&self, index: u32, to: u32) {
        self.at(index).1.owner.store(to, Ordering::Release);
    }
}

/// An index that the peer writes, with the last value that was read and checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theirs {
    seen: u32,
}

impl Theirs {
    pub(crate) fn new(value: u32) -> Self {
        Theirs { seen: value }
    }

    /// Checks that the peer's index is after `index`, and at most at `limit`. The peer moves its
    /// index before it hands the descriptor of `index` over, which the caller has seen.
    pub(crate) fn covers(
        &mut self,
        word: &AtomicU32,
        index: u32,
        limit: u32,
        slot: u32,
    ) -> Result<(), Breach> {
        if self.seen != index || fault::is(Fault::IndexUnchecked) {
            return Ok(());
        }
        let value = word.load(Ordering::Relaxed);
        let most = limit.wrapping_sub(index);
        if value == index || value.wrapping_sub(index) > most {
            return Err(Breach::Index { slot, value });
        }
        self.seen = value;
        Ok(())
    }
}
