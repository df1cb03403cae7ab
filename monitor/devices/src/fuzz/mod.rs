// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz targets: for each device, a driver that does what the input says.
//!
//! An input is a list of steps: a well-formed request, descriptors and ring entries of any kind,
//! indices that jump, indirect tables, notifications, an event on the host. Whatever the input
//! does, the device must not panic, hang, or write where no descriptor lets it.

mod links;
mod simple;
mod storage;

use super::test_guest::{FREE, Guest, MEMORY};
use super::{Device, Driver, Reactor, Wake};
use paravane_fuzz::Input;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use vm_memory::{Bytes, GuestAddress};

/// The most steps of an input.
const STEPS: usize = 200;
/// Bytes at the end of memory to which no writable descriptor leads.
const CANARY: usize = 64 << 10;
const CANARY_AT: u64 = (MEMORY - CANARY) as u64;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Features of queues: event indices, indirect descriptors, version 1.
const EVENT_IDX: u64 = 1 << 29;
const INDIRECT_DESC: u64 = 1 << 28;
const VERSION_1: u64 = 1 << 32;

/// A request that drivers make: what the device reads, and the sizes of what it may write.
struct Request {
    out: Vec<u8>,
    room: Vec<u32>,
}

/// The steps that a target adds to a driver that knows only queues.
trait Target {
    fn queues(&self) -> usize;
    fn device(&mut self) -> &mut dyn Device;
    /// The next request for a queue.
    fn request(&mut self, queue: usize, input: &mut Input<'_>) -> Request;
    /// A guest for the target.
    fn guest(&self) -> Guest {
        Guest::new(self.queues())
    }
    /// Whether it may change memory to which no descriptor leads.
    fn anywhere(&self) -> bool {
        false
    }
    /// Makes something happen on the host.
    fn host(&mut self, input: &mut Input<'_>);
}

struct Player<'a> {
    guest: Guest,
    driver: Driver,
    target: &'a mut dyn Target,
    features: u64,
    /// Where the next buffers lie.
    free: u64,
    /// No descriptor may lead to the canary.
    canary: bool,
}

fn play(target: &mut dyn Target, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let offered = target.device().features() | EVENT_IDX | INDIRECT_DESC;
    let features = input.u64() & offered | VERSION_1;
    let (guest, anywhere) = (target.guest(), target.anywhere());
    guest
        .memory
        .write_slice(&[0xc5; CANARY], GuestAddress(CANARY_AT))
        .unwrap();
    let mut player = Player {
        driver: guest.driver(features),
        guest,
        target,
        features,
        free: FREE,
        canary: !anywhere,
    };
    player.activate();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        player.step(&mut input);
    }
    player.target.device().reset();
    if player.canary {
        let end = player.guest.get(CANARY_AT, CANARY);
        assert!(end == [0xc5; CANARY], "written where no descriptor leads");
    }
}

impl Player<'_> {
    fn activate(&mut self) {
        self.driver = self.guest.driver(self.features);
        if self.target.device().activate(&mut self.driver).is_err() {
            self.target.device().reset();
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let queue = usize::from(input.u8()) % self.target.queues();
        match input.u8() % 16 {
            0 => {
                let (index, address) = (u16::from(input.u8()), self.address(input));
                let length = u32::try_from(input.size() & 0xffff_ffff).unwrap_or(0);
                let (flags, next) = (
                    input.u16() & 7 | input.u16() & 0xff00,
                    u16::from(input.u8()),
                );
                self.descriptor(queue, index, address, length, flags, next);
            }
            1 => self.guest.bump(queue, u16::from(input.u8() % 8)),
            2 => self.guest.bump(queue, input.u16()),
            3 => self.guest.entry(queue, input.u8().into(), input.u16()),
            4 => {
                // Only memory without descriptors: tables are written by steps that know them.
                let at = FREE + input.size() % (CANARY_AT - FREE - 64);
                self.guest.put(at, input.bytes(64));
            }
            5 => self.indirect(queue, input),
            6 => self.guest.flags(queue, input.u16(), input.u16()),
            7 => self.target.host(input),
            8 => {
                let done = self.target.device().woken(&mut self.driver);
                self.judge(done.is_ok());
            }
            9 | 10 => {
                let done = self.target.device().notified(&mut self.driver, queue);
                self.judge(done.is_ok());
            }
            11 => {
                let (at, bytes) = (usize::from(input.u8()), input.bytes(8));
                self.target.device().write_config(at, bytes);
            }
            _ => {
                self.request(queue, input);
                let done = self.target.device().notified(&mut self.driver, queue);
                self.judge(done.is_ok());
            }
        }
    }

    /// Resets a driver that broke a rule, as a transport does.
    fn judge(&mut self, good: bool) {
        self.driver.end_round();
        if !good {
            self.target.device().reset();
            self.activate();
        }
    }

    fn address(&mut self, input: &mut Input<'_>) -> u64 {
        match input.u8() % 8 {
            0 => input.u64(),
            1 => MEMORY as u64 - u64::from(input.u16()),
            2 => 0x10000 + u64::from(input.u16()) * 4,
            _ => FREE + input.size() % (CANARY_AT - FREE),
        }
    }

    fn descriptor(
        &mut self,
        queue: usize,
        index: u16,
        address: u64,
        length: u32,
        flags: u16,
        next: u16,
    ) {
        let end = address.saturating_add(length.into());
        // An indirect table can lie anywhere, and a ring that is written to can become anything.
        let rings = flags & WRITE != 0 && address < FREE;
        let writes = flags & WRITE != 0 && end > CANARY_AT;
        self.canary &= !rings && !writes && flags & INDIRECT == 0;
        self.guest
            .descriptor(queue, index, address, length, flags, next);
    }

    /// Room for buffers, which wraps around.
    fn place(&mut self, length: usize) -> u64 {
        let length = length as u64 + 64;
        if self.free + length > CANARY_AT {
            self.free = FREE;
        }
        self.free += length;
        self.free - length
    }

    /// A well-formed chain whose parts the input chooses.
    fn request(&mut self, queue: usize, input: &mut Input<'_>) {
        let Request { out, room } = self.target.request(queue, input);
        let mut chain = Vec::new();
        let cut = usize::from(input.u8()).min(out.len());
        for part in [&out[..cut], &out[cut..]] {
            if !part.is_empty() {
                let at = self.place(part.len());
                self.guest.put(at, part);
                chain.push((at, u32::try_from(part.len()).unwrap_or(0), false));
            }
        }
        for size in room {
            let size = size.min(128 << 10);
            let at = self.place(size as usize);
            chain.push((at, size, true));
        }
        if !chain.is_empty() {
            self.guest.offer(queue, &chain);
        }
    }

    /// A descriptor that leads to a table of others.
    fn indirect(&mut self, queue: usize, input: &mut Input<'_>) {
        self.canary = false;
        let count = usize::from(input.u8() % 16);
        let table = self.place(count * 16);
        for index in 0..count as u64 {
            let address = self.address(input);
            let at = table + index * 16;
            self.guest.write(at, address);
            self.guest.write(
                at + 8,
                u32::try_from(input.size() & 0xffff_ffff).unwrap_or(0),
            );
            self.guest.write(at + 12, input.u16() & 7);
            self.guest.write(at + 14, u16::from(input.u8() % 20));
        }
        let length = u32::try_from(count * 16).unwrap_or(0) + u32::from(input.u8() % 3);
        let head = self.guest.offer(queue, &[(table, length, false)]);
        self.guest.descriptor(
            queue,
            head,
            table,
            length,
            INDIRECT | input.u16() & 3,
            input.u16(),
        );
        let done = self.target.device().notified(&mut self.driver, queue);
        self.judge(done.is_ok());
    }
}

struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}

fn start(device: &mut dyn Device) {
    device
        .start(&Reactor::new().unwrap().waker(0, Arc::new(Nobody)))
        .unwrap();
}

fn sizes(input: &mut Input<'_>) -> Vec<u32> {
    let count = input.u8() % 4;
    (0..count)
        .map(|_| u32::try_from(input.size() & 0xffff_ffff).unwrap_or(0))
        .collect()
}

struct Simple<D> {
    device: D,
    queues: usize,
    /// The other end of a stream.
    peer: Option<UnixStream>,
}

impl<D: Device> Target for Simple<D> {
    fn queues(&self) -> usize {
        self.queues
    }

    fn device(&mut self) -> &mut dyn Device {
        &mut self.device
    }

    fn request(&mut self, _: usize, input: &mut Input<'_>) -> Request {
        let length = usize::from(input.u8());
        Request {
            out: input.bytes(length).to_vec(),
            room: sizes(input),
        }
    }

    fn host(&mut self, input: &mut Input<'_>) {
        let Some(peer) = &mut self.peer else { return };
        match input.u8() % 3 {
            0 => drop(peer.read(&mut [0; 4096])),
            1 => drop(peer.write(input.bytes(100))),
            // It hangs up.
            _ => drop(peer.shutdown(std::net::Shutdown::Write)),
        }
    }
}
