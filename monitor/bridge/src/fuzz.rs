// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: a driver that gives any commands, and writes anything to its rings at any time. The
//! bridge must not panic, hang, or write where no buffer lies.

use crate::card::word;
use crate::test_guest::{Ask, BUFFERS, COMMAND, COUNT, DATA, Guest, MEMORY, RINGS};
use crate::{Bridge, Disk, Stack};
use paravane_devices::OwnDevice;
use paravane_devices::blk::{Disk as Store, Mode};
use paravane_fuzz::{Input, fuzz};
use paravane_net::user::{Config, Network};
use paravane_vbus_shm::layout::{self, BlockRequest};
use paravane_vbus_shm::north::Buffer;
use std::mem::offset_of;
use vm_memory::{Bytes, GuestAddress};

/// The most steps of an input.
const STEPS: usize = 200;
/// Bytes that no step lets the bridge write: all addresses that steps make end below, or have
/// neither of these bits.
const CANARY: u64 = 0x380000;
const BITS: u64 = 0x300000;
const CANARY_SIZE: usize = 0x1000;

#[test]
fn bridge() {
    fuzz("bridge", || |bytes| play(bytes));
}

/// A bridge with a card, or with a disk of 64 KiB.
fn bridge_of(disk: bool) -> (Bridge, Option<tempfile::NamedTempFile>) {
    if disk {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(64 << 10).unwrap();
        let store = Store::open(file.path(), Mode::Write).unwrap();
        return (Bridge::disk(Disk::new(store, "fuzz")).unwrap(), Some(file));
    }
    let config = Config {
        // Every address is inside, so the guest reaches nothing.
        prefix: 0,
        ..Config::default()
    };
    let network = Network::new(config).unwrap();
    let stack = Stack::new(network, [2, 0, 0, 0, 0, 7]);
    (Bridge::stack(stack).unwrap(), None)
}

fn play(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let begin = input.u8();
    let (bridge, file) = bridge_of(begin & 0x80 != 0);
    let mut guest = Guest::new(bridge);
    let canary = [0xc5; CANARY_SIZE];
    guest
        .memory
        .write_slice(&canary, GuestAddress(CANARY))
        .unwrap();
    if begin & 3 != 0 {
        let caps = u64::from(input.u8() & 7);
        if file.is_some() {
            guest.up_disk();
        } else {
            guest.up(caps);
            guest.post(8, 64);
        }
    }
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        step(&mut guest, &mut input);
    }
    let mut found = [0; CANARY_SIZE];
    guest
        .memory
        .read_slice(&mut found, GuestAddress(CANARY))
        .unwrap();
    assert!(found == canary, "written where no buffer lies");
}

/// An address for data: valid or not, never that of the canary.
fn address(input: &mut Input<'_>) -> u64 {
    match input.u8() % 6 {
        0 => MEMORY as u64 - u64::from(input.u8()),
        1 => u64::MAX - u64::from(input.u16()),
        2 => RINGS + u64::from(input.u16() & 0x1fff),
        3 => DATA,
        _ => BUFFERS + input.size() % 0x200000,
    }
}

fn step(guest: &mut Guest, input: &mut Input<'_>) {
    match input.u8() % 11 {
        10 => request(guest, input),
        0 | 1 => {
            let ask = Ask {
                interface: u32::from(input.u8() % 4),
                connection: input.pick(&[0, 0, 0, 1, 15, 16, u32::MAX]),
                queue: u32::from(input.u8() % 3),
                number: match input.u8() % 4 {
                    0 => input.u32(),
                    1 => COUNT,
                    _ => u32::from(input.u8() % 20),
                },
                data: address(input),
                length: input.pick(&[0, 6, 8, 1024, 1025, u32::MAX]),
            };
            guest.ask(u64::from(input.u8() % 9), ask);
        }
        2 => guest.store(match input.u8() % 3 {
            0 => input.u64() & !BITS,
            1 => MEMORY as u64 - 64,
            _ => COMMAND,
        }),
        3 => guest.bridge.write(
            input.u32() % 4096,
            u32::from(input.u8()),
            input.u64() & !BITS,
        ),
        4 => {
            // Any word of a ring: heads, signals, indices, descriptors.
            let bytes = layout_bytes(input);
            let at = RINGS + u64::from(input.u16() & 0x13fc);
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

/// A request to a disk, much of which makes sense, and its descriptors.
fn request(guest: &mut Guest, input: &mut Input<'_>) {
    let at = address(input) & !7;
    let fields = [
        (
            offset_of!(BlockRequest, operation),
            u32::from(input.u8() % 6),
        ),
        (
            offset_of!(BlockRequest, sector),
            input.pick(&[0, 1, 127, 128, u32::MAX]),
        ),
        (
            offset_of!(BlockRequest, sector) + 4,
            u32::from(input.u8() == 9),
        ),
        (
            offset_of!(BlockRequest, sectors),
            input.pick(&[0, 1, 2, 4, 128, u32::MAX]),
        ),
        (offset_of!(BlockRequest, flags), u32::from(input.u8() == 1)),
    ];
    for (offset, value) in fields {
        let place = at.saturating_add(offset as u64);
        let _ = guest.memory.write_obj(value, GuestAddress(place));
    }
    let mut parts = vec![(at, input.pick(&[32, 32, 32, 31]))];
    for _ in 0..input.u8() % 4 {
        parts.push((address(input), input.pick(&[512, 512, 1024, 256, 0])));
    }
    let last = parts.len() - 1;
    for (index, (ptr, len)) in parts.into_iter().enumerate() {
        let Some(tx) = &mut guest.tx else { return };
        let buffer = Buffer {
            cookie: 0,
            ptr,
            len,
            flags: u32::from(index < last),
        };
        if tx.north.post(buffer).is_err() {
            return;
        }
    }
    guest.bridge.serve(false, 1);
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
    let queue = u64::from(input.u8() & 1);
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
