// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's end of a connection that keeps the rules until the test makes it break them.

use crate::common::{Bell, Memory, buffer};
use paravane_fuzz::Input;
use paravane_vbus::{
    ConnectionId, Endpoint, Error, Kind, MemberId, MemoryContext, Name, Region, Vbus,
};
use paravane_vbus_shm::Role;
use paravane_vbus_shm::memory::{Queue, size};
use paravane_vbus_shm::north::{Buffer, North, Posted};
use paravane_vbus_shm::signal::Side;
use std::mem::offset_of;
use std::sync::Arc;

pub type Mac = [u8; 6];

pub const COUNT: u32 = 8;
/// Bytes that no step lets a device write, and after them the rings and buffers.
const CANARY: usize = 0x1000;
pub const RX: u64 = 0x1000;
pub const TX: u64 = 0x2000;
const BUFFERS: [u64; 2] = [0x3000, 0x5000];
const BUFFER: usize = 0x400;
const MEMORY: usize = 0x8000;

/// Begins what a frame carries. No other step writes it.
const MAGIC: [u8; 8] = *b"\x91vbus-fz";
const HEADER: usize = 14;
const FRAME: usize = HEADER + 8 + 1 + 6 + 8 + 8 + 4;

/// FNV-1a.
fn sum(bytes: &[u8]) -> [u8; 4] {
    let hash = bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    hash.to_le_bytes()
}

/// Where a frame is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub device: u8,
    pub mac: Mac,
    pub id: u64,
    /// Counted by its sender.
    pub number: u64,
}

impl Frame {
    pub fn encode(&self, to: Mac, from: Mac) -> Vec<u8> {
        let [id, number] = [self.id, self.number].map(u64::to_le_bytes);
        let parts = [
            &to[..],
            &from,
            &[8, 0],
            &MAGIC,
            &[self.device],
            &self.mac,
            &id,
            &number,
        ];
        let frame = parts.concat();
        let sum = sum(&frame[6..]);
        [&frame[..], &sum].concat()
    }

    /// With the address that it says it is from.
    pub fn decode(bytes: &[u8]) -> Option<(Mac, Frame)> {
        let (bytes, after) = bytes.get(..FRAME)?.split_at(FRAME - 4);
        // A client that breaks rules may mix two frames in its memory.
        if sum(&bytes[6..]) != after {
            return None;
        }
        let (header, rest) = bytes.split_at(HEADER);
        let rest = rest.strip_prefix(&MAGIC)?;
        let frame = Frame {
            device: rest[0],
            mac: rest[1..7].try_into().ok()?,
            id: u64::from_le_bytes(rest[7..15].try_into().ok()?),
            number: u64::from_le_bytes(rest[15..].try_into().ok()?),
        };
        Some((header[6..12].try_into().ok()?, frame))
    }
}

struct Lane {
    north: North<'static, Vec<Posted>>,
    to_south: Side<'static>,
    first: u64,
    posted: u64,
}

impl Lane {
    fn new(memory: &Memory, at: u64, role: Role, first: u64) -> Self {
        let start = memory.range().0;
        // SAFETY: within the memory, which the connection keeps longer than its rings.
        let queue: Queue<'static> = unsafe {
            let start = start.add(usize::try_from(at).unwrap());
            Queue::make(start, size(COUNT), COUNT, role)
        }
        .unwrap();
        let posted = vec![Posted::default(); COUNT as usize];
        Lane {
            north: North::begin(queue.ring, role, posted, u32::MAX - 2).unwrap(),
            to_south: queue.to_south,
            first,
            posted: 0,
        }
    }

    fn place(&self) -> u64 {
        self.first + self.posted % u64::from(COUNT) * BUFFER as u64
    }

    /// Refused where the client has broken its own ring.
    fn post(&mut self, buffer: Buffer) {
        self.posted += u64::from(self.north.post(buffer).is_ok());
    }
}

pub struct Conn {
    pub id: ConnectionId,
    pub device: Name,
    pub interface: u32,
    /// Whether its device is a switch.
    switch: bool,
    /// Its address, once it has asked for it.
    pub mac: Option<Mac>,
    /// It has broken a rule.
    pub hostile: bool,
    /// It has posted buffers into which a frame does not fit.
    small: bool,
    /// It takes a frame in several buffers. Those must have one size.
    several: bool,
    /// Frames that it has sent, and the next to come back from an echo.
    sent: u64,
    awaited: u64,
    // These refer to the memory, which is dropped last.
    rx: Lane,
    tx: Lane,
    bell: Arc<Bell>,
    memory: Arc<Memory>,
}

impl Conn {
    pub fn new(id: ConnectionId, device: Name, interface: u32, switch: bool) -> Self {
        let memory = Memory::new(MEMORY);
        memory.write(0, &[0xc5; CANARY]).unwrap();
        Conn {
            id,
            device,
            interface,
            switch,
            mac: None,
            hostile: false,
            small: false,
            several: false,
            sent: 0,
            awaited: 0,
            rx: Lane::new(&memory, RX, Role::Receive, BUFFERS[0]),
            tx: Lane::new(&memory, TX, Role::Transmit, BUFFERS[1]),
            bell: Arc::default(),
            memory,
        }
    }

    /// A queue at this place.
    pub fn endpoint(&self, offset: u64, count: u32, role: Role) -> Result<Endpoint, Error> {
        let (region, memory) = (self.memory.clone(), self.memory.clone());
        let range = offset..offset.saturating_add(size(count) as u64);
        Endpoint::open(region, range, count, role, memory, self.bell.clone())
            .map_err(|error| Error::new(Kind::Broken, error.to_string()))
    }

    /// Shares both queues, and asks a switch for the address and the link.
    pub fn bring_up(&mut self, vbus: &mut Vbus, member: MemberId) {
        for (queue, offset) in [(0, RX), (1, TX)] {
            vbus.share(member, self.id, queue, |role| {
                self.endpoint(offset, COUNT, role)
            })
            .unwrap();
        }
        if self.switch {
            let mac = vbus.call(member, self.id, 2, &[]).unwrap();
            self.called(2, &[], &mac);
            vbus.call(member, self.id, 0, &[]).unwrap();
        }
    }

    /// A call has succeeded.
    pub fn called(&mut self, call: u32, argument: &[u8], result: &[u8]) {
        match call {
            2 => self.mac = Some(result.try_into().unwrap()),
            // The second word of the answer: the capabilities that were agreed on.
            3 => self.several |= result[4..] != [0; 4],
            16 => self.mac = Some(argument.try_into().unwrap()),
            // It may share one ring as two queues.
            18 => self.hostile = true,
            _ => {}
        }
    }

    /// Whether a device may reset it.
    pub fn has_broken_a_rule(&self) -> bool {
        self.hostile || (self.several && self.small)
    }

    /// Posts a few buffers: a device that has more for it must wait soon.
    pub fn post_some(&mut self, vbus: &mut Vbus) {
        for _ in 0..2 {
            self.rx.post(buffer(self.rx.place(), BUFFER));
        }
        if self.rx.to_south.inject() {
            vbus.notified(self.id);
        }
    }

    fn tag(&self) -> u8 {
        self.device.as_str().as_bytes()[0]
    }

    pub fn step(&mut self, vbus: &mut Vbus, macs: &[Mac], input: &mut Input<'_>) {
        // Half of all keep the rules for good.
        let breaks = self.id.0 % 2 == 1;
        match input.u8() % 8 {
            0..3 => {
                let mac = self.mac.unwrap_or([2; 6]);
                let pick = |input: &mut Input<'_>| match input.u8() % 4 {
                    0 => [0xff; 6],
                    1 => mac,
                    _ if macs.is_empty() => [2; 6],
                    _ => input.pick(macs),
                };
                let frame = Frame {
                    device: self.tag(),
                    mac,
                    id: self.id.0,
                    number: self.sent,
                };
                let from = if input.u8().is_multiple_of(4) {
                    pick(input)
                } else {
                    mac
                };
                let to = pick(input);
                let length = usize::from(input.u8()) * 4 % (BUFFER - FRAME);
                let bytes = [frame.encode(to, from), vec![0x33; length]].concat();
                self.sent += u64::from(self.send(&bytes));
            }
            3 => {
                let length = usize::from(input.u8() % 20);
                let bytes = input.bytes(length);
                self.send(bytes);
            }
            4 => {
                // Fewer than packets: a device must wait.
                for _ in 0..input.u8() % 3 {
                    let length = match input.u8() {
                        0..4 => 0,
                        4..8 => 60,
                        _ => BUFFER,
                    };
                    self.small |= length < BUFFER;
                    if self.rx.north.room() > 0 {
                        self.rx.post(buffer(self.rx.place(), length));
                    }
                }
            }
            5 if breaks => self.descriptor(input),
            6 if breaks => self.scribble(input),
            _ => self.check(),
        }
        if self.tx.to_south.inject() | self.rx.to_south.inject() {
            vbus.notified(self.id);
        }
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        let room = self.tx.north.room() > 0;
        if room {
            let place = self.tx.place();
            self.memory.write(place, bytes).unwrap();
            self.tx.post(buffer(place, bytes.len()));
        }
        room
    }

    /// A buffer anywhere but in the canary.
    fn descriptor(&mut self, input: &mut Input<'_>) {
        self.hostile = true;
        let ptr = match input.u8() % 6 {
            0 => MEMORY as u64 - u64::from(input.u8()),
            1 => u64::MAX - u64::from(input.u16()),
            2 => RX + u64::from(input.u16() & 0x1fff),
            _ => BUFFERS[0] + input.size() % 0x5000,
        };
        let posted = Buffer {
            cookie: self.rx.place(),
            ptr,
            len: input.pick(&[0, 1, 13, 14, 60, 1024, 65_550, 65_551, u32::MAX]),
            flags: input.u32(),
        };
        let lane = if input.u8().is_multiple_of(2) {
            &mut self.rx
        } else {
            &mut self.tx
        };
        if lane.north.room() > 0 {
            lane.post(posted);
        }
    }

    /// Any word of a ring: heads, signals, indices, descriptors.
    fn scribble(&mut self, input: &mut Input<'_>) {
        use paravane_vbus_shm::layout::{Descriptor, Ioq};
        self.hostile = true;
        let ring = input.pick(&[RX, TX]);
        let at = u64::from(input.u16()) * 4 % size(COUNT) as u64;
        let mut value = match input.u8() % 3 {
            0 => input.u32(),
            1 => u32::from(input.u8() % 4),
            _ => (u32::MAX - 2).wrapping_add(u32::from(input.u8() % 16)),
        };
        let first = size_of::<Ioq>() as u64;
        let within = at.wrapping_sub(first) % size_of::<Descriptor>() as u64;
        if at >= first && within == offset_of!(Descriptor, ptr) as u64 {
            // No address below the rings.
            value |= 0x1000;
        }
        self.memory.write(ring + at, &value.to_le_bytes()).unwrap();
    }

    /// Takes what has come, and checks where it is from, and that nothing else was written.
    pub fn check(&mut self) {
        let mut canary = [0; CANARY];
        self.memory.read(0, &mut canary).unwrap();
        assert!(canary == [0xc5; CANARY], "written where no buffer lies");
        // A client that has broken its ring may find a breach there.
        while let Ok(Some(_)) = self.tx.north.take() {}
        while let Ok(Some(returned)) = self.rx.north.take() {
            let mut bytes = vec![0; returned.used as usize];
            if self.memory.read(returned.cookie, &mut bytes).is_err() {
                assert!(self.hostile);
                continue;
            }
            let Some((from, frame)) = Frame::decode(&bytes) else {
                continue;
            };
            assert_eq!(frame.device, self.tag(), "a frame of another device");
            if self.switch {
                assert_eq!(from, frame.mac, "a frame with another's address");
            } else {
                assert_eq!(frame.id, self.id.0, "a frame of another client");
                let lost = frame.number != self.awaited;
                assert!(self.hostile || self.small || !lost, "a frame was lost");
                self.awaited = frame.number + 1;
            }
        }
    }
}

/// The other checks rely on this.
#[test]
fn frames_say_where_they_are_from() {
    let frame = Frame {
        device: 2,
        mac: [2, 0, 0, 0, 0, 1],
        id: 7,
        number: 9,
    };
    let bytes = frame.encode([0xff; 6], frame.mac);
    assert_eq!(Frame::decode(&bytes), Some((frame.mac, frame)));
    assert_eq!(Frame::decode(&bytes[..48]), None);
}
