// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that a client shares, and its ends of the rings there.

use super::client::QUEUES;
use crate::memory::Memory;
use paravane_fuzz::Input;
use paravane_vbus::ethernet::{flag, queues};
use paravane_vbus::{MemoryContext, Offsets, Region};
use paravane_vbus_protocol::Shared;
use paravane_vbus_shm::Role;
use paravane_vbus_shm::layout::{Descriptor, Ioq};
use paravane_vbus_shm::memory::{Queue, size};
use paravane_vbus_shm::north::{Buffer, North, Posted};
use paravane_vbus_shm::signal::{Left, Side};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::mem::offset_of;
use std::os::fd::OwnedFd;

const COUNT: u32 = 8;
/// Bytes at both ends that no step lets a card write, also not in the longest frame that begins
/// where a step may place one.
const CANARY: usize = 0x1000;
const RINGS: u64 = 0x1000;
const RING: u64 = 0x400;
const BUFFERS: u64 = 0x4000;
const BUFFER: usize = 0x800;
/// Where the last buffer begins that a step makes.
const LAST: u64 = 0x18000;
pub const MEMORY: usize = 0x30000;
/// The longest frame.
const FRAME: usize = 0x1_0010;
const _: () = assert!(LAST + FRAME as u64 <= (MEMORY - CANARY) as u64);

/// A file for a client's memory: one that is good, or what a client may send instead.
pub fn file(kind: u8) -> OwnedFd {
    if kind == 1 {
        return eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("fuzz", flags).unwrap();
    let length = if kind == 2 { 0 } else { MEMORY as u64 };
    ftruncate(&file, length).unwrap();
    let mut seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    match kind {
        3 => seals.remove(SealFlags::SHRINK),
        4 => seals.insert(SealFlags::FUTURE_WRITE),
        _ => {}
    }
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Whether [`file`] makes a good one.
pub fn is_good(kind: u8) -> bool {
    !(1..=4).contains(&kind)
}

/// The client's own map of its memory.
pub struct Shares(Offsets<Memory>);

impl Shares {
    pub fn new(file: &OwnedFd) -> Self {
        let shares = Shares(Offsets(Memory::map(file).unwrap()));
        for at in Shares::canaries() {
            shares.0.write(at, &[0xc5; CANARY]).unwrap();
        }
        shares
    }

    fn canaries() -> [u64; 2] {
        [0, (MEMORY - CANARY) as u64]
    }

    /// Nothing was written where no buffer lies.
    pub fn check(&self) {
        for at in Shares::canaries() {
            let mut canary = [0; CANARY];
            self.0.read(at, &mut canary).unwrap();
            assert!(canary == [0xc5; CANARY], "written where no buffer lies");
        }
    }

    /// A queue's ring, which must not be used after the memory.
    pub fn lane(&self, queue: u32) -> Lane {
        let transmits = queues::transmits(queue);
        let role = if transmits {
            Role::Transmit
        } else {
            Role::Receive
        };
        let at = usize::try_from(Lane::place(queue).offset).unwrap();
        // SAFETY: within the memory, which a connection keeps as long as its lanes.
        let made: Queue<'static> = unsafe {
            let start = self.0.range().0.add(at);
            Queue::make(start, size(COUNT), COUNT, role)
        }
        .unwrap();
        let posted = vec![Posted::default(); COUNT as usize];
        Lane {
            queue,
            transmits,
            north: North::begin(made.ring, role, posted, u32::MAX - 2).unwrap(),
            to_north: made.to_north,
            to_south: made.to_south,
            posted: 0,
            news: false,
            parts: Vec::new(),
            flags: 0,
        }
    }

    /// Writes any word of a ring: heads, signals, indices, descriptors.
    pub fn scribble(&self, input: &mut Input<'_>) {
        let ring = Lane::place(u32::from(input.u8()) % QUEUES).offset;
        let at = u64::from(input.u16()) * 4 % size(COUNT) as u64;
        let mut value = match input.u8() % 3 {
            0 => input.u32(),
            1 => u32::from(input.u8() % 4),
            _ => (u32::MAX - 2).wrapping_add(u32::from(input.u8() % 16)),
        };
        let first = size_of::<Ioq>() as u64;
        let within = at.wrapping_sub(first) % size_of::<Descriptor>() as u64;
        if at >= first && within == offset_of!(Descriptor, ptr) as u64 {
            // The address is neither below the rings nor after the buffers.
            value = value & 0xffff | 0x1000;
        }
        self.0.write(ring + at, &value.to_le_bytes()).unwrap();
    }
}

/// The client's end of a ring.
pub struct Lane {
    queue: u32,
    transmits: bool,
    north: North<'static, Vec<Posted>>,
    to_north: Side<'static>,
    to_south: Side<'static>,
    posted: u64,
    /// Something was posted since the card was notified last.
    news: bool,
    /// What has come of a frame, and its flags.
    parts: Vec<u8>,
    flags: u32,
}

impl Lane {
    /// Where a queue's ring is.
    pub fn place(queue: u32) -> Shared {
        Shared {
            queue,
            offset: RINGS + RING * u64::from(queue),
            count: COUNT,
        }
    }

    /// The buffer of the next descriptor.
    fn next(&self) -> u64 {
        let slot = u64::from(self.queue * COUNT) + self.posted % u64::from(COUNT);
        BUFFERS + slot * BUFFER as u64
    }

    fn put(&mut self, len: usize, flags: u32) {
        let at = self.next();
        let buffer = Buffer {
            cookie: at,
            ptr: at,
            len: u32::try_from(len).unwrap(),
            flags,
        };
        self.post_one(buffer);
    }

    /// Refused where the client has broken its own ring.
    fn post_one(&mut self, buffer: Buffer) {
        self.news = true;
        self.posted += u64::from(self.north.post(buffer).is_ok());
    }

    /// Posts a frame, in two parts if it is cut after some bytes. False: there is no room.
    pub fn send(&mut self, memory: &Shares, frame: &[u8], cut: usize) -> bool {
        let (head, rest) = frame.split_at(cut);
        let parts = [(head, flag::MORE), (rest, 0)];
        let parts = if cut == 0 { &parts[1..] } else { &parts };
        let room = self.north.room() as usize >= parts.len();
        for (part, flags) in parts.iter().filter(|_| room) {
            memory.0.write(self.next(), part).unwrap();
            self.put(part.len(), *flags);
        }
        room
    }

    /// Posts buffers, as many as there is room for.
    pub fn post(&mut self, count: usize) {
        for _ in 0..count {
            if self.north.room() > 0 {
                self.put(BUFFER, 0);
            }
        }
    }

    /// Posts a buffer anywhere but where the canaries are.
    pub fn descriptor(&mut self, input: &mut Input<'_>) {
        let ptr = match input.u8() % 6 {
            0 => MEMORY as u64 + u64::from(input.u8()),
            1 => u64::MAX - u64::from(input.u16()),
            2 => RINGS + u64::from(input.u16() & 0x1fff),
            _ => BUFFERS + input.size() % (LAST - BUFFERS),
        };
        let buffer = Buffer {
            cookie: self.next(),
            ptr,
            len: input.pick(&[0, 1, 13, 14, 60, 1024, 65_550, 65_551, u32::MAX]),
            flags: input.u32(),
        };
        if self.north.room() > 0 {
            self.post_one(buffer);
        }
    }

    /// Whether the card must be notified of what was posted.
    pub fn inject(&mut self) -> bool {
        std::mem::take(&mut self.news) && self.to_south.inject()
    }

    /// The client sleeps. True: something has come before.
    pub fn rests(&self) -> bool {
        self.to_north.rest() == Left::More
    }

    /// Goes on after it was notified: what has come is taken.
    pub fn begin(&self) {
        self.to_north.look();
    }

    /// Whether all that was posted has come back.
    pub fn is_empty(&self) -> bool {
        self.north.outstanding() == 0
    }

    /// Takes what has come back: frames with their flags.
    pub fn take(&mut self, memory: &Shares) -> Vec<(Vec<u8>, u32)> {
        self.begin();
        let mut all = Vec::new();
        // One that has broken its ring may find a breach there.
        while let Ok(Some(returned)) = self.north.take() {
            let used = returned.used as usize;
            if self.transmits || used > MEMORY {
                continue;
            }
            let mut bytes = vec![0; used];
            if used == 0 || memory.0.read(returned.cookie, &mut bytes).is_err() {
                // A buffer that was flushed, or too small.
                self.parts.clear();
                continue;
            }
            if self.parts.is_empty() {
                self.flags = returned.flags;
            }
            self.parts.extend(bytes);
            if returned.flags & flag::MORE == 0 || self.parts.len() > FRAME {
                all.push((std::mem::take(&mut self.parts), self.flags));
            }
        }
        all
    }
}
