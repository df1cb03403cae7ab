// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device's end of a queue: a ring, its signals, the client's memory, and notifications.

use crate::content::{Content, Culprit, Parts};
use crate::limits;
use crate::memory::{MemoryContext, Outside, Region};
use paravane_vbus_shm::memory::Queue;
use paravane_vbus_shm::signal::{Left, Side};
use paravane_vbus_shm::south::{Place, South};
use paravane_vbus_shm::{Breach, Role};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Notifies a client: an eventfd, or an interrupt.
pub trait Notify: Send + Sync {
    /// Makes the client look at its queues. Does not wait.
    fn notify(&self);

    /// Which queues it looks at: those of its connection with the same number.
    fn group(&self) -> u64 {
        0
    }
}

/// A client broke the protocol of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A rule of the ring.
    Ring(Breach),
    /// A buffer outside of its memory.
    Memory(Outside),
    /// A packet longer than the device takes.
    Long(u32),
    /// A packet whose parts are not what its beginning says.
    Parts,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Ring(breach) => breach.fmt(f),
            Broken::Memory(outside) => outside.fmt(f),
            Broken::Long(len) => write!(f, "a packet of {len} bytes is too long"),
            Broken::Parts => f.write_str("the parts of a packet do not belong together"),
        }
    }
}

/// The outcome of a packet for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is in the client's buffer.
    Yes,
    /// The client has posted no buffer.
    NoBuffer,
    /// The client's next buffer is too small. It is returned empty.
    TooLong,
}

/// What happened on a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets.
    pub packets: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Notifications to the client.
    pub notified: u64,
    /// Times that a notification was not needed.
    pub quiet: u64,
}

/// The device's end of a queue.
pub struct Endpoint {
    // These refer to the region, which is dropped last.
    south: South<'static>,
    to_north: Side<'static>,
    to_south: Side<'static>,
    memory: Arc<dyn MemoryContext>,
    notify: Arc<dyn Notify>,
    /// Packets were passed on since the last signal.
    news: bool,
    /// Bytes of a packet of which more parts follow, and its flags.
    gathered: Option<(usize, u32)>,
    /// Buffers that the next packet for the client takes, if it has posted too few.
    wanted: u32,
    /// What was counted.
    pub statistics: Statistics,
    _region: Arc<dyn Region>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.south, self.statistics)
    }
}

impl Endpoint {
    /// Opens a queue in `range` of the region, which its client has made.
    ///
    /// # Errors
    /// The memory does not have such a queue.
    pub fn open(
        region: Arc<dyn Region>,
        range: Range<u64>,
        count: u32,
        role: Role,
        memory: Arc<dyn MemoryContext>,
        notify: Arc<dyn Notify>,
    ) -> Result<Self, Broken> {
        let (start, size) = region.range();
        let len = range.end.saturating_sub(range.start);
        let outside = Broken::Memory(Outside {
            ptr: range.start,
            len: usize::try_from(len).unwrap_or(usize::MAX),
        });
        let first = usize::try_from(range.start).map_err(|_| outside)?;
        let len = usize::try_from(len).map_err(|_| outside)?;
        if first.checked_add(len).is_none_or(|end| end > size) {
            return Err(outside);
        }
        // SAFETY: the range is within the region, which stays mapped while `_region` lives, and
        // the references go with this value. A region is accessed atomically.
        let queue: Queue<'static> =
            unsafe { Queue::open(start.add(first), len, count, role) }.map_err(Broken::Ring)?;
        let south = South::attach(queue.ring, role).map_err(Broken::Ring)?;
        // A device that had the queue before may have died before it notified.
        notify.notify();
        Ok(Endpoint {
            south,
            to_north: queue.to_north,
            to_south: queue.to_south,
            memory,
            notify,
            news: false,
            gathered: None,
            wanted: 1,
            statistics: Statistics::default(),
            _region: region,
        })
    }

    /// Copies the next packet of the client, and returns its flags. It must be
    /// [completed](Endpoint::complete).
    ///
    /// # Errors
    /// The client broke the protocol.
    pub fn packet(&mut self, to: &mut Vec<u8>, most: usize) -> Result<Option<u32>, Broken> {
        let Some(place) = self.south.take().map_err(Broken::Ring)? else {
            return Ok(None);
        };
        let len = place.len as usize;
        if len > most {
            return Err(Broken::Long(place.len));
        }
        to.resize(len, 0);
        self.memory.read(place.ptr, to).map_err(Broken::Memory)?;
        Ok(Some(place.flags))
    }

    /// As [`packet`](Endpoint::packet), for clients that may use several descriptors for a packet:
    /// `more` is the flag of a descriptor after which another one follows. The flags are those of
    /// the first. Such a descriptor goes back at once. `to` must be the same in each call until a
    /// packet is complete.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub fn gather(
        &mut self,
        to: &mut Vec<u8>,
        most: usize,
        more: u32,
    ) -> Result<Option<u32>, Broken> {
        loop {
            let Some(place) = self.south.take().map_err(Broken::Ring)? else {
                return Ok(None);
            };
            let (start, flags) = self.gathered.take().unwrap_or((0, place.flags & !more));
            let end = start.saturating_add(place.len as usize);
            if end > most {
                return Err(Broken::Long(u32::try_from(end).unwrap_or(u32::MAX)));
            }
            // Only the caller can have made it shorter.
            if start > to.len() {
                return Err(Broken::Parts);
            }
            // Bytes of an earlier packet are overwritten: nothing has to be cleared.
            if end > to.len() {
                to.resize(end, 0);
            }
            let part = to.get_mut(start..end).unwrap_or_default();
            self.memory.read(place.ptr, part).map_err(Broken::Memory)?;
            if place.flags & more == 0 {
                to.truncate(end);
                return Ok(Some(flags));
            }
            // A packet has at least a byte for each part, so the loop ends.
            if place.len == 0 {
                return Err(Broken::Parts);
            }
            self.gathered = Some((end, flags));
            self.south.complete();
            self.news = true;
        }
    }

    /// As [`gather`](Endpoint::gather), but the packet stays where it lies, and all its descriptors
    /// are [given back](Endpoint::give_back) together. `parts` must be the same in each call until
    /// the packet is whole: true. With `more` 0 a packet has one descriptor.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub fn collect(&mut self, parts: &mut Parts, most: usize, more: u32) -> Result<bool, Broken> {
        while !parts.is_whole() {
            let Some(place) = self.south.take().map_err(Broken::Ring)? else {
                // The rest of it will never come: the client has no descriptor left.
                if parts.count() == self.south.count() {
                    return Err(Broken::Parts);
                }
                return Ok(false);
            };
            parts.push(place, most, more)?;
        }
        Ok(true)
    }

    /// The client's memory.
    #[must_use]
    pub fn memory(&self) -> Arc<dyn MemoryContext> {
        Arc::clone(&self.memory)
    }

    /// The next descriptor of the client, whose buffer the device uses where it lies. It must be
    /// [returned](Endpoint::give_back). The device checks the address, and trusts neither the
    /// buffer's content nor that it stays.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub fn next_place(&mut self) -> Result<Option<Place>, Broken> {
        self.south.take().map_err(Broken::Ring)
    }

    /// Copies out of the client's memory.
    ///
    /// # Errors
    /// The client has named a place outside of it.
    pub fn read(&self, ptr: u64, to: &mut [u8]) -> Result<(), Broken> {
        self.memory.read(ptr, to).map_err(Broken::Memory)
    }

    /// Copies into the client's memory.
    ///
    /// # Errors
    /// The client has named a place outside of it.
    pub fn write(&self, ptr: u64, from: &[u8]) -> Result<(), Broken> {
        self.memory.write(ptr, from).map_err(Broken::Memory)
    }

    /// The oldest packet, of `descriptors` descriptors and `len` bytes, was handled: its
    /// descriptors are returned to the client.
    pub fn give_back(&mut self, descriptors: u32, len: usize) {
        let mut given = false;
        for _ in 0..descriptors {
            given |= self.south.complete();
        }
        if given {
            self.count(len);
        }
    }

    /// The client has something to look at besides what goes back to it.
    pub fn tell(&mut self) {
        self.news = true;
    }

    /// The oldest packet was delivered: its buffer goes back to the client.
    pub fn complete(&mut self, len: usize) {
        if self.south.complete() {
            self.count(len);
        }
    }

    /// Copies a packet into the client's next buffer.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub fn send(&mut self, packet: &[u8], flags: u32) -> Result<Sent, Broken> {
        self.scatter(packet, flags, 0)
    }

    /// As [`send`](Endpoint::send), for clients that take a packet in several buffers of one size:
    /// `more` is the flag of one after which another follows.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub fn scatter(&mut self, packet: &[u8], flags: u32, more: u32) -> Result<Sent, Broken> {
        let most = self.south.count();
        let put = self.spread(&Content::of(packet), flags, more, most);
        put.map_err(Culprit::broken)
    }

    /// Copies a packet into buffers of the client, some of it perhaps from another client's memory.
    /// `more` is as for [`scatter`](Endpoint::scatter), or 0 for a client that takes a packet in
    /// one buffer only. A packet that would take more than [`limits::PARTS`] buffers is too long:
    /// for each of them the parts of the other client's packet are looked at.
    ///
    /// # Errors
    /// One of the two broke the protocol. The other client's packet was [checked](Parts::check), or
    /// this client may have got a part of it.
    pub fn put(&mut self, content: &Content<'_>, flags: u32, more: u32) -> Result<Sent, Culprit> {
        let most = u32::try_from(limits::PARTS).unwrap_or(u32::MAX);
        self.spread(content, flags, more, most.min(self.south.count()))
    }

    /// Copies a packet into at most `most` buffers.
    fn spread(
        &mut self,
        content: &Content<'_>,
        flags: u32,
        more: u32,
        most: u32,
    ) -> Result<Sent, Culprit> {
        let ring = |breach| Culprit::Receiver(Broken::Ring(breach));
        let parts = Culprit::Receiver(Broken::Parts);
        let Some(first) = self.south.take().map_err(ring)? else {
            // How many it takes is not known. More may have been too few for another one.
            self.wanted = 1;
            return Ok(Sent::NoBuffer);
        };
        let size = (first.len as usize).max(1);
        // Nothing fits into it, not even the only byte of a packet.
        if first.len == 0 && !content.is_empty() {
            return Ok(self.return_empty(&first));
        }
        let Ok(count) = u32::try_from(content.len().div_ceil(size).max(1)) else {
            return Ok(self.return_empty(&first));
        };
        // Buffers of one client have one size.
        if count > 1 && (more == 0 || count > most) {
            return Ok(self.return_empty(&first));
        }
        if count > 1 && !self.south.has(count) {
            self.wanted = count;
            return Ok(Sent::NoBuffer);
        }
        self.wanted = 1;
        let (mut at, mut flags) = (0, flags & !more);
        for number in 1..=count {
            let Some(place) = self.south.take().map_err(ring)? else {
                return Err(parts);
            };
            let left = content.len() - at;
            let len = left.min(place.len as usize);
            let last = number == count;
            if last != (len == left) {
                return Err(parts);
            }
            content.copy_to(at, len, (&*self.memory, place.ptr))?;
            let used = u32::try_from(len).unwrap_or(u32::MAX);
            self.south
                .fill(&place, used, if last { flags } else { flags | more });
            (at, flags) = (at + len, 0);
        }
        self.count(content.len());
        Ok(Sent::Yes)
    }

    /// Bytes of the client's next buffer, if it has posted one.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub fn next_buffer(&mut self) -> Result<Option<u32>, Broken> {
        let place = self.south.take().map_err(Broken::Ring)?;
        Ok(place.map(|place| place.len))
    }

    /// The index of that buffer, for [`returned`](Endpoint::returned).
    #[must_use]
    pub fn index(&self) -> u32 {
        self.south.index()
    }

    /// Whether the client needs what was in the buffer of this index no more: it has posted the
    /// descriptor again.
    #[must_use]
    pub fn returned(&self, index: u32) -> bool {
        self.south.returned(index)
    }

    fn return_empty(&mut self, place: &Place) -> Sent {
        self.fill(place, 0, 0);
        Sent::TooLong
    }

    /// Returns all posted buffers of the client empty, at most as many as there are descriptors.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub fn flush_buffers(&mut self, most: u32) -> Result<u32, Broken> {
        let mut flushed = 0;
        while flushed < most {
            let Some(place) = self.south.take().map_err(Broken::Ring)? else {
                break;
            };
            self.fill(&place, 0, 0);
            flushed += 1;
        }
        Ok(flushed)
    }

    fn fill(&mut self, place: &Place, used: usize, flags: u32) {
        let used = u32::try_from(used).unwrap_or(u32::MAX);
        if self.south.fill(place, used, flags) {
            self.count(used as usize);
        }
    }

    fn count(&mut self, len: usize) {
        self.statistics.packets += 1;
        self.statistics.bytes += len as u64;
        self.news = true;
    }

    /// Notifies the client of what was passed on, if it has requested that and was not notified
    /// already.
    pub fn signal(&mut self) {
        if self.inject() {
            self.notify.notify();
        }
    }

    /// As [`signal`](Endpoint::signal), but leaves the notification to the caller. True: one is
    /// due, which may serve several queues of a client ([`group`](Endpoint::group)).
    #[must_use]
    pub fn inject(&mut self) -> bool {
        if !std::mem::take(&mut self.news) {
            return false;
        }
        let due = self.to_north.inject();
        let counter = if due {
            &mut self.statistics.notified
        } else {
            &mut self.statistics.quiet
        };
        *counter += 1;
        due
    }

    /// Notifies the client: it looks at all queues of the same [group](Endpoint::group).
    pub fn notify(&self) {
        self.notify.notify();
    }

    /// A notification is for all queues of a connection with the same number.
    pub fn group(&self) -> u64 {
        self.notify.group()
    }

    /// The device begins to look at the queue by itself: the client need not notify it.
    pub fn begin(&self) {
        self.to_south.disable();
        self.to_south.look();
    }

    /// The device looks at the queue once more, and stays notified of what comes later.
    pub fn look(&self) {
        self.to_south.look();
    }

    /// The device has seen an empty queue and wants to be notified. True: there was more in the
    /// meantime, and no notification will come.
    #[must_use]
    pub fn rest(&self) -> bool {
        self.to_south.rest() == Left::More
    }

    /// Whether there is something to take: as many buffers as were too few, if any were.
    #[must_use]
    pub fn ready(&self) -> bool {
        if self.wanted > 1 {
            return self.south.has(self.wanted);
        }
        self.south.ready()
    }
}
