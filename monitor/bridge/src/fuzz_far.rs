// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz targets: a card (`far`) and a disk (`far_disk`) of a vbusd that has been taken over. It
//! sends any answers, and writes anything into rings, buffers and sockets of the monitor. Meanwhile
//! the guest does anything, and its vCPUs do a little of the work. The bridge must not panic, hang,
//! or write where no buffer lies.

use crate::far_share_tests::{BYTES, LENDER, fixed, memory};
use crate::fuzz::{Canary, KICKS, STEPS, kick, step};
use crate::hostile_vbusd::{HostileVbusd, Script, Theirs};
use crate::model::Model;
use crate::test_guest::Guest;
use crate::{Bridge, Far, FarDisk};
use paravane_devices::OwnDevice;
use paravane_fuzz::{Input, fuzz};
use paravane_vbus::ethernet::lent::{LENT, Lent};
use paravane_vbus::{ConnectionId, Event};
use paravane_vbus_shm::layout::{self, BlockGeometry, BlockRequest};
use rustix::fs::SealFlags;
use std::mem::offset_of;
use std::sync::Arc;

const CARD: &str = "virtual-ethernet";
const DISK: &str = "virtual-block";
/// The longest frame of a card on a bus.
const FRAME: usize = 9216;
/// Bytes of the headers of TCP over IPv4, and over IPv6, in a frame.
const HEADERS: [usize; 2] = [54, 74];

#[test]
fn far() {
    fuzz("far", || {
        let vbusd = HostileVbusd::start();
        move |bytes| card(&vbusd, bytes)
    });
}

#[test]
fn far_disk() {
    fuzz("far_disk", || {
        let vbusd = HostileVbusd::start();
        move |bytes| disk(&vbusd, bytes)
    });
}

/// An answer that does not fit, mostly none.
fn odd(input: &mut Input<'_>) -> Option<(u32, Vec<u8>)> {
    let number = u32::from(input.u8());
    let (length, some) = (usize::from(input.u8() % 40), number < 12);
    some.then(|| (number, [b"VB\x01\x00", input.bytes(length)].concat()))
}

fn script(input: &mut Input<'_>, interface: &str, result: Vec<u8>) -> Script {
    let other = input.u8() == 77;
    Script {
        interface: if other { "null" } else { interface }.to_string(),
        result,
        caps: 0,
        odd: odd(input),
    }
}

/// A bridge whose device does not join again: that is for another thread.
fn bridge(class: &'static str, device: Box<dyn paravane_vbus::Device>) -> Bridge {
    Bridge::new("bus", vec![Model::Plain(class, device)]).unwrap()
}

/// Turns the first `length` bytes of a frame into a TCP segment over IPv4 or IPv6 that must be cut.
/// Returns the segment and its flags.
fn long(frame: &[u8], length: usize, six: bool) -> (Vec<u8>, u32) {
    let mut frame = frame[..length].to_vec();
    let size_of = |from: usize| u16::try_from(length - from).unwrap().to_be_bytes();
    // TCP has no options.
    let (kind, start) = if six {
        frame[12..16].copy_from_slice(&[0x86, 0xdd, 0x60, 0]);
        frame[18..20].copy_from_slice(&size_of(54));
        (frame[20], frame[66]) = (6, 0x50);
        (layout::VBUS_ETHERNET_TSO6, 54)
    } else {
        frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        frame[16..18].copy_from_slice(&size_of(14));
        // No fragment.
        frame[20..22].copy_from_slice(&[0, 0]);
        (frame[23], frame[46]) = (6, 0x50);
        (layout::VBUS_ETHERNET_TSO4, 34)
    };
    // At most nine segments.
    let size = 1024 << layout::VBUS_ETHERNET_SIZE_SHIFT;
    let place =
        start << layout::VBUS_ETHERNET_START_SHIFT | 8 << layout::VBUS_ETHERNET_OFFSET_SHIFT;
    let flags = layout::VBUS_ETHERNET_CSUM | kind | place | size;
    (frame, u32::try_from(flags).unwrap())
}

fn card(vbusd: &HostileVbusd, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let length = input.pick(&[6, 6, 6, 6, 5, 7, 0]);
    let mut said = script(&mut input, CARD, vec![2; length]);
    // The last byte, so that stored inputs keep their meaning.
    said.caps = bytes.last().map_or(0, |&last| u32::from(last));
    // The upper bit of that byte: the card shares.
    let shares = said.caps & 0x80 != 0;
    let join = if shares { Far::join_sharing } else { Far::join };
    let (far, theirs) = vbusd.join(said, || join(&vbusd.socket, "lan", "dev"));
    let (Ok(far), Some(mut theirs)) = (far, theirs) else {
        return;
    };
    let mut guest = Guest::new(bridge("venet-bus", Box::new(far)));
    let canary = Canary::new(&guest.memory);
    let begin = input.u8();
    if begin & 3 != 0 {
        let caps = u64::from(input.u8());
        if begin & 0x40 != 0 {
            guest.up_pairs(caps, 2);
            guest.events.as_mut().unwrap().post(2, 16);
        } else {
            guest.up(caps);
        }
        guest.post(8, 2048);
    }
    // As long as the guest has kept the rules.
    let mut honest = true;
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let number = input.u8();
        if number >= KICKS {
            kick(&mut guest, &mut input);
        }
        match number % 24 {
            _ if number >= KICKS => {}
            kind @ 0..10 => {
                honest &= kind >= 6;
                step(&mut guest, &mut input, kind);
            }
            kind @ 10..14 => {
                let length = usize::from(input.u16()) % (FRAME + 20);
                let used = match input.u8() % 8 {
                    0 => input.u32(),
                    _ => u32::try_from(length).unwrap(),
                };
                let frame = [input.bytes(40), &vec![0x55; length]].concat();
                let flags = input.pick(&[0, 0, 1, 3, u32::MAX]);
                let six = flags == 3;
                if kind == 13 && flags != 0 && length >= HEADERS[usize::from(six)] {
                    let (frame, flags) = long(&frame, length, six);
                    theirs.fill(&frame, used, flags);
                } else {
                    theirs.fill(&frame, used, flags);
                }
                guest.bridge.serve(true, 1);
            }
            14..17 => _ = theirs.take(|_| Vec::new()),
            kind @ 20..24 if shares => lent(&mut theirs, &mut input, kind),
            _ => any(&mut theirs, &mut input),
        }
        if number < KICKS {
            guest.bridge.serve(true, 1);
        }
        if let Some(rx) = guest.rx.as_mut().filter(|_| honest) {
            for (bytes, _) in rx.received(&guest.memory) {
                assert!(bytes.len() <= FRAME, "a frame that is too long");
            }
        }
    }
    canary.check(&guest.memory);
}

/// What a device says of memory that others lend, and of frames in it.
fn lent(theirs: &mut Theirs, input: &mut Input<'_>, kind: u8) {
    let place = u32::from(input.u8() % 3);
    let lender = u32::from(input.u8() % 3) + LENDER;
    if kind == 20 {
        let connection = ConnectionId(u64::from(!input.u8().is_multiple_of(8)));
        return theirs.tell(Event::Withdrawn { connection, place });
    }
    if kind == 21 {
        let seals = match input.u8() % 8 {
            0 => SealFlags::GROW,
            _ => fixed(),
        };
        let file = memory(BYTES, seals);
        return theirs.lends(
            place,
            lender.into(),
            Some(&file).filter(|_| !input.u8().is_multiple_of(8)),
        );
    }
    let parts = (0..input.u8() % 4)
        .map(|_| (u32::from(input.u16()), u32::from(input.u16() % 9000)))
        .collect();
    let said = Lent {
        place,
        lender,
        flags: input.pick(&[0, 0, 0, 1, u32::MAX]),
        parts,
        head: (0, 0),
    };
    let mut bytes = Vec::new();
    let length = usize::from(input.u8() % 40);
    said.write(input.bytes(length), &mut bytes);
    if input.u8().is_multiple_of(8) {
        let at = usize::from(input.u8()) % bytes.len();
        bytes[at] = input.u8();
    }
    theirs.fill(&bytes, u32::try_from(bytes.len()).unwrap(), LENT);
}

/// What a device that breaks the rules does, of any kind.
fn any(theirs: &mut Theirs, input: &mut Input<'_>) {
    match input.u8() % 16 {
        0..9 => {
            // Any word of a ring.
            let (at, bytes) = theirs.ring(usize::from(input.u8() % 3));
            let place = at + u64::from(input.u16()) * 4 % bytes.max(4);
            let value = match input.u8() % 3 {
                0 => input.u32(),
                1 => u32::from(input.u8() % 4),
                _ => theirs.word(place).wrapping_add(u32::from(input.u8() % 3)),
            };
            theirs.write(place, &value.to_le_bytes());
        }
        9 => {
            // Any bytes of a buffer.
            let at = u64::from(input.u32() % (8 << 20));
            theirs.write(at, input.bytes(16));
        }
        10 => theirs.ring_bell(),
        11 => theirs.tell(Event::Added {
            id: input.u32(),
            name: "x".repeat(usize::from(input.u8())),
            interface: CARD.to_string(),
        }),
        12 => theirs.tell(Event::Dropped { id: input.u32() }),
        13 => {
            let length = usize::from(input.u8() % 40);
            let bytes = [b"VB\x01\x00", input.bytes(length)].concat();
            if input.u8().is_multiple_of(4) {
                theirs.say(&bytes);
            }
        }
        14 => match input.u8() {
            number if number.is_multiple_of(4) => theirs.hang_up(),
            number => {
                let length = u32::from(number % 24);
                let event = [1, u32::from(number >> 6)].map(u32::to_le_bytes).concat();
                theirs.send_event(&event, if number & 1 == 0 { 16 } else { length });
            }
        },
        15 if input.u8().is_multiple_of(4) => theirs.tell(Event::Closed {
            connection: ConnectionId(u64::from(input.u8() % 2)),
            why: "why not".to_string(),
        }),
        _ => theirs.tell(Event::Lost),
    }
}

/// A geometry, mostly one of a disk that can be.
fn geometry(input: &mut Input<'_>) -> (Vec<u8>, bool) {
    let mut bytes = vec![0; size_of::<BlockGeometry>()];
    let sectors = input.pick(&[128, 128, 128, 0, 1, u64::MAX, u64::MAX / 512, 1 << 55]);
    let block = input.pick(&[512, 512, 512, 512, 0, 4096, u32::MAX]);
    let read_only = input.u8().is_multiple_of(4);
    let bit = u32::try_from(layout::VBUS_BLOCK_READ_ONLY).unwrap();
    let others = input.pick(&[0, 0, 1, u32::MAX]) & !bit;
    let flags = others | if read_only { bit } else { 0 };
    let mut put = |at: usize, from: &[u8]| bytes[at..at + from.len()].copy_from_slice(from);
    put(offset_of!(BlockGeometry, sectors), &sectors.to_le_bytes());
    put(offset_of!(BlockGeometry, block), &block.to_le_bytes());
    put(offset_of!(BlockGeometry, flags), &flags.to_le_bytes());
    if input.u8() == 5 {
        bytes.truncate(usize::from(input.u8()));
    }
    (bytes, read_only)
}

fn disk(vbusd: &HostileVbusd, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (result, read_only) = geometry(&mut input);
    let said = script(&mut input, DISK, result);
    let (far, theirs) = vbusd.join(said, || FarDisk::join(&vbusd.socket, "lan", "dev"));
    let (Ok(far), Some(mut theirs)) = (far, theirs) else {
        return;
    };
    let mut guest = Guest::new(bridge("vblk-bus", Box::new(far)));
    let canary = Canary::new(&guest.memory);
    if input.u8() & 3 != 0 {
        guest.up_disk();
    }
    // As long as the device has kept the rules of rings.
    let mut whole = true;
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        match input.u8() % 24 {
            kind @ 0..8 => step(&mut guest, &mut input, kind),
            8 => guest.up_disk(),
            9..12 => crate::fuzz_disk::request(&mut guest, &mut input),
            12..15 => plain(&mut guest, &mut input),
            15..21 => {
                let status = input.pick(&[0, 1, 2, 3, u32::MAX]);
                theirs.take(|bytes| served(bytes, status, whole && read_only));
            }
            _ => {
                whole = false;
                any(&mut theirs, &mut input);
            }
        }
        guest.bridge.serve(true, 1);
    }
    let memory = Arc::clone(&guest.memory);
    drop(guest);
    canary.check(&memory);
}

/// A request of one sector as drivers make it, which may be beyond the end.
fn plain(guest: &mut Guest, input: &mut Input<'_>) {
    let mut header = [0; size_of::<BlockRequest>()];
    let operation = u32::from(input.u8() % 2);
    let sector = u64::from(input.u8() % 130);
    let mut put = |at: usize, from: &[u8]| header[at..at + from.len()].copy_from_slice(from);
    put(
        offset_of!(BlockRequest, operation),
        &operation.to_le_bytes(),
    );
    put(offset_of!(BlockRequest, sector), &sector.to_le_bytes());
    put(offset_of!(BlockRequest, sectors), &1_u32.to_le_bytes());
    let room = |tx: &crate::test_guest::Ring| tx.north.room() > 2;
    if guest.tx.as_ref().is_some_and(room) {
        guest.send(&[(&header, layout::VBUS_BLOCK_MORE), (&[0x77; 512], 0)]);
        guest.bridge.serve(false, 1);
    }
}

/// What a device writes into a header or data: a status, or other data.
fn served(bytes: &[u8], status: u32, read_only: bool) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() == size_of::<BlockRequest>() {
        let at = offset_of!(BlockRequest, operation);
        let operation = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let written = u64::from(operation) == layout::VBUS_BLOCK_WRITE;
        assert!(!(written && read_only), "a write to a disk that may not be");
        let at = offset_of!(BlockRequest, status);
        bytes[at..at + 4].copy_from_slice(&status.to_le_bytes());
    } else {
        bytes.fill(0x66);
    }
    bytes
}
