// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets in a client's memory, and their copies for another client.

use crate::endpoint::Broken;
use crate::limits;
use crate::memory::{MemoryContext, Missing, Outside, copy};
use paravane_vbus_shm::south::Place;

/// The descriptors of a packet, in the memory of the client that has it.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    places: Vec<Place>,
    len: usize,
    whole: bool,
}

impl Parts {
    /// With room for as many descriptors as a packet can have.
    #[must_use]
    pub fn with_room() -> Self {
        Parts {
            places: Vec::with_capacity(limits::PARTS),
            ..Parts::default()
        }
    }

    /// Where the packet lies.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Adds a descriptor. `more` is the flag of one after which another follows, or 0.
    ///
    /// # Errors
    /// The packet is longer than `most`, has too many parts, or a part without bytes.
    pub fn push(&mut self, place: Place, most: usize, more: u32) -> Result<(), Broken> {
        let len = self.len.saturating_add(place.len as usize);
        if len > most {
            return Err(Broken::Long(u32::try_from(len).unwrap_or(u32::MAX)));
        }
        let ends = place.flags & more == 0;
        if self.places.len() == limits::PARTS || (place.len == 0 && !ends) {
            return Err(Broken::Parts);
        }
        self.places.push(place);
        (self.len, self.whole) = (len, ends);
        Ok(())
    }

    /// Forgets the packet.
    pub fn clear(&mut self) {
        self.places.clear();
        (self.len, self.whole) = (0, false);
    }

    /// There is no descriptor.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The last descriptor is there.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Number of descriptors.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Flags of the first descriptor.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.places.first().map_or(0, |place| place.flags)
    }

    /// Copies bytes from this one on out of the client's memory.
    ///
    /// # Errors
    /// A part is not in it, or the packet is shorter.
    pub fn read(
        &self,
        memory: &dyn MemoryContext,
        at: usize,
        mut to: &mut [u8],
    ) -> Result<(), Outside> {
        for (ptr, len) in self.ranges(at, to.len()) {
            let (part, rest) = to.split_at_mut(len.min(to.len()));
            memory.read(ptr, part)?;
            to = rest;
        }
        if to.is_empty() {
            return Ok(());
        }
        let (ptr, len) = (at as u64, to.len());
        Err(Outside { ptr, len })
    }

    /// Looks whether all of it is in the client's memory.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, memory: &dyn MemoryContext) -> Result<(), Outside> {
        self.ranges(0, self.len)
            .try_for_each(|(ptr, len)| memory.check(ptr, len))
    }

    /// Where bytes of the packet lie: addresses and lengths.
    fn ranges(&self, at: usize, len: usize) -> impl Iterator<Item = (u64, usize)> {
        let (mut skip, mut left) = (at, len);
        self.places.iter().filter_map(move |place| {
            let size = place.len as usize;
            let before = skip.min(size);
            skip -= before;
            let here = (size - before).min(left);
            left -= here;
            // One that is past the end of all numbers is outside of every memory.
            (here > 0).then(|| (place.ptr.saturating_add(before as u64), here))
        })
    }
}

/// Which of two clients broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// The one whose packet it is.
    Sender(Broken),
    /// The one that is to get it.
    Receiver(Broken),
}

impl Culprit {
    /// What was broken.
    #[must_use]
    pub fn broken(self) -> Broken {
        match self {
            Culprit::Sender(broken) | Culprit::Receiver(broken) => broken,
        }
    }
}

/// Bytes are looked for only in the memory of the one whose packet it is.
impl From<Outside> for Culprit {
    fn from(outside: Outside) -> Self {
        Culprit::Sender(Broken::Memory(outside))
    }
}

impl From<Missing> for Culprit {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Source(outside) => Culprit::Sender(Broken::Memory(outside)),
            Missing::Target(outside) => Culprit::Receiver(Broken::Memory(outside)),
        }
    }
}

/// A packet for a client: bytes of this process, and after them bytes of a client's packet, which
/// are copied from memory to memory.
#[derive(Clone, Copy)]
pub struct Content<'a> {
    head: &'a [u8],
    body: Option<(&'a Parts, &'a dyn MemoryContext)>,
    /// Where the body begins in its packet.
    at: usize,
    len: usize,
}

impl std::fmt::Debug for Content<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

impl<'a> Content<'a> {
    /// Only bytes of this process.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        Content {
            head: bytes,
            body: None,
            at: 0,
            len: bytes.len(),
        }
    }

    /// These bytes, and `len` bytes of a packet from `at` on.
    #[must_use]
    pub fn with(
        head: &'a [u8],
        (parts, memory): (&'a Parts, &'a dyn MemoryContext),
        at: usize,
        len: usize,
    ) -> Self {
        Content {
            head,
            body: Some((parts, memory)),
            at,
            len: head.len() + len,
        }
    }

    /// The bytes of this process.
    #[must_use]
    pub fn head(&self) -> &'a [u8] {
        self.head
    }

    /// Where the other bytes lie in the memory of their client: addresses and lengths.
    pub fn body(&self) -> impl Iterator<Item = (u64, usize)> {
        let len = self.len - self.head.len();
        let ranges = self.body.map(|(parts, _)| parts.ranges(self.at, len));
        ranges.into_iter().flatten()
    }

    /// All bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `len` bytes from `at` on into a client's memory. They must exist.
    ///
    /// # Errors
    /// Some of them, or the place for them, are not in a client's memory.
    pub fn copy_to(
        &self,
        at: usize,
        len: usize,
        (to, target): (&dyn MemoryContext, u64),
    ) -> Result<(), Missing> {
        let head = self.head.get(at..).unwrap_or_default();
        let head = head.get(..len).unwrap_or(head);
        let mut target = target;
        if !head.is_empty() {
            to.write(target, head).map_err(Missing::Target)?;
            target = target.saturating_add(head.len() as u64);
        }
        let mut left = len - head.len();
        if let Some((parts, memory)) = self.body {
            let first = self.at + at.saturating_sub(self.head.len());
            for (source, len) in parts.ranges(first, left) {
                copy((memory, source), (to, target), len)?;
                target = target.saturating_add(len as u64);
                left -= len;
            }
        }
        if left == 0 {
            return Ok(());
        }
        let ptr = at as u64;
        Err(Missing::Source(Outside { ptr, len: left }))
    }
}
