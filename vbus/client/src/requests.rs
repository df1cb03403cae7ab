// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection to a disk on the bus, with several requests at a time.

use crate::control::Error;
use crate::link::{Link, Options};
use crate::queues::Queues;
use paravane_vbus::Event;
use paravane_vbus::devices::TX;
use paravane_vbus::devices::block::{self, GEOMETRY, Geometry};
use paravane_vbus_protocol::Shared;
use paravane_vbus_shm::layout::{self, BlockRequest};
use std::collections::VecDeque;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Bytes of a sector, in which everything is counted.
pub const SECTOR: usize = 512;
const _: () = assert!(SECTOR as u64 == block::SECTOR);
/// Most bytes of a request.
pub const PART: usize = 64 << 10;
/// Descriptors of a request: one for the header, one for the data.
const DESCRIPTORS: u32 = 2;
/// Descriptors of the receive queue, which a disk does not have.
const NONE: u32 = 1;
const HEADER: usize = size_of::<BlockRequest>();

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub enum Wish<'a> {
    /// To read bytes from a sector on, at most [`PART`].
    Read(u64, usize),
    /// To write bytes from a sector on.
    Write(u64, &'a [u8]),
    /// Makes all written data survive a power failure.
    Flush,
}

/// A request that the disk has done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The number that it was given.
    pub number: u64,
    /// Whether the disk could do it.
    pub done: bool,
    /// Bytes that were read.
    pub read: usize,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    number: u64,
    /// Places of its header and its data, and the bytes to read.
    header: u64,
    data: u64,
    read: usize,
    /// Descriptors that have not come back.
    left: u32,
}

/// A connection to a disk. Its memory is its own: after its end, the disk writes to no memory of
/// another connection.
#[derive(Debug)]
pub struct Requests {
    options: Options,
    link: Link,
    queues: Queues,
    geometry: Geometry,
    /// The oldest first; at most as many as there are descriptors.
    pending: VecDeque<Pending>,
}

impl Requests {
    /// Joins a bus and opens a disk on it, for this number of requests at a time: a power of two.
    ///
    /// # Errors
    /// vbusd cannot be reached or refuses, or the device is no disk.
    pub fn connect(socket: &Path, bus: &str, device: &str, depth: u32) -> Result<Self, Error> {
        let options = Options {
            socket: socket.to_path_buf(),
            bus: bus.to_string(),
            device: device.to_string(),
            count: depth.saturating_mul(DESCRIPTORS),
            buffer: u32::try_from(PART).unwrap_or(u32::MAX),
        };
        Requests::open(options)
    }

    /// Another connection to the same disk, without the requests of this one.
    ///
    /// # Errors
    /// As those of [`Requests::connect`].
    pub fn again(&self) -> Result<Self, Error> {
        Requests::open(self.options.clone())
    }

    fn open(options: Options) -> Result<Self, Error> {
        let queues = Queues::new([NONE, options.count], options.buffer)?;
        let shared = Shared {
            queue: TX,
            offset: queues.offsets[1],
            count: options.count,
        };
        let mut link = Link::open(&options, queues.file.as_fd(), &[shared])?;
        let found = &link.interface.interface;
        if found != block::TYPE {
            let text = format!("the device is no disk: its type is {found:.40}");
            return Err(Error::Invalid(text));
        }
        let call = u32::try_from(layout::VBUS_BLOCK_GEOMETRY).unwrap_or(u32::MAX);
        let geometry = link.call(call, &[])?;
        let wrong = || Error::Protocol(format!("{} bytes are no geometry", geometry.len()));
        let whole = geometry.get(..GEOMETRY).ok_or_else(wrong)?;
        let geometry = Geometry::decode(whole).ok_or_else(wrong)?;
        // All that it will ever need.
        let pending = VecDeque::with_capacity(options.count as usize);
        Ok(Requests {
            options,
            link,
            queues,
            geometry,
            pending,
        })
    }

    /// What disk it is.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Whether there is room for a request.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.queues.tx.room() >= DESCRIPTORS
    }

    /// Posts a request, with a number. It is seen after [`Requests::flush`] at the latest.
    ///
    /// # Errors
    /// There is no room, the data is no whole sectors or more than [`PART`], or the device broke
    /// the protocol.
    pub fn post(&mut self, number: u64, wish: Wish<'_>) -> Result<(), Error> {
        let (operation, sector, len, bytes) = match wish {
            Wish::Read(sector, len) => (layout::VBUS_BLOCK_READ, sector, len, &[][..]),
            Wish::Write(sector, from) => (layout::VBUS_BLOCK_WRITE, sector, from.len(), from),
            Wish::Flush => (layout::VBUS_BLOCK_FLUSH, 0, 0, &[][..]),
        };
        if !self.has_room() || len > PART || !len.is_multiple_of(SECTOR) {
            let text = format!("there is no room for a request of {len} bytes");
            return Err(Error::Invalid(text));
        }
        let header = header(operation, sector, (len / SECTOR) as u64);
        let more = u32::try_from(layout::VBUS_BLOCK_MORE).unwrap_or(1);
        let flags = if len > 0 { more } else { 0 };
        let header = self.queues.post(&header, HEADER, flags)?;
        let mut pending = Pending {
            number,
            header,
            data: header,
            read: 0,
            left: 1,
        };
        if len > 0 {
            pending.data = self.queues.post(bytes, len, 0)?;
            pending.left = DESCRIPTORS;
            pending.read = len - bytes.len();
        }
        self.pending.push_back(pending);
        Ok(())
    }

    /// Notifies the device of what was posted, if it sleeps.
    pub fn flush(&self) {
        if self.queues.tx.inject() {
            self.link.notify();
        }
    }

    /// The next request that is done, in the order in which they were posted. Copies the data that
    /// it has read to `to`, as far as there is room.
    ///
    /// # Errors
    /// The device broke the protocol.
    pub fn finished(&mut self, to: &mut [u8]) -> Result<Option<Finished>, Error> {
        let Some(oldest) = self.pending.front_mut() else {
            return Ok(None);
        };
        while oldest.left > 0 {
            if self.queues.tx.take()?.is_none() {
                return Ok(None);
            }
            oldest.left -= 1;
        }
        let one = *oldest;
        self.pending.pop_front();
        let mut status = [0; 4];
        let at = one.header + offset_of!(BlockRequest, status) as u64;
        self.queues.copy(at, &mut status);
        let done = u64::from(u32::from_le_bytes(status)) == layout::VBUS_BLOCK_DONE;
        let read = if done { one.read.min(to.len()) } else { 0 };
        self.queues
            .copy(one.data, to.get_mut(..read).unwrap_or_default());
        Ok(Some(Finished {
            number: one.number,
            done,
            read,
        }))
    }

    /// Requests under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Asks for a notification on [`Requests::files`]. False: a request is done, or an event came,
    /// and the caller does not wait.
    #[must_use]
    pub fn rest(&self) -> bool {
        !self.link.control.has_event() && self.queues.tx.rest()
    }

    /// Works again after [`Requests::rest`]: there is no need to be notified.
    pub fn watch(&self) {
        self.queues.tx.watch();
    }

    /// The files that become readable after [`Requests::rest`]: for notifications, which
    /// [`Requests::drain`] takes, and for events.
    #[must_use]
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        self.link.files()
    }

    /// Takes the notifications from the socket.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn drain(&self) -> Result<(), Error> {
        self.link.drain()
    }

    /// The next event of the bus, if one has come.
    ///
    /// # Errors
    /// [`Error::Lost`]: this connection was closed, or vbusd has ended.
    pub fn event(&mut self) -> Result<Option<Event>, Error> {
        Ok(self.link.event()?.map(|(event, _)| event))
    }
}

fn header(operation: u64, sector: u64, sectors: u64) -> [u8; HEADER] {
    let word = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
    let mut header = [0; HEADER];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = header.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(offset_of!(BlockRequest, operation), &word(operation));
    put(offset_of!(BlockRequest, sector), &sector.to_le_bytes());
    put(offset_of!(BlockRequest, sectors), &word(sectors));
    header
}
