// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that shares: other clients of its device read its packets in place, and it reads
//! theirs.
//!
//! Long packets are posted in *slots*, in a memory that the others have mapped to be read. A slot
//! is not the buffer of a descriptor: the device gives the descriptor back at once, and the slot is
//! free when its receiver has copied from it. Without a free slot, a packet takes the buffer of its
//! descriptor, and is copied by the device.
//!
//! Each connection has a memory of slots of its own. Receivers may still read that of a connection
//! that has ended, so it is not written again. A packet that an earlier device has lent and that
//! was not received yet is lost: no side would report that its slots can be used again.

use crate::control::Error;
use crate::memory::{Lent as LentMemory, Memory, make_file, seal};
use crate::queues::{Put, Queues};
use paravane_vbus::ethernet::lent::{FEWEST, LENT, Lent, MOST, PARTS};
use paravane_vbus::ethernet::{HEAD, flag};
use paravane_vbus::spaces::{base, split};
use paravane_vbus::{
    Content, MemoryContext, Offsets, Parts, Place, ReadOnly, Region, Spaces, limits,
};
use paravane_vbus_shm::loans::{self, Loans, PLACES};
use paravane_vbus_shm::memory;
use rustix::fs::SealFlags;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The memory of the slots.
#[derive(Debug)]
struct Slots {
    file: OwnedFd,
    memory: Offsets<Memory>,
}

impl Slots {
    fn new(bytes: u64) -> Result<Self, Error> {
        let (file, map) = make_file(bytes)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        // Only the existing mapping can write it.
        seal(&file, seals | SealFlags::FUTURE_WRITE)?;
        let memory = Offsets(Memory { map });
        Ok(Slots { file, memory })
    }
}

/// What such a client has besides its queues.
#[derive(Debug)]
pub struct Lending {
    slots: Slots,
    size: u32,
    count: u32,
    /// Those that are free, the last one used first: it is in the caches.
    free: Vec<u32>,
    /// Those whose descriptors came back, and that were lent then.
    lent: VecDeque<u32>,
    /// Places for the next packet.
    places: Vec<u64>,
    /// The words in the client's memory, and where they are.
    loans: Loans<'static>,
    table: u64,
    /// The device has agreed.
    agreed: bool,
    /// The client's memory, and those of others at their places.
    spaces: Spaces,
    lenders: [u32; PLACES],
    /// Announcements that were handled.
    handled: u32,
    found: Lent,
    /// Packets of an earlier device that were lost.
    lost: u64,
    _memory: Arc<Offsets<Memory>>,
}

/// The number of slots of a client whose queues have `descriptors` descriptors with buffers of
/// `buffer` bytes: two for each, as far as the limit of memory allows.
pub fn slots(descriptors: u32, buffer: u32) -> u32 {
    let most = loans::BYTES / u64::from(buffer.max(1));
    let most = u32::try_from(most).unwrap_or(u32::MAX).min(loans::SLOTS);
    descriptors.saturating_mul(2).min(most)
}

impl Lending {
    /// With `count` slots of `size` bytes, and words at the offset `table` of the queues' memory.
    pub fn new(queues: &Queues, table: u64, count: u32, size: u32) -> Result<Self, Error> {
        let none = || Error::Invalid(format!("slots of {size} bytes are not possible"));
        let memory = Arc::clone(&queues.memory);
        let (start, len) = memory.range();
        let first = usize::try_from(table).map_err(|_| none())?;
        let left = len
            .checked_sub(first)
            .filter(|_| count > 0)
            .ok_or_else(none)?;
        // SAFETY: the words are in the mapping, which `_memory` keeps as long as they are used, and
        // all accesses to them are atomic.
        let words = unsafe { memory::words(start.add(first), left, loans::words(count)) };
        let loans = words.and_then(Loans::new).ok_or_else(none)?;
        Ok(Lending {
            slots: Slots::new(u64::from(count) * u64::from(size))?,
            size,
            count,
            free: (0..count).rev().collect(),
            lent: VecDeque::with_capacity(count as usize),
            places: Vec::with_capacity(PARTS),
            loans,
            table,
            agreed: false,
            spaces: Spaces::new(memory.clone(), PLACES),
            lenders: [0; PLACES],
            handled: 0,
            found: Lent::with_room(),
            lost: 0,
            _memory: memory,
        })
    }

    /// Packets that were lost since they were lent by a device that has ended.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Continues the count of earlier queues.
    pub fn inherit(&mut self, old: &Lending) {
        self.lost = old.lost;
    }

    /// The client's memory, and those of others.
    pub fn memory(&self) -> &dyn MemoryContext {
        &self.spaces
    }

    /// Before a device attaches: no port lends anything, and the slots, with the packets that are
    /// still in them, are in another memory.
    pub fn renew(&mut self) -> Result<(), Error> {
        for place in 0..PLACES {
            self.spaces.set(place + 1, None);
        }
        (self.lenders, self.handled) = ([0; PLACES], 0);
        self.loans.begin();
        let bytes = u64::from(self.count) * u64::from(self.size);
        let slots = Slots::new(bytes)?;
        let (from, to) = (&self.slots.memory, &slots.memory);
        let unused = |slot: &u32| self.free.contains(slot) || self.lent.contains(slot);
        for slot in (0..self.count).filter(|slot| !unused(slot)) {
            let at = u64::from(slot) * u64::from(self.size);
            let copied = paravane_vbus::copy((from, at), (to, at), self.size as usize);
            copied.map_err(|_| Error::Invalid("a slot is outside of its memory".into()))?;
        }
        self.slots = slots;
        self.free.extend(self.lent.drain(..));
        Ok(())
    }

    /// The device has agreed or not.
    pub fn agree(&mut self, agreed: bool) {
        self.agreed = agreed;
    }

    /// The words, the number of slots and their bytes, and their memory, for the device.
    pub fn offer(&self) -> (u64, [u32; 2], BorrowedFd<'_>) {
        let shape = [self.count, self.size];
        (self.table, shape, self.slots.file.as_fd())
    }

    /// Posts a packet in slots. `None`: it takes the buffers of its descriptors.
    pub fn put(
        &mut self,
        queues: &mut Queues,
        content: &Content<'_>,
        flags: u32,
        more: u32,
    ) -> Option<Result<bool, Put>> {
        let number = queues.buffers(content.len());
        if !self.agreed || content.len() < HEAD + FEWEST || number > PARTS {
            return None;
        }
        self.look(2 * number + 2);
        let first = self.free.len().checked_sub(number)?;
        self.places.clear();
        let slots = self.free.get(first..)?;
        let size = u64::from(self.size);
        self.places
            .extend(slots.iter().map(|&slot| u64::from(slot) * size));
        let places = (&self.slots.memory as &dyn MemoryContext, &self.places[..]);
        let put = queues.put_in(Some(places), content, flags, more);
        if let Ok(true) = put {
            self.free.truncate(first);
        }
        Some(put)
    }

    /// Looks whether some slots are lent no more.
    fn look(&mut self, most: usize) {
        for _ in 0..most.min(self.lent.len()) {
            match self.lent.pop_front() {
                Some(slot) if self.loans.is_free(slot) => self.free.push(slot),
                Some(slot) => self.lent.push_back(slot),
                None => return,
            }
        }
    }

    /// A descriptor came back that had this place.
    pub fn came_back(&mut self, place: u64) {
        let (memory, at) = split(place);
        if memory != split(base(1)).0 {
            return;
        }
        let slot = u32::try_from(at / u64::from(self.size.max(1))).unwrap_or(u32::MAX);
        if self.loans.is_free(slot) {
            self.free.push(slot);
        } else {
            self.lent.push_back(slot);
        }
    }

    /// Another client lends, whose memory this is.
    pub fn lends(&mut self, place: u32, lender: u64, file: Option<&OwnedFd>) -> Result<(), Error> {
        let lower = u32::try_from(lender & u64::from(u32::MAX)).unwrap_or(0);
        let memory = file.and_then(LentMemory::map);
        self.set(place, lower, memory)
    }

    /// No port lends at a place any more.
    pub fn withdrawn(&mut self, place: u32) -> Result<(), Error> {
        self.set(place, 0, None)
    }

    fn set(&mut self, place: u32, lender: u32, memory: Option<LentMemory>) -> Result<(), Error> {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let Some(known) = self.lenders.get_mut(place) else {
            return Err(Error::Protocol(format!("there is no place {place}")));
        };
        *known = if memory.is_some() { lender } else { 0 };
        self.loans.set_mapped(place, *known);
        let memory = memory.map(|memory| Arc::new(ReadOnly(memory)) as Arc<dyn MemoryContext>);
        self.spaces.set(place + 1, memory);
        self.handled = self.handled.wrapping_add(1);
        self.loans.set_handled(self.handled);
        Ok(())
    }

    /// Whether a packet lies in the memory of this place.
    pub fn is_in(parts: &Parts, place: u32) -> bool {
        let number = u64::from(place) + 1;
        parts
            .places()
            .iter()
            .any(|part| split(part.ptr).0 == number)
    }

    /// Whether a packet lies in another client's memory.
    pub fn is_lent(parts: &Parts) -> bool {
        parts.places().iter().any(|part| split(part.ptr).0 != 0)
    }

    /// If a packet that was collected says where a frame lies, makes it that frame. False: it is
    /// lost.
    pub fn expand(&mut self, queues: &Queues, parts: &mut Parts) -> Result<bool, Error> {
        let &[Place { ptr, len, flags }] = parts.places() else {
            return Ok(true);
        };
        if flags != LENT || !(self.agreed || queues.rx.old) {
            return Ok(true);
        }
        if queues.rx.old {
            self.lost += 1;
            return Ok(false);
        }
        let nonsense = || Error::Protocol("a lent frame makes no sense".to_string());
        let mut bytes = [0; MOST];
        let used = len as usize;
        let bytes = bytes.get_mut(..used).ok_or_else(nonsense)?;
        self.spaces.read(ptr, bytes).map_err(|_| nonsense())?;
        let found = &mut self.found;
        let known = found.read(bytes, used).then_some(found.place);
        let known = known.and_then(|place| self.lenders.get(usize::try_from(place).ok()?));
        if known.is_none_or(|&lender| lender == 0 || lender != found.lender) {
            return Err(nonsense());
        }
        let (at, head) = found.head;
        let first = Place {
            ptr: ptr + at as u64,
            len: u32::try_from(head).unwrap_or(0),
            flags: found.flags | flag::MORE,
        };
        parts.clear();
        let memory = base(found.place + 1);
        let (mut places, count) = (found.parts.iter(), found.parts.len());
        let others = (1..=count).filter_map(|number| {
            let &(offset, len) = places.next()?;
            let (ptr, last) = (memory + u64::from(offset), number == count);
            let flags = if last { 0 } else { flag::MORE };
            Some(Place { ptr, len, flags })
        });
        for part in std::iter::once(first).chain(others) {
            // A receiver is to find all of it.
            let there = self.spaces.check(part.ptr, part.len as usize);
            there.map_err(|_| nonsense())?;
            let pushed = parts.push(part, limits::PACKET, flag::MORE);
            pushed.map_err(|why| Error::Protocol(why.to_string()))?;
        }
        Ok(true)
    }
}
