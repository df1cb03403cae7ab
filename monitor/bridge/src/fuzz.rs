// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: a driver of a card or console that gives any commands, and writes anything to its
//! rings at any time. vCPUs do a little of the work, in turns with the bridge's thread. The bridge
//! must not panic, hang, or write where no buffer lies. `fuzz_disk` does the same with drivers of
//! disks.

use crate::bridge::KICKED_BUDGET;
use crate::card::{cap, word};
use crate::test_guest::{Ask, BUFFERS, COMMAND, COUNT, DATA, Guest, MEMORY, RINGS};
use crate::{Bridge, Console, Stack, Wire};
use paravane_devices::{Memory, OwnDevice, refused};
use paravane_fuzz::{Input, fuzz};
use paravane_net::link::HEADER;
use paravane_net::user::{Config, Network};
use paravane_net::{Link, MAX_FRAME};
use paravane_vbus_shm::layout;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use vm_memory::{Bytes, GuestAddress};

/// The most steps of an input.
pub const STEPS: usize = 200;
/// Bytes that no step lets the bridge write: all addresses that steps make end below, or have
/// neither of these bits.
const CANARY: u64 = 0x380000;
const BITS: u64 = 0x300000;
const CANARY_SIZE: usize = 0x1000;
/// Steps from this number on, in place of the one that it would be otherwise, are those of vCPUs.
pub const KICKS: u8 = 0xf0;
/// The number of rounds after which no work may be left.
const ROUNDS: usize = 100_000;

#[test]
fn bridge() {
    fuzz("bridge", || |bytes| play(bytes));
}

#[test]
fn frames_never_reach_the_canary() {
    let mut guest = Guest::new(card());
    let canary = Canary::new(&guest.memory);
    guest.up(0);
    for _ in 0..STEPS {
        let more = layout::VBUS_ETHERNET_MORE;
        guest.send(&[(&[0; 30], more), (&[0; 30], 0)]);
        guest.work(1);
        let tx = guest.tx.as_mut().unwrap();
        while tx.north.take().unwrap().is_some() {}
        assert_eq!(tx.north.outstanding(), 0);
    }
    canary.check(&guest.memory);
}

/// The other side of a console or tap.
enum Host {
    Console {
        address: SocketAddr,
        client: Option<UnixStream>,
    },
    Tap {
        end: OwnedFd,
        /// What the guest has asked for.
        caps: u32,
    },
}

impl Host {
    fn step(&mut self, guest: &mut Guest, input: &mut Input<'_>) {
        match self {
            Host::Console { address, client } => console_step(address, client, input),
            Host::Tap { end, caps } => tap_step(end, *caps, guest, input),
        }
    }
}

fn console_step(address: &SocketAddr, client: &mut Option<UnixStream>, input: &mut Input<'_>) {
    match (input.u8() % 4, &mut *client) {
        (0, _) | (_, None) => {
            let new = UnixStream::connect_addr(address).ok();
            *client = new.filter(|client| client.set_nonblocking(true).is_ok());
        }
        (1, Some(client)) => {
            let length = usize::from(input.u16() & 0xfff);
            let _ = client.write(input.bytes(length));
        }
        (2, Some(client)) => drop(client.read(&mut [0; 4096])),
        (_, Some(_)) => *client = None,
    }
}

/// The host's kernel is trusted, but not what it passes on: a frame of any length, which is said to
/// be unfinished in any way. A frame that it gets of the guest is unfinished only as was agreed on.
fn tap_step(end: &OwnedFd, caps: u32, guest: &mut Guest, input: &mut Input<'_>) {
    match input.u8() % 4 {
        0 => {
            let half = |input: &mut Input<'_>| match input.u8() % 4 {
                0 => input.u16(),
                _ => u16::from(input.u8()),
            };
            let flags = [
                input.pick(&[0, 1, 2, 3, 0xff]),
                input.pick(&[0, 1, 1, 3, 0x81, 5]),
            ];
            let rest = [(); 5].map(|()| half(input).to_le_bytes()).concat();
            let length = match input.u8() % 4 {
                0 => usize::from(input.u16()),
                _ => usize::from(input.u8()),
            };
            let seen = input.bytes(64);
            let frame = [seen, &vec![0x77; length]].concat();
            let _ = rustix::io::write(end, &[&flags[..], &rest, &frame].concat());
            guest.bridge.serve(true, 1);
        }
        1 => {
            // In two parts, of which the first says what is unfinished.
            let flags = u64::from(input.u32()) | layout::VBUS_ETHERNET_MORE;
            let length = usize::from(input.u8());
            let frame = input.bytes(length).to_vec();
            if guest.tx.as_ref().is_some_and(|tx| tx.north.room() > 2) {
                guest.send(&[
                    (&frame[..length.min(14).min(frame.len())], flags),
                    (&frame, 0),
                ]);
                guest.bridge.serve(false, 1);
            }
        }
        _ => _ = drain(end, caps),
    }
}

/// Reads what the guest has sent to a tap. Returns how many frames.
fn drain(end: &OwnedFd, caps: u32) -> usize {
    let (mut bytes, mut count) = (vec![0; 1 << 17], 0);
    while let Ok(length @ 1..) = rustix::io::read(end, &mut bytes[..]) {
        assert!(length > HEADER, "a frame without bytes");
        assert!(length <= HEADER + MAX_FRAME, "a frame that is too long");
        let has = |cap: u32| caps & cap == cap;
        assert!(
            bytes[0] & 1 == 0 || has(cap::CSUM),
            "a checksum is left out"
        );
        let long = match bytes[1] {
            0 => 0,
            1 => cap::TSO4,
            4 => cap::TSO6,
            other => unreachable!("frames of kind {other}"),
        };
        assert!(has(long), "a segment is too long");
        count += 1;
    }
    count
}

/// Posts frames, as long as there is room.
fn post(guest: &mut Guest, count: usize) {
    for _ in 0..count {
        if guest.tx.as_ref().is_some_and(|tx| tx.north.room() > 2) {
            guest.send(&[(&[7; 60], 0)]);
        }
    }
}

/// A vCPU notifies the bridge and does a little of the work. The thread does the rest, at once,
/// later, or in turns with further vCPUs.
pub fn kick(guest: &mut Guest, input: &mut Input<'_>) {
    let how = input.u8();
    post(guest, usize::from(how % 8));
    let left = guest
        .bridge
        .kicked(input.pick(&[1, 1, 1, 0, 2, u32::MAX]))
        .left;
    match how >> 6 {
        0 => {}
        1 => _ = guest.bridge.serve(false, left),
        2 => _ = guest.bridge.serve(true, left),
        _ => settle(guest, left),
    }
}

/// The thread and vCPUs take turns until nothing is left.
fn settle(guest: &mut Guest, mut left: u32) {
    for _ in 0..ROUNDS {
        left = guest.bridge.serve(false, left);
        if left == 0 {
            return;
        }
        left = guest.bridge.kicked(left).left;
    }
    unreachable!("the work has no end");
}

/// A vCPU of a guest that keeps the rules: it passes on a few frames, and what it leaves is known.
/// None is lost, and all descriptors come back.
fn few(guest: &mut Guest, end: &OwnedFd, caps: u32, count: usize) {
    let back = |guest: &mut Guest| {
        let tx = guest.tx.as_mut().unwrap();
        while tx.north.take().unwrap().is_some() {}
        tx.north.outstanding()
    };
    settle(guest, 1);
    while drain(end, caps) > 0 {
        // The socket was full.
        guest.bridge.serve(true, 1);
        settle(guest, 1);
    }
    assert_eq!(back(guest), 0, "frames stay");
    post(guest, count);
    let left = guest.bridge.kicked(1).left;
    let some = drain(end, caps);
    assert!(some <= KICKED_BUDGET as usize, "a vCPU does too much");
    assert!(some == count || left != 0, "the rest is nobody's");
    settle(guest, left);
    assert_eq!(some + drain(end, caps), count);
    assert_eq!(back(guest), 0, "frames stay");
}

/// A bridge with a card on what looks like a tap.
fn tap() -> (Bridge, Host) {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, end) = socketpair(kind.0, kind.1, SocketFlags::NONBLOCK, None).unwrap();
    let card = Wire::new(Link::reads(ours, 1500).unwrap(), [2, 0, 0, 0, 0, 7]);
    (Bridge::wire(card).unwrap(), Host::Tap { end, caps: 0 })
}

/// A bridge with a card.
fn card() -> Bridge {
    let config = Config {
        // Every address is inside, so the guest reaches nothing.
        prefix: 0,
        ..Config::default()
    };
    let network = Network::new(config).unwrap();
    let stack = Stack::new(network, [2, 0, 0, 0, 0, 7]);
    Bridge::stack(stack).unwrap()
}

/// A bridge with a console.
fn console() -> (Bridge, Host) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("paravane-fuzz-{}-{number}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let bridge = Bridge::console(Console::new(listener).unwrap()).unwrap();
    let host = Host::Console {
        address,
        client: None,
    };
    (bridge, host)
}

fn play(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let begin = input.u8();
    let (bridge, mut host) = if begin & 0x80 != 0 {
        let (bridge, host) = console();
        (bridge, Some(host))
    } else if begin & 0x20 != 0 {
        let (bridge, host) = tap();
        (bridge, Some(host))
    } else {
        (card(), None)
    };
    let mut guest = Guest::new(bridge);
    let canary = Canary::new(&guest.memory);
    if begin & 3 != 0 {
        // Also those that no card has.
        let caps = input.u8();
        if let Some(Host::Tap { caps: agreed, .. }) = &mut host {
            *agreed = u32::from(caps);
        }
        let caps = u64::from(caps);
        if let Some(Host::Console { .. }) = host {
            guest.up_console();
        } else if begin & 0x40 != 0 {
            guest.up_pairs(caps, 2);
            guest.events.as_mut().unwrap().post(2, 16);
        } else {
            guest.up(caps);
        }
        guest.post(8, 64);
        if let Some(host @ Host::Tap { .. }) = &mut host {
            // Before a command may agree on something else.
            for _ in 0..input.u8() % 8 {
                host.step(&mut guest, &mut input);
            }
        }
    }
    // As long as the guest has kept the rules.
    let mut honest = begin & 3 != 0;
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let number = input.u8();
        honest &= number >= KICKS || number % 11 > 5;
        honest &= guest.counters.resets.load(Ordering::Relaxed) == 0;
        if number >= KICKS {
            match &host {
                Some(Host::Tap { end, caps }) if honest && number & 1 != 0 => {
                    few(&mut guest, end, *caps, usize::from(input.u8() % 9));
                }
                _ => kick(&mut guest, &mut input),
            }
            continue;
        }
        match number % 11 {
            10 => match &mut host {
                Some(host) => host.step(&mut guest, &mut input),
                None => drop(guest.bridge.serve(true, 1)),
            },
            kind => {
                if let (Some(Host::Tap { caps, .. }), 0..4) = (&mut host, kind) {
                    // A command may agree on others.
                    *caps = u32::MAX;
                }
                step(&mut guest, &mut input, kind);
            }
        }
    }
    canary.check(&guest.memory);
}

/// Bytes that no driver or device writes.
pub struct Canary([u8; CANARY_SIZE]);

impl Canary {
    /// Before the first step.
    pub fn new(memory: &Memory) -> Self {
        let canary = Canary([0xc5; CANARY_SIZE]);
        let at = GuestAddress(CANARY);
        memory.write_slice(&canary.0, at).unwrap();
        canary
    }

    /// After the last one.
    pub fn check(&self, memory: &Memory) {
        let mut found = [0; CANARY_SIZE];
        let at = GuestAddress(CANARY);
        memory.read_slice(&mut found, at).unwrap();
        assert!(found == self.0, "written where no buffer lies");
    }
}

/// An address for data: valid or not, never that of the canary.
pub fn address(input: &mut Input<'_>) -> u64 {
    match input.u8() % 6 {
        0 => MEMORY as u64 - u64::from(input.u8()),
        1 => u64::MAX - u64::from(input.u16()),
        2 => RINGS + u64::from(input.u16() & 0x1fff),
        3 => DATA,
        _ => BUFFERS + input.size() % 0x200000,
    }
}

/// A step of a driver of any device, of one of ten kinds.
pub fn step(guest: &mut Guest, input: &mut Input<'_>, kind: u8) {
    match kind % 10 {
        0 | 1 => {
            let mut ask = Ask {
                interface: u32::from(input.u8() % 4),
                connection: input.pick(&[0, 0, 0, 1, 15, 16, u32::MAX]),
                queue: u32::from(input.u8() % 6),
                number: match input.u8() % 4 {
                    0 => input.u32(),
                    1 => COUNT,
                    _ => u32::from(input.u8() % 20),
                },
                data: address(input),
                length: input.pick(&[0, 6, 8, 1024, 1025, u32::MAX]),
                ..Ask::default()
            };
            let command = u64::from(input.u8() % 9);
            if command == layout::VBUS_COMMAND_INTERRUPT {
                ask.number = input.pick(&[0, 31, 32, 0x41, 255, 256, u32::MAX]);
                ask.apic = input.pick(&[0, 0, 1, 2, u32::MAX]);
            }
            guest.ask(command, ask);
        }
        2 => {
            let address = match input.u8() % 3 {
                0 => input.u64() & !BITS,
                1 => MEMORY as u64 - 64,
                _ => COMMAND,
            };
            if address & 64 == 0 {
                guest.store(address);
            } else {
                let answer = guest.bridge.command(address);
                let most = i32::try_from(layout::VBUS_ERROR_HOST).unwrap();
                assert!((0..=most).contains(&answer) || answer == refused(paravane_abi::EFAULT));
            }
        }
        3 => guest.bridge.write(
            input.u32() % 4096,
            u32::from(input.u8()),
            input.u64() & !BITS,
        ),
        4 => {
            // Any word of a ring: heads, signals, indices, descriptors.
            let bytes = layout_bytes(input);
            let place = input.u16();
            // Further pairs have a ring at each fourth kilobyte, too.
            let mask = if guest.events.is_some() {
                0x73fc
            } else {
                0x13fc
            };
            let at = RINGS + u64::from(place & mask);
            guest.memory.write_slice(&bytes, GuestAddress(at)).unwrap();
        }
        5 => descriptor(guest, input),
        6 => {
            guest.bridge.serve(true, input.u32());
        }
        7 if guest.tx.as_ref().is_some_and(|tx| tx.north.room() > 2) => {
            let length = usize::from(input.u8());
            let frame = input.bytes(length).to_vec();
            let cut = usize::from(input.u8()).min(frame.len());
            let more = layout::VBUS_ETHERNET_MORE;
            let parts = [(&frame[..cut], more), (&frame[cut..], 0)];
            guest.send(&parts);
            guest.bridge.serve(false, 1);
            if guest.events.is_some() {
                guest.switch_to(cut & 1);
            }
        }
        8 => {
            if let Some(rx) = &mut guest.rx {
                while let Ok(Some(_)) = rx.north.take() {}
            }
            if let Some(tx) = &mut guest.tx {
                while let Ok(Some(_)) = tx.north.take() {}
            }
        }
        _ => {
            guest.bridge.serve(false, 1);
        }
    }
}

fn layout_bytes(input: &mut Input<'_>) -> [u8; 4] {
    match input.u8() % 3 {
        0 => (input.u32() & !word(BITS)).to_le_bytes(),
        1 => u32::from(input.u8() % 4).to_le_bytes(),
        _ => u32::from(input.u8()).to_le_bytes(),
    }
}

/// A descriptor with any address but the canary's, and the index that covers it.
fn descriptor(guest: &mut Guest, input: &mut Input<'_>) {
    let queues = if guest.events.is_some() { 5 } else { 2 };
    let queue = u64::from(input.u8() % queues);
    let ring = RINGS + queue * 0x1000;
    let slot = input.u32() % COUNT;
    let at = ring + 448 + u64::from(slot) * 32;
    let owner = word(input.pick(&[
        layout::VBUS_SOUTH,
        layout::VBUS_SOUTH,
        layout::VBUS_NORTH,
        7,
    ]));
    let write = |offset: u64, value: u32| {
        guest
            .memory
            .write_obj(value, GuestAddress(at + offset))
            .unwrap();
    };
    let pointer = address(input);
    let [a, b, c, d, e, f, g, h] = pointer.to_le_bytes();
    write(8, u32::from_le_bytes([a, b, c, d]));
    write(12, u32::from_le_bytes([e, f, g, h]));
    write(16, input.pick(&[0, 1, 14, 64, 2048, 0x10000, u32::MAX]));
    write(24, input.u32());
    write(28, owner);
}
