// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! The south's side of a ring: a device takes packets, or fills buffers.

use crate::atomic::Ordering;
use crate::fault::{self, Fault};
use crate::ring::{Breach, NORTH, Ring, Role, SOUTH, Theirs};

/// A copy of a descriptor that belongs to the south. The buffer is the north's memory: the caller
/// checks `ptr` and `len` against what it has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Address in the north's memory.
    pub ptr: u64,
    /// Bytes of the packet, or of the empty buffer.
    pub len: u32,
    /// Transmit: the sender's flags.
    pub flags: u32,
}

/// The south of one ring.
#[derive(Debug)]
pub struct South<'a> {
    ring: Ring<'a>,
    role: Role,
    /// Transmit: the oldest packet that is not completed.
    completed: u32,
    /// Transmit: the next packet to take. Receive: the next buffer to fill.
    next: u32,
    theirs: Theirs,
    breach: Option<Breach>,
}

impl<'a> South<'a> {
    /// Becomes the south of a ring that the north has begun, also in the place of a south that has
    /// died at any moment: the owners of the descriptors say where it was. A packet that it had
    /// taken and not completed is taken again. The north posts and takes nothing during this call.
    ///
    /// # Errors
    /// The north's indices or the owners contradict each other.
    pub fn attach(ring: Ring<'a>, role: Role) -> Result<Self, Breach> {
        let count = ring.count();
        if !Ring::allowed(count) {
            return Err(Breach::Head {
                field: "count",
                value: count,
            });
        }
        let head = ring.valid_head.load(Ordering::Acquire);
        let tail = ring.valid_tail.load(Ordering::Acquire);
        let posted = tail.wrapping_sub(head);
        if posted > count {
            return Err(Breach::Head {
                field: "valid_tail",
                value: tail,
            });
        }
        // First those that went back to the north, then those that still belong to the south.
        let mut next = head;
        while next != tail && ring.mine(next, NORTH)? {
            next = next.wrapping_add(1);
        }
        let mut index = next;
        while index != tail {
            if !ring.mine(index, SOUTH)? {
                let (slot, _) = ring.at(index);
                return Err(Breach::Owner { slot, value: NORTH });
            }
            index = index.wrapping_add(1);
        }
        let mine = match role {
            Role::Transmit => ring.inuse_head,
            Role::Receive => ring.inuse_tail,
        };
        mine.store(next, Ordering::Release);
        Ok(South {
            ring,
            role,
            completed: next,
            next,
            // Read again when it is needed.
            theirs: Theirs::new(next),
            breach: None,
        })
    }

    /// What the peer did wrong, if anything.
    #[must_use]
    pub fn breach(&self) -> Option<Breach> {
        self.breach
    }

    /// Transmit: takes the next packet. Receive: the next buffer, which [`South::fill`] passes on;
    /// without that the same buffer is returned again.
    ///
    /// # Errors
    /// The peer broke a rule, now or earlier.
    pub fn take(&mut self) -> Result<Option<Place>, Breach> {
        if let Some(breach) = self.breach {
            return Err(breach);
        }
        self.try_take().inspect_err(|&breach| {
            self.breach = Some(breach);
        })
    }

    fn try_take(&mut self) -> Result<Option<Place>, Breach> {
        let count = self.ring.count();
        // Each descriptor is taken: those that are not completed still belong to the south.
        if self.next.wrapping_sub(self.completed) == count || !self.ring.mine(self.next, SOUTH)? {
            return Ok(None);
        }
        let (slot, descriptor) = self.ring.at(self.next);
        let word = match self.role {
            Role::Transmit => self.ring.inuse_tail,
            Role::Receive => self.ring.valid_tail,
        };
        let limit = self.completed.wrapping_add(count);
        self.theirs.covers(word, self.next, limit, slot)?;
        let place = Place {
            ptr: descriptor.ptr.load(Ordering::Relaxed),
            len: descriptor.len.load(Ordering::Relaxed),
            flags: descriptor.flags.load(Ordering::Relaxed),
        };
        if self.role == Role::Transmit {
            self.next = self.next.wrapping_add(1);
        }
        Ok(Some(place))
    }

    /// Receive: whether the north has handed over this number of buffers. One that broke the rules
    /// may still miss some of them when they are taken.
    #[must_use]
    pub fn has(&self, buffers: u32) -> bool {
        match buffers.checked_sub(1) {
            None => true,
            // The north hands buffers over in their order, so the last one stands for all.
            Some(last) if buffers <= self.ring.count() => {
                self.ring.mine(self.next.wrapping_add(last), SOUTH) == Ok(true)
            }
            Some(_) => false,
        }
    }

    /// Transmit: the oldest packet that was taken has been delivered. Its buffer goes back. False:
    /// there is no such packet.
    pub fn complete(&mut self) -> bool {
        if self.role != Role::Transmit || self.completed == self.next {
            return false;
        }
        let after = self.completed.wrapping_add(1);
        self.ring.inuse_head.store(after, Ordering::Relaxed);
        self.ring.hand(self.completed, NORTH);
        self.completed = after;
        true
    }

    /// Receive: the buffer that [`South::take`] returned last has a packet of `used` bytes now. At
    /// most the bytes of `place` are reported. False: the role has no such call.
    pub fn fill(&mut self, place: &Place, used: u32, flags: u32) -> bool {
        if self.role != Role::Receive {
            return false;
        }
        let (_, descriptor) = self.ring.at(self.next);
        let after = self.next.wrapping_add(1);
        if fault::is(Fault::OwnerFirst) {
            self.ring.inuse_tail.store(after, Ordering::Relaxed);
            self.ring.hand(self.next, NORTH);
        }
        descriptor
            .used
            .store(used.min(place.len), Ordering::Relaxed);
        descriptor.flags.store(flags, Ordering::Relaxed);
        self.ring.inuse_tail.store(after, Ordering::Relaxed);
        self.ring.hand(self.next, NORTH);
        self.next = after;
        self.completed = after;
        true
    }

    /// Receive: the index of the buffer that [`South::fill`] passes on next, for
    /// [`South::returned`].
    #[must_use]
    pub fn index(&self) -> u32 {
        self.next
    }

    /// Receive: whether the north has handed the descriptor of this index over again since it was
    /// filled, and so needs what was in it no more. The index is that of one of the last 2^31
    /// descriptors that were filled.
    #[must_use]
    pub fn returned(&self, index: u32) -> bool {
        // Had it not, the south could not have filled the descriptor a second time.
        let after = self.next.wrapping_sub(index);
        if fault::is(Fault::ReturnedAtOnce) {
            return true;
        }
        after > self.ring.count() || (after > 0 && self.ring.mine(index, SOUTH) == Ok(true))
    }

    /// Descriptors of the ring.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.ring.count()
    }

    /// Whether [`South::take`] has something to return: a cheap look at one word.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.next.wrapping_sub(self.completed) != self.ring.count()
            && self.ring.mine(self.next, SOUTH) != Ok(false)
    }
}
