// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's memory: two rings, and a buffer for each of their descriptors.
//!
//! Buffers come back in the order in which they were posted, so the buffer of a descriptor is the
//! one of its number.

use crate::control::Error;
use memmap2::{MmapOptions, MmapRaw};
use paravane_vbus_shm::Role;
use paravane_vbus_shm::memory::{Queue, size};
use paravane_vbus_shm::north::{Buffer, North, Posted, Refused, Returned};
use paravane_vbus_shm::signal::{Left, Side};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

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
}

/// The memory of a connection.
pub struct Queues {
    pub rx: Lane,
    pub tx: Lane,
    pub file: OwnedFd,
    map: MmapRaw,
}

impl std::fmt::Debug for Queues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rx {:?} tx {:?}", self.rx.north, self.tx.north)
    }
}

impl Queues {
    /// Offset of the transmit ring behind a receive ring of so many descriptors.
    pub fn tx_offset(received: u32) -> u64 {
        size(received).next_multiple_of(64) as u64
    }

    /// Memory for a receive ring and a transmit ring of so many descriptors, each with a buffer of
    /// `buffer` bytes.
    pub fn new([received, sent]: [u32; 2], buffer: u32) -> Result<Self, Error> {
        let tx_offset = Queues::tx_offset(received);
        let rings = (tx_offset + size(sent) as u64).next_multiple_of(4096);
        let bytes = |count: u32| u64::from(count) * u64::from(buffer);
        let tx_first = rings + bytes(received);
        let len = tx_first + bytes(sent);
        let host = |what| move |error| Error::Host(what, error);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(c"vbus", flags).map_err(host("memfd_create"))?;
        ftruncate(&file, len).map_err(host("ftruncate"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).map_err(host("seal"))?;
        let too_large = || Error::Invalid(format!("{len} bytes are too much memory"));
        let len = usize::try_from(len).map_err(|_| too_large())?;
        let map = MmapOptions::new().len(len).map_raw(&file);
        let map = map.map_err(|_| too_large())?;
        let lane = |offset: u64, count: u32, role: Role, first: u64| -> Result<Lane, Error> {
            let refused = || Error::Invalid(format!("a queue of {count} is not possible"));
            let offset = usize::try_from(offset).map_err(|_| refused())?;
            let start = NonNull::new(map.as_mut_ptr()).ok_or_else(refused)?;
            // SAFETY: the ring lies within the mapping, which the lanes do not outlive, and all
            // accesses to it are atomic.
            let queue: Queue<'static> =
                unsafe { Queue::make(start.add(offset), len - offset, count, role) }
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
            })
        };
        let rx = lane(0, received, Role::Receive, rings)?;
        let tx = lane(tx_offset, sent, Role::Transmit, tx_first)?;
        Ok(Queues { rx, tx, file, map })
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
        let to = self.at(place);
        // SAFETY: the buffer has `buffer` bytes and lies within the mapping. The device may write
        // it too, to no other effect than a wrong packet.
        unsafe { std::ptr::copy_nonoverlapping(packet.as_ptr(), to, packet.len()) }
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
        // SAFETY: as in `send`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(place), bytes.len()) }
        let len = u32::try_from(len).unwrap_or(0);
        self.tx.post_with(place, len, flags)?;
        Ok(place)
    }

    /// Copies bytes of a transmit buffer, from a place in it on.
    pub fn copy(&self, place: u64, to: &mut [u8]) {
        let end = usize::try_from(place)
            .ok()
            .and_then(|at| at.checked_add(to.len()));
        if end.is_some_and(|end| end <= self.map.len()) {
            // SAFETY: within the mapping. The device may write it meanwhile; then the copy is torn.
            unsafe {
                std::ptr::copy_nonoverlapping(self.at(place), to.as_mut_ptr(), to.len());
            }
        }
    }

    /// Keeps all of it in memory.
    pub fn lock(&self) -> Result<(), Error> {
        self.map.lock().map_err(|error| {
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
        let from = self.at(returned.cookie);
        // SAFETY: `used` is at most the length of the buffer, which lies within the mapping.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), len.min(to.len())) }
        self.rx.post_next()?;
        Ok(Some(len))
    }

    fn at(&self, offset: u64) -> *mut u8 {
        // SAFETY: offsets are those of `place`, within the mapping.
        unsafe {
            self.map
                .as_mut_ptr()
                .add(usize::try_from(offset).unwrap_or(0))
        }
    }
}

impl Lane {
    /// The next free buffer.
    fn place(&self) -> Option<u64> {
        if self.north.room() == 0 {
            return None;
        }
        let number = self.posted % u64::from(self.count);
        Some(self.first + number * u64::from(self.buffer))
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
        self.north.take().map_err(Error::Breach)
    }

    /// Whether a buffer came back.
    pub fn ready(&self) -> bool {
        self.north.ready()
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
