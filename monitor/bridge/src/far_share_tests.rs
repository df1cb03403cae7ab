// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card that shares: frames in other clients' memory, and their records from a vbusd that was
//! taken over.

use crate::hostile_vbusd::{HostileVbusd, Script, Theirs};
use crate::model::Model;
use crate::test_guest::Guest;
use crate::{Bridge, Far};
use paravane_devices::OwnDevice;
use paravane_vbus::ethernet::lent::{LENT, Lent, PARTS};
use paravane_vbus::{ConnectionId, Event};
use paravane_vbus_shm::{layout, loans};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::pwrite;
use std::fs::File;
use std::os::fd::OwnedFd;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
/// Bytes of the memory that another client lends.
pub const BYTES: u64 = 1 << 16;
pub const LENDER: u32 = 77;

/// Such memory, in which each byte shows where it is.
pub fn memory(len: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(c"lent", flags).unwrap();
    ftruncate(&file, len).unwrap();
    let bytes: Vec<u8> = (0..len.min(BYTES)).map(|at| at.to_le_bytes()[1]).collect();
    pwrite(&file, &bytes, 0).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

pub fn fixed() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

fn card(vbusd: &HostileVbusd) -> (Guest, Theirs) {
    let script = Script {
        interface: "virtual-ethernet".to_string(),
        result: MAC.to_vec(),
        caps: 0,
        odd: None,
    };
    let (far, theirs) = vbusd.join(script, || Far::join_sharing(&vbusd.socket, "lan", "dev"));
    let far = Box::new(far.unwrap());
    let mut guest = Guest::new(Bridge::new("bus", vec![Model::Plain("far", far)]).unwrap());
    guest.up(0);
    guest.post(4, 2048);
    (guest, theirs.unwrap())
}

fn passes(guest: &mut Guest) {
    guest.bridge.serve(true, 1);
}

/// The record of a frame of which these bytes are in the lender's memory.
fn record(place: u32, lender: u32, parts: &[(u32, u32)]) -> Vec<u8> {
    let lent = Lent {
        place,
        lender,
        parts: parts.to_vec(),
        ..Lent::default()
    };
    let mut bytes = Vec::new();
    lent.write(&[&MAC[..], &[3; 8]].concat(), &mut bytes);
    bytes
}

fn fill(theirs: &mut Theirs, record: &[u8]) {
    theirs.fill(record, u32::try_from(record.len()).unwrap(), LENT);
}

/// Whether the connection to vbusd has not ended: a frame passes. That of the guest never ends.
fn lives(guest: &mut Guest, theirs: &mut Theirs) -> bool {
    guest.received();
    guest.post(1, 2048);
    let frame = [&MAC[..], &[5; 54]].concat();
    theirs.fill(&frame, 60, 0);
    theirs.ring_bell();
    passes(guest);
    assert!(guest.call(layout::VBUS_ETHERNET_MACQUERY, &[]).is_ok());
    guest.received().contains(&(frame, 0))
}

#[test]
fn a_frame_in_another_s_memory_is_the_guest_s() {
    let vbusd = HostileVbusd::start();
    let (mut guest, mut theirs) = card(&vbusd);
    let file = memory(BYTES, fixed());
    theirs.lends(0, LENDER.into(), Some(&file));
    // Events of another connection do not affect this one.
    theirs.tell(Event::Withdrawn {
        connection: ConnectionId(2),
        place: 0,
    });
    passes(&mut guest);
    let (first, last) = (0x1234, u32::try_from(BYTES).unwrap() - 100);
    fill(
        &mut theirs,
        &record(0, LENDER, &[(first, 700), (last, 100)]),
    );
    passes(&mut guest);
    let head = [&MAC[..], &[3; 8]].concat();
    let all = (first..first + 700).chain(last..last + 100);
    let expected: Vec<u8> = head
        .into_iter()
        .chain(all.map(|at| at.to_le_bytes()[1]))
        .collect();
    assert_eq!(guest.received(), [(expected, 0)]);
    assert!(lives(&mut guest, &mut theirs));
    // Another lender at the place, and then none.
    theirs.lends(0, u64::from(LENDER) + 1, Some(&file));
    passes(&mut guest);
    fill(&mut theirs, &record(0, LENDER + 1, &[(0, 10)]));
    passes(&mut guest);
    assert!(lives(&mut guest, &mut theirs));
    theirs.tell(Event::Withdrawn {
        connection: ConnectionId(1),
        place: 0,
    });
    passes(&mut guest);
    fill(&mut theirs, &record(0, LENDER + 1, &[(0, 10)]));
    assert!(!lives(&mut guest, &mut theirs));
}

/// The connection ends, the process does not, and the guest gets nothing.
#[test]
fn what_makes_no_sense_of_a_lent_frame_ends_the_connection() {
    let vbusd = HostileVbusd::start();
    let end = u32::try_from(BYTES).unwrap();
    let mut records = vec![
        record(1, LENDER, &[(0, 10)]),
        record(8, LENDER, &[(0, 10)]),
        record(u32::MAX, LENDER, &[(0, 10)]),
        record(0, LENDER + 1, &[(0, 10)]),
        record(0, 0, &[(0, 10)]),
        record(0, LENDER, &[(end, 1)]),
        record(0, LENDER, &[(end - 1, 2)]),
        record(0, LENDER, &[(u32::MAX, 10)]),
        record(0, LENDER, &[(0, 10), (0, u32::MAX)]),
        record(0, LENDER, &[(0, 65_536), (0, 1)]),
        record(0, LENDER, &[]),
        record(0, LENDER, &[(0, 0)]),
        record(0, LENDER, &[(0, 10); PARTS + 1]),
        Vec::new(),
        vec![0; 9000],
    ];
    let mut short = record(0, LENDER, &[(0, 10)]);
    short.pop();
    records.push(short);
    for record in records {
        let (mut guest, mut theirs) = card(&vbusd);
        theirs.lends(0, LENDER.into(), Some(&memory(BYTES, fixed())));
        passes(&mut guest);
        fill(&mut theirs, &record);
        passes(&mut guest);
        assert_eq!(guest.received(), [], "{record:?}");
        assert!(!lives(&mut guest, &mut theirs), "{record:?}");
    }
}

/// A read of memory that could shrink, or of a file that is no memory, would end the process.
#[test]
fn only_sealed_memory_of_others_is_mapped() {
    let vbusd = HostileVbusd::start();
    let files = [
        Some(memory(BYTES, SealFlags::GROW)),
        Some(memory(BYTES, SealFlags::empty())),
        Some(memory(0, fixed())),
        Some(memory(loans::BYTES + 1, fixed())),
        Some(OwnedFd::from(File::open("/dev/zero").unwrap())),
        None,
    ];
    for file in files {
        let (mut guest, mut theirs) = card(&vbusd);
        theirs.lends(0, LENDER.into(), file.as_ref());
        passes(&mut guest);
        assert!(lives(&mut guest, &mut theirs));
        fill(&mut theirs, &record(0, LENDER, &[(0, 10)]));
        assert!(!lives(&mut guest, &mut theirs), "{file:?}");
    }
    // The number of places is bounded.
    let (mut guest, mut theirs) = card(&vbusd);
    theirs.lends(8, LENDER.into(), Some(&memory(BYTES, fixed())));
    assert!(!lives(&mut guest, &mut theirs));
}

/// While the guest has no buffer for a frame, its memory stays, or the connection ends.
#[test]
fn memory_is_not_taken_from_under_a_frame() {
    let vbusd = HostileVbusd::start();
    let (mut guest, mut theirs) = card(&vbusd);
    let file = memory(BYTES, fixed());
    theirs.lends(0, LENDER.into(), Some(&file));
    passes(&mut guest);
    for _ in 0..5 {
        fill(&mut theirs, &record(0, LENDER, &[(0, 100)]));
    }
    passes(&mut guest);
    assert_eq!(guest.received().len(), 4);
    theirs.tell(Event::Withdrawn {
        connection: ConnectionId(1),
        place: 0,
    });
    theirs.ring_bell();
    passes(&mut guest);
    assert!(!lives(&mut guest, &mut theirs));
}
