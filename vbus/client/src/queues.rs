// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's memory: pairs of rings, and a buffer for each of their descriptors.
//!
//! Buffers come back in the order in which they were posted, so the buffer of a descriptor is the
//! one of its number.

use crate::control::Error;
use crate::memory::{Memory, make_file, seal};
use paravane_vbus::spaces::base;
use paravane_vbus::{Content, Culprit, MemoryContext, Offsets, Outside, Parts, Place};
use paravane_vbus_shm::Role;
use paravane_vbus_shm::memory::{Queue, size};
use paravane_vbus_shm::north::{Buffer, North, Posted, Refused, Returned};
use paravane_vbus_shm::signal::{Left, Side};
use rustix::fs::SealFlags;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// One queue and its buffers.
pub struct Lane {
    // These refer to the memory of `Queues`, which drops it last.
    north: North<'static, Box<[Posted]>>,
    to_north: Side<'static>,
    to_south: Side<'static>,
    /// Offset of the first buffer.
    first: u64,
    /// Buffers posted so far: the next has this number modulo the count.
    posted: u64,
    count: u32,
    buffer: u32,
    /// Transmit: which of the posted ones are followed by more of their packet.
    more: Box<[bool]>,
    /// Transmit: the last one that came back is.
    amid: bool,
    /// Receive: buffers of a south before this one that have not been taken.
    stale: u32,
    /// Receive: the last one that was collected is of a south before this one.
    pub old: bool,
}

/// What a pair of rings has.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Descriptors of the receive ring and of the transmit ring.
    pub counts: [u32; 2],
    /// Bytes of the buffer of each.
    pub buffer: u32,
}

/// A pair of rings. All pairs of a connection have one memory.
pub struct Queues {
    pub rx: Lane,
    pub tx: Lane,
    /// Offsets of the two rings.
    pub offsets: [u64; 2],
    pub file: Arc<OwnedFd>,
    pub memory: Arc<Offsets<Memory>>,
}

impl std::fmt::Debug for Queues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rx {:?} tx {:?}", self.rx.north, self.tx.north)
    }
}

impl Queues {
    /// Offset of the transmit ring after a receive ring of `received` descriptors.
    pub fn tx_offset(received: u32) -> u64 {
        size(received).next_multiple_of(64) as u64
    }

    /// Memory for a receive ring and a transmit ring of `counts` descriptors, each with a buffer of
    /// `buffer` bytes.
    pub fn new(counts: [u32; 2], buffer: u32) -> Result<Self, Error> {
        let (mut pairs, _) = Queues::pairs(&[Shape { counts, buffer }], 0)?;
        let none = || Error::Invalid("a connection has queues".to_string());
        pairs.pop().ok_or_else(none)
    }

    /// Memory for such pairs of rings, and for `more` bytes, whose offset is returned.
    pub fn pairs(shapes: &[Shape], more: usize) -> Result<(Vec<Self>, u64), Error> {
        // All rings, and then all buffers.
        let mut rings = 0;
        let offsets: Vec<_> = shapes
            .iter()
            .map(|shape| {
                let [received, sent] = shape.counts;
                let offsets = [rings, rings + Queues::tx_offset(received)];
                rings = (offsets[1] + size(sent) as u64).next_multiple_of(64);
                offsets
            })
            .collect();
        let rings = rings.next_multiple_of(4096);
        let bytes = |shape: &Shape| {
            shape
                .counts
                .map(|count| u64::from(count) * u64::from(shape.buffer))
        };
        let last = rings + shapes.iter().flat_map(bytes).sum::<u64>();
        let last = last.next_multiple_of(64);
        let len = last + more as u64;
        let (file, map) = make_file(len)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        seal(&file, seals)?;
        let lane = |offset: u64, (count, buffer), role: Role, first: u64| -> Result<Lane, Error> {
            let refused = || Error::Invalid(format!("a queue of {count} is not possible"));
            let offset = usize::try_from(offset).map_err(|_| refused())?;
            let start = NonNull::new(map.as_mut_ptr()).ok_or_else(refused)?;
            // SAFETY: the ring lies within the mapping, which the lanes do not outlive, and all
            // accesses to it are atomic.
            let queue: Queue<'static> =
                unsafe { Queue::make(start.add(offset), map.len() - offset, count, role) }
                    .ok_or_else(refused)?;
            let posted = vec![Posted::default(); count as usize].into_boxed_slice();
            let north = North::begin(queue.ring, role, posted, 0).ok_or_else(refused)?;
            Ok(Lane {
                north,
                to_north: queue.to_north,
                to_south: queue.to_south,
                first,
                posted: 0,
                count,
                buffer,
                more: vec![false; count as usize].into_boxed_slice(),
                amid: false,
                stale: 0,
                old: false,
            })
        };
        let (mut lanes, mut first) = (Vec::new(), rings);
        for (shape, offsets) in shapes.iter().zip(offsets) {
            let ([received, sent], buffer) = (shape.counts, shape.buffer);
            let [rx_bytes, tx_bytes] = bytes(shape);
            let [rx, tx] = offsets;
            let rx = lane(rx, (received, buffer), Role::Receive, first)?;
            let tx = lane(tx, (sent, buffer), Role::Transmit, first + rx_bytes)?;
            first += rx_bytes + tx_bytes;
            lanes.push((rx, tx, offsets));
        }
        let (file, memory) = (Arc::new(file), Arc::new(Offsets(Memory { map })));
        let with = |(rx, tx, offsets)| Queues {
            rx,
            tx,
            offsets,
            file: Arc::clone(&file),
            memory: Arc::clone(&memory),
        };
        Ok((lanes.into_iter().map(with).collect(), last))
    }

    /// Copies a packet into the next transmit buffer and posts it. False: no buffer is free.
    pub fn send(&mut self, packet: &[u8]) -> Result<bool, Error> {
        if packet.len() > self.tx.buffer as usize {
            let (len, most) = (packet.len(), self.tx.buffer);
            let text = format!("a packet of {len} bytes does not fit into a buffer of {most}");
            return Err(Error::Invalid(text));
        }
        let Some(place) = self.tx.place() else {
            return Ok(false);
        };
        self.memory.write(place, packet).map_err(outside)?;
        let len = u32::try_from(packet.len()).unwrap_or(0);
        self.tx.post(place, len)?;
        Ok(true)
    }

    /// Posts the next transmit buffer with `len` bytes, of which these are the first. Returns its
    /// place.
    pub fn post(&mut self, bytes: &[u8], len: usize, flags: u32) -> Result<u64, Error> {
        let room = self.tx.buffer as usize;
        let place = self
            .tx
            .place()
            .filter(|_| bytes.len() <= len && len <= room);
        let place = place.ok_or_else(|| {
            let text = format!("there is no buffer for {len} bytes");
            Error::Invalid(text)
        })?;
        self.memory.write(place, bytes).map_err(outside)?;
        let len = u32::try_from(len).unwrap_or(0);
        self.tx.post_with(place, len, flags)?;
        Ok(place)
    }

    /// Copies bytes of a transmit buffer, from a place in it on. Beyond the memory there are none.
    pub fn copy(&self, place: u64, to: &mut [u8]) {
        let _ = self.memory.read(place, to);
    }

    /// Keeps all of it in memory.
    pub fn lock(&self) -> Result<(), Error> {
        self.memory.0.map.lock().map_err(|error| {
            let number = error.raw_os_error().unwrap_or(0);
            Error::Host("mlock", Errno::from_raw_os_error(number))
        })
    }

    /// Copies the next received packet, and posts its buffer again. At most `to.len()` bytes are
    /// copied; the result is the packet's length.
    pub fn receive(&mut self, to: &mut [u8]) -> Result<Option<usize>, Error> {
        let Some(returned) = self.rx.take()? else {
            return Ok(None);
        };
        let len = returned.used as usize;
        let part = to.len().min(len);
        let part = to.get_mut(..part).unwrap_or_default();
        self.memory.read(returned.cookie, part).map_err(outside)?;
        self.rx.post_next()?;
        Ok(Some(len))
    }

    /// Copies a packet into transmit buffers and posts them: several where `more`, the flag of one
    /// after which another follows, is not 0. False: not enough are free.
    pub fn put(&mut self, content: &Content<'_>, flags: u32, more: u32) -> Result<bool, Put> {
        self.put_in(None, content, flags, more)
    }

    /// Number of buffers that a packet of `len` bytes takes.
    pub fn buffers(&self, len: usize) -> usize {
        len.div_ceil((self.tx.buffer as usize).max(1)).max(1)
    }

    /// Puts a packet into the transmit buffers, or into these places of another memory, one for
    /// each buffer, whose addresses are those from [`base`] 1 on.
    pub fn put_in(
        &mut self,
        places: Option<(&dyn MemoryContext, &[u64])>,
        content: &Content<'_>,
        flags: u32,
        more: u32,
    ) -> Result<bool, Put> {
        let size = (self.tx.buffer as usize).max(1);
        let number = u32::try_from(self.buffers(content.len())).unwrap_or(u32::MAX);
        if number > self.tx.count || (number > 1 && more == 0) {
            let len = content.len();
            let text = format!("a packet of {len} bytes does not fit into a buffer of {size}");
            return Err(Put::Failed(Error::Invalid(text)));
        }
        if self.tx.north.room() < number {
            return Ok(false);
        }
        // All of it is there before the device sees any of it.
        for (index, at) in (0..content.len()).step_by(size).enumerate() {
            let len = size.min(content.len() - at);
            let copied = match places {
                None => {
                    let place = self.tx.place_of(self.tx.posted + index as u64);
                    content.copy_to(at, len, (&*self.memory, place))
                }
                Some((memory, places)) => {
                    let place = places.get(index).copied().unwrap_or(u64::MAX);
                    content.copy_to(at, len, (memory, place))
                }
            };
            copied.map_err(|missing| Put::Broken(missing.into()))?;
        }
        let (mut left, mut flags) = (content.len(), flags & !more);
        for index in 1..=number {
            let len = left.min(size);
            let place = match places {
                None => self.tx.place_of(self.tx.posted),
                Some((_, places)) => base(1) + places.get(index as usize - 1).copied().unwrap_or(0),
            };
            let goes_on = index < number;
            let slot = self.tx.slot(self.tx.posted);
            if let Some(place) = self.tx.more.get_mut(slot) {
                *place = goes_on;
            }
            let all = flags | if goes_on { more } else { 0 };
            let bytes = u32::try_from(len).unwrap_or(0);
            let posted = self.tx.post_with(place, bytes, all);
            posted.map_err(Put::Failed)?;
            (left, flags) = (left - len, 0);
        }
        Ok(true)
    }

    /// Takes parts of the next received packet, until it is whole: true. Their buffers stay with
    /// the caller until [`Lane::post_next`] has posted them again.
    pub fn collect(&mut self, parts: &mut Parts, most: usize, more: u32) -> Result<bool, Error> {
        while !parts.is_whole() {
            let Some(returned) = self.rx.take()? else {
                return Ok(false);
            };
            let place = Place {
                ptr: returned.cookie,
                len: returned.used,
                flags: returned.flags,
            };
            let pushed = parts.push(place, most, more);
            pushed.map_err(|why| Error::Protocol(why.to_string()))?;
            let last = self.rx.stale == 1;
            self.rx.old = self.rx.stale > 0;
            self.rx.stale = self.rx.stale.saturating_sub(1);
            // The rest of it never comes: the device has ended amid this packet.
            if last && !parts.is_whole() {
                self.forget(parts)?;
            }
        }
        Ok(true)
    }

    /// Posts the buffers of a received packet again.
    pub fn forget(&mut self, parts: &mut Parts) -> Result<(), Error> {
        parts.clear();
        while self.rx.post_next()? {}
        Ok(())
    }

    /// Before another south attaches, and when all that came back was taken: a packet of which the
    /// last one has given back a part and not all cannot be distinguished from a new one, and is
    /// emptied.
    pub fn mend(&mut self) {
        let outstanding = self.tx.north.outstanding();
        let first = self.tx.posted - u64::from(outstanding);
        let (mut amid, mut number) = (self.tx.amid, 0);
        while amid && number < outstanding {
            let slot = self.tx.slot(first + u64::from(number));
            amid = self.tx.more.get(slot).is_some_and(|more| *more);
            self.tx.north.empty(number);
            if let Some(more) = self.tx.more.get_mut(slot) {
                *more = false;
            }
            number += 1;
        }
        self.tx.amid = false;
    }

    /// Empties all packets, before a south attaches that would not understand them.
    pub fn empty(&mut self) {
        for number in 0..self.tx.north.outstanding() {
            self.tx.north.empty(number);
        }
        self.tx.more.fill(false);
        self.tx.amid = false;
    }

    /// Another south has attached and passes nothing on yet: what came back is from the one before.
    pub fn attached(&mut self, parts: &mut Parts) -> Result<(), Error> {
        self.rx.stale = self.rx.north.returned();
        if self.rx.stale == 0 && !parts.is_whole() {
            self.forget(parts)?;
        }
        Ok(())
    }

    /// After that: what came back from the south before is forgotten.
    pub fn forget_all(&mut self, parts: &mut Parts) -> Result<(), Error> {
        for _ in 0..std::mem::take(&mut self.rx.stale) {
            self.rx.take()?;
        }
        self.forget(parts)
    }

    /// Whether the device has broken the protocol: then nothing more is posted or taken.
    pub fn is_broken(&self) -> bool {
        [&self.rx, &self.tx].into_iter().any(Lane::is_broken)
    }

    /// The memory, where packets lie.
    pub fn memory(&self) -> &dyn MemoryContext {
        &*self.memory
    }
}

/// A buffer is not in the memory, which holds for none of them.
fn outside(why: Outside) -> Error {
    Error::Invalid(why.to_string())
}

/// Why a packet was not posted.
#[derive(Debug)]
pub enum Put {
    /// It is in another client's memory, and that client has broken the protocol.
    Broken(Culprit),
    /// This client cannot.
    Failed(Error),
}

impl Lane {
    /// The descriptor of the posted buffer with this number.
    fn slot(&self, number: u64) -> usize {
        usize::try_from(number % u64::from(self.count)).unwrap_or(0)
    }

    /// The place of the posted buffer with this number.
    fn place_of(&self, number: u64) -> u64 {
        self.first + number % u64::from(self.count) * u64::from(self.buffer)
    }

    /// The next free buffer.
    fn place(&self) -> Option<u64> {
        if self.north.room() == 0 {
            return None;
        }
        Some(self.place_of(self.posted))
    }

    fn post(&mut self, ptr: u64, len: u32) -> Result<(), Error> {
        self.post_with(ptr, len, 0)
    }

    fn post_with(&mut self, ptr: u64, len: u32, flags: u32) -> Result<(), Error> {
        let buffer = Buffer {
            cookie: ptr,
            ptr,
            len,
            flags,
        };
        match self.north.post(buffer) {
            Ok(()) => {
                self.posted += 1;
                Ok(())
            }
            Err(Refused::Full) => Ok(()),
            Err(Refused::Breach(breach)) => Err(Error::Breach(breach)),
        }
    }

    /// Posts an empty buffer, if one is free.
    pub fn post_next(&mut self) -> Result<bool, Error> {
        match self.place() {
            Some(place) => self.post(place, self.buffer).map(|()| true),
            None => Ok(false),
        }
    }

    /// Takes the oldest buffer, if it came back.
    pub fn take(&mut self) -> Result<Option<Returned>, Error> {
        let number = self.posted - u64::from(self.north.outstanding());
        let returned = self.north.take().map_err(Error::Breach)?;
        if returned.is_some() {
            self.amid = self.more.get(self.slot(number)).is_some_and(|more| *more);
        }
        Ok(returned)
    }

    /// Whether more of its packet follows the last one that came back.
    pub fn is_amid(&self) -> bool {
        self.amid
    }

    /// Whether a buffer came back.
    pub fn ready(&self) -> bool {
        self.north.ready()
    }

    fn is_broken(&self) -> bool {
        self.north.breach().is_some()
    }

    /// Free buffers.
    pub fn room(&self) -> u32 {
        self.north.room()
    }

    /// Buffers that the device has.
    pub fn outstanding(&self) -> u32 {
        self.north.outstanding()
    }

    /// Whether the device must be notified of what was posted.
    pub fn inject(&self) -> bool {
        self.to_south.inject()
    }

    /// Asks for a notification. False: something came before.
    pub fn rest(&self) -> bool {
        self.to_north.rest() == Left::Nothing && !self.north.ready()
    }

    /// Needs no notification: the client looks by itself.
    pub fn watch(&self) {
        self.to_north.disable();
        self.to_north.look();
    }
}

#[cfg(test)]
#[path = "queues_tests.rs"]
mod tests;
