// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! The north's side of a ring: it posts buffers and gets them back.

use crate::atomic::Ordering;
use crate::fault::{self, Fault};
use crate::ring::{Breach, NORTH, Ring, Role, SOUTH, Theirs};

/// What the north remembers of a posted buffer. The descriptor itself is the peer's to overwrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Posted {
    /// The caller's number of the buffer.
    pub cookie: u64,
    /// Bytes.
    pub len: u32,
}

/// A buffer for the south.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// The caller's number of it, returned when the buffer comes back.
    pub cookie: u64,
    /// Address in the north's memory.
    pub ptr: u64,
    /// Bytes of the packet, or of the empty buffer.
    pub len: u32,
    /// The type of the device gives it a meaning.
    pub flags: u32,
}

/// Why a buffer was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// All descriptors are in use.
    Full,
    /// The peer broke a rule earlier.
    Breach(Breach),
}

/// A buffer that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The number that the caller gave it.
    pub cookie: u64,
    /// Its bytes, as they were posted.
    pub len: u32,
    /// Receive: bytes of the packet, at most `len`. Transmit: 0.
    pub used: u32,
    /// Receive: the sender's flags. Transmit: 0.
    pub flags: u32,
}

/// The north of one ring. `P` has an element for each descriptor.
#[derive(Debug)]
pub struct North<'a, P> {
    ring: Ring<'a>,
    role: Role,
    posted: P,
    head: u32,
    tail: u32,
    theirs: Theirs,
    breach: Option<Breach>,
}

impl<'a, P: AsMut<[Posted]> + AsRef<[Posted]>> North<'a, P> {
    /// Empties the ring, and becomes its north. Both indices begin at `start`; only tests choose
    /// other values than 0. `None`: the count is not allowed, or is not the length of `posted`.
    #[must_use]
    pub fn begin(ring: Ring<'a>, role: Role, posted: P, start: u32) -> Option<Self> {
        if !Ring::allowed(ring.count()) || posted.as_ref().len() != ring.descriptors.len() {
            return None;
        }
        for descriptor in ring.descriptors {
            descriptor.owner.store(NORTH, Ordering::Relaxed);
        }
        for index in [
            ring.valid_head,
            ring.valid_tail,
            ring.inuse_head,
            ring.inuse_tail,
        ] {
            index.store(start, Ordering::Release);
        }
        Some(North {
            ring,
            role,
            posted,
            head: start,
            tail: start,
            theirs: Theirs::new(start),
            breach: None,
        })
    }

    /// Number of buffers that are posted and have not come back.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Number of buffers that can be posted now.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.ring.count() - self.outstanding()
    }

    /// What the peer did wrong, if anything.
    #[must_use]
    pub fn breach(&self) -> Option<Breach> {
        self.breach
    }

    /// Sends a packet, or posts an empty buffer. The caller then injects the signal.
    ///
    /// # Errors
    /// The ring is full, or the peer broke a rule.
    pub fn post(&mut self, buffer: Buffer) -> Result<(), Refused> {
        if let Some(breach) = self.breach {
            return Err(Refused::Breach(breach));
        }
        if self.room() == 0 && !fault::is(Fault::FullAccepts) {
            return Err(Refused::Full);
        }
        let (slot, descriptor) = self.ring.at(self.tail);
        if fault::is(Fault::OwnerFirst) {
            self.ring.hand(self.tail, SOUTH);
        }
        if let Some(posted) = self.posted.as_mut().get_mut(slot as usize) {
            *posted = Posted {
                cookie: buffer.cookie,
                len: buffer.len,
            };
        }
        descriptor.cookie.store(buffer.cookie, Ordering::Relaxed);
        descriptor.ptr.store(buffer.ptr, Ordering::Relaxed);
        descriptor.len.store(buffer.len, Ordering::Relaxed);
        descriptor.used.store(0, Ordering::Relaxed);
        descriptor.flags.store(buffer.flags, Ordering::Relaxed);
        let next = self.tail.wrapping_add(1);
        self.ring.valid_tail.store(next, Ordering::Relaxed);
        if self.role == Role::Transmit {
            self.ring.inuse_tail.store(next, Ordering::Relaxed);
        }
        self.ring.hand(self.tail, SOUTH);
        self.tail = next;
        Ok(())
    }

    /// The oldest buffer, if the south has returned it: a packet that has been delivered, or one
    /// that was received.
    ///
    /// # Errors
    /// The peer broke a rule, now or earlier.
    pub fn take(&mut self) -> Result<Option<Returned>, Breach> {
        if let Some(breach) = self.breach {
            return Err(breach);
        }
        self.try_take().inspect_err(|&breach| {
            self.breach = Some(breach);
        })
    }

    fn try_take(&mut self) -> Result<Option<Returned>, Breach> {
        if self.head == self.tail || !self.ring.mine(self.head, NORTH)? {
            return Ok(None);
        }
        let (slot, descriptor) = self.ring.at(self.head);
        let word = match self.role {
            Role::Transmit => self.ring.inuse_head,
            Role::Receive => self.ring.inuse_tail,
        };
        self.theirs.covers(word, self.head, self.tail, slot)?;
        let posted = self.posted.as_ref().get(slot as usize);
        let Posted { cookie, len } = posted.copied().unwrap_or_default();
        let mut returned = Returned {
            cookie,
            len,
            used: 0,
            flags: 0,
        };
        if self.role == Role::Receive {
            returned.used = descriptor.used.load(Ordering::Relaxed);
            returned.flags = descriptor.flags.load(Ordering::Relaxed);
            if returned.used > len && !fault::is(Fault::LengthUnchecked) {
                return Err(Breach::Length {
                    slot,
                    used: returned.used,
                    posted: len,
                });
            }
        }
        self.head = self.head.wrapping_add(1);
        if self.role == Role::Receive {
            self.ring.inuse_head.store(self.head, Ordering::Relaxed);
        }
        self.ring.valid_head.store(self.head, Ordering::Relaxed);
        Ok(Some(returned))
    }

    /// Number of buffers that came back and were not taken. It may grow at any time.
    #[must_use]
    pub fn returned(&self) -> u32 {
        let mut index = self.head;
        while index != self.tail && self.ring.mine(index, NORTH) == Ok(true) {
            index = index.wrapping_add(1);
        }
        index.wrapping_sub(self.head)
    }

    /// Transmit: makes a packet that has not come back one without bytes and flags: the one after
    /// `number` others. Only while the ring has no south, which may have read it before.
    pub fn empty(&mut self, number: u32) {
        if self.role == Role::Transmit && number < self.outstanding() {
            let (_, descriptor) = self.ring.at(self.head.wrapping_add(number));
            descriptor.len.store(0, Ordering::Relaxed);
            descriptor.flags.store(0, Ordering::Relaxed);
        }
    }

    /// Whether [`North::take`] has something to return: a cheap look at one word.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.head != self.tail && self.ring.mine(self.head, NORTH) != Ok(false)
    }
}
