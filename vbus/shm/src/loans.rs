// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! Loans: packets that stay in their sender's memory until their receiver has copied them.
//!
//! A sender has a memory of *slots*, which other clients may read. The device *lends* slots to a
//! receiver, in place of a copy of the packet: it fills a descriptor of the receiver with the
//! places. The receiver copies from there, and returns the slots by posting that descriptor again.
//! The device reports this to the sender by a word for each slot, in memory that the two share. The
//! sender writes a slot only while its word is 0 and none of its own packets is in it.
//!
//! | word of | written by | |
//! |---|---|---|
//! | a slot | the device | 1 while it is lent |
//! | a place | the client | the lender whose memory it has mapped there, 0: none |
//! | announcements | the client | how many it has handled |
//!
//! The device stores 1 before the sender's descriptor goes back, and 0 after it has seen the
//! receiver's descriptor again. Both go by a release and an acquire (`owner`, and these words), so
//! the receiver's reads come before the sender's next writes. `tests/loom.rs` has the three sides.

use crate::atomic::{AtomicU32, Ordering};
use crate::fault::{self, Fault};

/// Places: clients of a device whose memory others can have mapped at the same time.
pub const PLACES: usize = 8;
/// Most slots of a client.
pub const SLOTS: u32 = 4096;
/// Most bytes of their memory. Pages that its owner has never written are charged to the control
/// group of the process that reads them first.
pub const BYTES: u64 = 8 << 20;
/// The words before those of slots: that of announcements, and one for each place.
const HEAD: usize = 16;
const _: () = assert!(HEAD > PLACES);

/// Words of a client with `slots` slots.
#[must_use]
pub fn words(slots: u32) -> usize {
    HEAD + slots as usize
}

/// The words of a client.
#[derive(Clone, Copy, Debug)]
pub struct Loans<'a> {
    words: &'a [AtomicU32],
}

impl<'a> Loans<'a> {
    /// In these words, of which there is one at least for each place.
    #[must_use]
    pub fn new(words: &'a [AtomicU32]) -> Option<Self> {
        (words.len() >= HEAD).then_some(Loans { words })
    }

    /// Number of slots.
    #[must_use]
    pub fn slots(self) -> usize {
        self.words.len() - HEAD
    }

    fn place(self, place: usize) -> Option<&'a AtomicU32> {
        self.words.get(1..=PLACES)?.get(place)
    }

    fn slot(self, slot: u32) -> Option<&'a AtomicU32> {
        self.words.get(HEAD..)?.get(slot as usize)
    }

    /// The client makes all words 0.
    pub fn begin(self) {
        for word in self.words {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Device: whether a slot is lent.
    pub fn lend(self, slot: u32, lent: bool) {
        if let Some(word) = self.slot(slot) {
            word.store(u32::from(lent), Ordering::Release);
        }
    }

    /// Client: whether its slot is not lent. There must be no packet in it.
    #[must_use]
    pub fn is_free(self, slot: u32) -> bool {
        fault::is(Fault::LentIsFree)
            || self
                .slot(slot)
                .is_some_and(|word| word.load(Ordering::Acquire) == 0)
    }

    /// Client: has mapped the memory of this lender at a place, or with 0 has none there.
    pub fn set_mapped(self, place: usize, lender: u32) {
        if let Some(word) = self.place(place) {
            word.store(lender, Ordering::Release);
        }
    }

    /// Device: what the client has mapped at a place.
    #[must_use]
    pub fn mapped(self, place: usize) -> u32 {
        self.place(place)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Client: has handled `number` announcements, modulo 2^32.
    pub fn set_handled(self, number: u32) {
        if let [word, ..] = self.words {
            word.store(number, Ordering::Release);
        }
    }

    /// Device: how many announcements the client has handled.
    #[must_use]
    pub fn handled(self) -> u32 {
        match self.words {
            [word, ..] => word.load(Ordering::Acquire),
            [] => 0,
        }
    }
}
