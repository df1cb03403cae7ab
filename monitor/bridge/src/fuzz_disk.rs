// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: as `fuzz`, for a disk. Requests of any content are under way while the driver
//! changes its rings, closes the connection and begins again. A read-only disk keeps its content,
//! and no disk changes its size.

use crate::fuzz::{Canary, STEPS, address, step};
use crate::test_guest::Guest;
use crate::{Bridge, Disk};
use paravane_devices::OwnDevice;
use paravane_devices::blk::{Disk as Store, Flush, Mode};
use paravane_fuzz::{Input, fuzz};
use paravane_vbus_shm::layout::BlockRequest;
use paravane_vbus_shm::north::Buffer;
use std::mem::offset_of;
use std::sync::Arc;
use tempfile::NamedTempFile;
use vm_memory::{Bytes, GuestAddress};

/// Bytes of the disk.
const SIZE: usize = 64 << 10;
/// How often the disk is asked at the end what has been done.
const TURNS: u32 = 100;

#[test]
fn bridge_disk() {
    fuzz("bridge_disk", || |bytes| play(bytes));
}

fn play(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mode = input.pick(&[
        Mode::Write,
        Mode::ReadOnly,
        Mode::Snapshot,
        Mode::Cut(Flush::Honoured),
    ]);
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [0x5a; SIZE]).unwrap();
    let store = Store::open(file.path(), mode).unwrap();
    let mut guest = Guest::new(Bridge::disk(Disk::new(store, "fuzz")).unwrap());
    let canary = Canary::new(&guest.memory);
    let begin = input.u8();
    if begin & 3 != 0 {
        guest.up_disk();
    }
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        match input.u8() % 16 {
            kind @ 0..10 => step(&mut guest, &mut input, kind),
            // Another driver, while requests are under way.
            10 => guest.up_disk(),
            // What has been done since.
            11 => drop(guest.bridge.serve(true, 1)),
            _ => request(&mut guest, &mut input),
        }
    }
    if begin & 4 == 0 {
        finish(&mut guest);
    }
    let memory = Arc::clone(&guest.memory);
    // Waits for what is under way, and panics if a worker has.
    drop(guest);
    canary.check(&memory);
    let content = std::fs::read(file.path()).unwrap();
    assert_eq!(content.len(), SIZE, "the disk has another size");
    if matches!(mode, Mode::ReadOnly | Mode::Snapshot) {
        assert!(content == [0x5a; SIZE], "written to a disk that may not be");
    }
}

/// Lets workers carry out what is under way, for a bounded time: what belongs to a connection that
/// has ended does not come back.
fn finish(guest: &mut Guest) {
    for _ in 0..TURNS {
        guest.bridge.serve(true, 1);
        let Some(tx) = &mut guest.tx else { return };
        while let Ok(Some(_)) = tx.north.take() {}
        if tx.north.outstanding() == 0 {
            return;
        }
        std::thread::yield_now();
    }
}

/// A request to a disk, much of which makes sense, and its descriptors.
pub fn request(guest: &mut Guest, input: &mut Input<'_>) {
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
