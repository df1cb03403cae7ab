// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ports of a switch that share: which slots are lent to which port, for how long, and which port
//! delays which.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/sharing.rs"]
mod sharing;

use common::{Client, attribute, name, settle, system};
use paravane_vbus::ethernet::HEAD;
use paravane_vbus::{Kind, Vbus};
use paravane_vbus_shm::atomic::{AtomicU32, Ordering};
use sharing::{LONG, Port, SLOTS, acquaint};

fn switch() -> Vbus {
    let mut vbus = system("venet-switch");
    vbus.set_attribute(&name("dev"), "share", "1").unwrap();
    vbus
}

#[test]
fn a_frame_stays_in_its_slot_until_its_receiver_posts_again() {
    let mut vbus = switch();
    let (mut a, mut b) = (Port::open(&mut vbus, 1), Port::open(&mut vbus, 1));
    acquaint(&mut vbus, &mut [&mut a, &mut b]);
    let frame = a.frame(b.mac, 7, LONG);
    a.send(&mut vbus, 3, &frame);
    settle(&mut vbus);
    // The descriptor is the sender's again, and the slot is not.
    assert_eq!((a.reclaim(), a.lent()), (1, vec![3]));
    let got = b.take().unwrap();
    let lent = got.lent.as_ref().unwrap();
    let (offset, len) = lent.parts[0];
    let slot = u32::try_from(sharing::SIZE * 3 + HEAD).unwrap();
    assert_eq!(
        (offset, len as usize, lent.head.1),
        (slot, LONG - HEAD, HEAD)
    );
    assert_eq!(b.whole(&got), frame);
    // Only what was checked is delivered, whatever the sender writes there now.
    let other = a.frame([9; 6], 8, LONG);
    use paravane_vbus::MemoryContext;
    a.slots.write(3 * sharing::SIZE as u64, &other).unwrap();
    assert_eq!(b.whole(&got)[..HEAD], frame[..HEAD]);
    b.post(&mut vbus, got.cookie);
    settle(&mut vbus);
    assert_eq!(a.lent(), []);
    for (figure, value) in [
        ("lent", 1),
        ("lent-bytes", (LONG - HEAD) as u64),
        ("copied", 0),
        ("rx-bytes", LONG as u64),
        ("sharing", 2),
    ] {
        assert_eq!(attribute(&vbus, figure), value, "{figure}");
    }
}

/// These frames are copied: short ones, broadcasts, those outside of slots, and those of and for
/// ports that do not share.
#[test]
fn what_cannot_be_lent_is_copied() {
    let mut vbus = switch();
    let (mut a, mut b) = (Port::open(&mut vbus, 1), Port::open(&mut vbus, 1));
    acquaint(&mut vbus, &mut [&mut a, &mut b]);
    let mut other = Client::open(&mut vbus, 1);
    other.post(&mut vbus);
    vbus.call(other.member, other.id, 0, &[]).unwrap();
    let mac = vbus.call(other.member, other.id, 2, &[]).unwrap();
    let mac: [u8; 6] = mac.try_into().unwrap();
    let (short, all) = (a.frame(b.mac, 1, HEAD + 1023), a.frame([0xff; 6], 2, LONG));
    let (own, to_other) = (a.frame(b.mac, 3, LONG), a.frame(mac, 4, LONG));
    a.send(&mut vbus, 0, &short);
    a.send(&mut vbus, 1, &all);
    a.send_own(&mut vbus, &own);
    a.send(&mut vbus, 2, &to_other);
    let mut back = own.clone();
    back[..6].copy_from_slice(&b.mac);
    back[6..12].copy_from_slice(&mac);
    assert!(other.send(&mut vbus, &back));
    settle(&mut vbus);
    assert_eq!((a.reclaim(), a.lent()), (4, vec![]));
    let got: Vec<_> = std::iter::from_fn(|| b.take()).collect();
    assert!(got.iter().all(|got| got.lent.is_none()));
    let got: Vec<_> = got.into_iter().map(|got| got.bytes).collect();
    assert_eq!(got.len(), 4);
    assert!(
        [&short, &all, &own, &back]
            .iter()
            .all(|one| got.contains(one))
    );
    let first = other.receive().unwrap();
    assert_eq!([first, other.receive().unwrap()], [all, to_other]);
    assert_eq!(attribute(&vbus, "lent"), 0);
    assert_eq!(attribute(&vbus, "copied"), 6);
}

/// A receiver gets the announcement of another lender when it has handled the one before.
#[test]
fn nothing_is_lent_before_the_receiver_has_mapped_it() {
    let mut vbus = switch();
    let mut b = Port::open(&mut vbus, 1);
    let mut others: Vec<_> = (0..3).map(|_| Port::open(&mut vbus, 1)).collect();
    settle(&mut vbus);
    let mut events = 0;
    for told in 0..3 {
        for port in &mut others {
            let frame = port.frame(b.mac, 5, LONG);
            port.send(&mut vbus, 0, &frame);
        }
        settle(&mut vbus);
        let got: Vec<_> = std::iter::from_fn(|| b.take()).collect();
        let lent = got.iter().filter(|got| got.lent.is_some()).count();
        assert_eq!((got.len(), lent), (3, told));
        for got in got {
            b.post(&mut vbus, got.cookie);
        }
        settle(&mut vbus);
        others.iter_mut().for_each(|port| _ = port.reclaim());
        assert!(vbus.has_event(b.member), "{told}");
        let all: Vec<_> = others.iter().map(|p| (p.id, p.slots.clone())).collect();
        let find = |id| all.iter().find(|one| one.0 == id).map(|one| one.1.clone());
        b.hear(&mut vbus, find);
        events += 1;
        // Not before the device has looked.
        assert!(!vbus.has_event(b.member));
        settle(&mut vbus);
    }
    assert_eq!((events, b.known.len()), (3, 3));
    assert!(!vbus.has_event(b.member));
}

/// A receiver that keeps everything leaves half of the slots to others, and delays no sender.
#[test]
fn a_receiver_that_keeps_all_gets_copies_and_stops_nobody() {
    let mut vbus = switch();
    let (mut a, mut b, mut c) = (
        Port::open(&mut vbus, 1),
        Port::open(&mut vbus, 1),
        Port::open(&mut vbus, 1),
    );
    acquaint(&mut vbus, &mut [&mut a, &mut b, &mut c]);
    let mut kept = 0;
    for slot in 0..SLOTS {
        let frame = a.frame(b.mac, 1, LONG);
        a.send(&mut vbus, slot, &frame);
        settle(&mut vbus);
        assert_eq!(a.reclaim(), 1);
        kept += usize::from(b.take().unwrap().lent.is_some());
    }
    assert_eq!((kept, a.lent().len()), (4, 4));
    // It has posted nothing: the frame is dropped, and its sender goes on.
    let frame = a.frame(b.mac, 1, LONG);
    a.send(&mut vbus, 7, &frame);
    settle(&mut vbus);
    assert_eq!((a.reclaim(), a.lent().len()), (1, 4));
    // The other has half of what is left, and all of that again and again.
    for round in 0..10 {
        let mut got = Vec::new();
        for slot in 4..7 {
            let frame = a.frame(c.mac, round, LONG);
            a.send(&mut vbus, slot, &frame);
            settle(&mut vbus);
            got.push(c.take().unwrap());
        }
        a.reclaim();
        assert_eq!(got.iter().filter(|got| got.lent.is_some()).count(), 2);
        for got in got {
            assert_eq!(c.whole(&got), a.frame(c.mac, round, LONG));
            c.post(&mut vbus, got.cookie);
        }
        settle(&mut vbus);
    }
}

/// A client whose connection was reset may still copy. One that has gone, or has closed its
/// connection, does not.
#[test]
fn what_a_connection_held_is_free_when_its_client_reads_no_more() {
    let mut vbus = switch();
    let mut a = Port::open(&mut vbus, 1);
    for close in [false, true] {
        let mut b = Port::open(&mut vbus, 1);
        acquaint(&mut vbus, &mut [&mut a, &mut b]);
        let frame = a.frame(b.mac, 7, LONG);
        a.send(&mut vbus, 0, &frame);
        settle(&mut vbus);
        assert_eq!((a.reclaim(), a.lent()), (1, vec![0]));
        let got = b.take().unwrap();
        if close {
            vbus.close(b.member, b.id).unwrap();
        } else {
            // An owner that is no side.
            let start = paravane_vbus::Region::range(&*b.memory).0;
            let last = paravane_vbus_shm::memory::size(common::COUNT);
            let count = (last - 448) / 32;
            for slot in 0..count {
                let place = 448 + slot * 32 + 28;
                // SAFETY: the word of an owner, in memory that lives.
                let word = unsafe { start.add(place).cast::<AtomicU32>().as_ref() };
                word.store(9, Ordering::SeqCst);
            }
            a.send(&mut vbus, 1, &frame);
            let mut reset = Vec::new();
            while vbus.has_work() {
                reset.extend(vbus.work(3));
            }
            assert_eq!(reset, [b.id]);
            assert_eq!(a.reclaim(), 1);
            assert_eq!(a.lent(), [0], "it may still be read");
            assert_eq!(b.whole(&got), frame);
            // While it keeps them, another offer is refused.
            let again = Port::offer_as(&mut vbus, b.member);
            assert_eq!(again.err().unwrap().kind(), Kind::Busy);
            vbus.leave(b.member);
        }
        settle(&mut vbus);
        assert_eq!(a.lent(), [], "{close}");
    }
}

/// A client may close a connection that its device has ended.
#[test]
fn what_a_connection_held_is_free_when_its_client_closes_it_after_its_end() {
    let mut vbus = switch();
    let (mut a, mut b) = (Port::open(&mut vbus, 1), Port::open(&mut vbus, 1));
    acquaint(&mut vbus, &mut [&mut a, &mut b]);
    let frame = a.frame(b.mac, 7, LONG);
    a.send(&mut vbus, 3, &frame);
    settle(&mut vbus);
    assert_eq!(a.lent(), [3]);
    vbus.fail(b.id, "a test");
    settle(&mut vbus);
    assert!(!vbus.is_open(b.id));
    assert_eq!(a.lent(), [3]);
    // It is no other client's to close.
    let refused = vbus.close(a.member, b.id).unwrap_err();
    assert_eq!((refused.kind(), a.lent()), (Kind::NotFound, vec![3]));
    vbus.close(b.member, b.id).unwrap();
    assert_eq!(a.lent(), []);
    assert_eq!(
        vbus.close(b.member, b.id).unwrap_err().kind(),
        Kind::NotFound
    );
    // Now the client may share again.
    Port::offer_as(&mut vbus, b.member).unwrap();
}

/// A place is given to another lender when no client reads the memory of the one before.
#[test]
fn a_lender_that_has_gone_is_withdrawn_when_its_frames_are_read() {
    let mut vbus = switch();
    let (mut a, mut b) = (Port::open(&mut vbus, 1), Port::open(&mut vbus, 1));
    acquaint(&mut vbus, &mut [&mut a, &mut b]);
    let frame = a.frame(b.mac, 7, LONG);
    a.send(&mut vbus, 0, &frame);
    settle(&mut vbus);
    vbus.leave(a.member);
    let mut c = Port::open(&mut vbus, 1);
    acquaint(&mut vbus, &mut [&mut b, &mut c]);
    assert!(
        b.known
            .values()
            .all(|(lender, _)| u64::from(*lender) == a.id.0)
    );
    let got = b.take().unwrap();
    assert_eq!(b.whole(&got), frame);
    b.post(&mut vbus, got.cookie);
    acquaint(&mut vbus, &mut [&mut b, &mut c]);
    assert!(
        b.known
            .values()
            .all(|(lender, _)| u64::from(*lender) == c.id.0)
    );
    // And back to no lender.
    vbus.leave(c.member);
    acquaint(&mut vbus, &mut [&mut b]);
    assert!(b.known.is_empty());
}

#[test]
fn only_where_both_agree_and_only_so_many() {
    let mut vbus = system("venet-switch");
    let refused = Port::offer(&mut vbus, 1).err().unwrap();
    assert_eq!(refused.kind(), Kind::Denied);
    vbus.set_attribute(&name("dev"), "share", "1").unwrap();
    let mut all: Vec<_> = (0..8).map(|_| Port::offer(&mut vbus, 1).unwrap()).collect();
    let refused = Port::offer(&mut vbus, 1).err().unwrap();
    assert_eq!(refused.kind(), Kind::Limit);
    let again = all[0].lend(&mut vbus).unwrap_err();
    assert_eq!(again.kind(), Kind::Exists);
    all[0].up(&mut vbus);
    // Those that are connected stay when the administrator wants no more.
    vbus.set_attribute(&name("dev"), "share", "0").unwrap();
    vbus.leave(all[1].member);
    assert_eq!(attribute(&vbus, "sharing"), 7);
    let refused = Port::offer(&mut vbus, 1).err().unwrap();
    assert_eq!(refused.kind(), Kind::Denied);
    // Before a queue is shared, and for devices of this class only.
    vbus.set_attribute(&name("dev"), "share", "1").unwrap();
    vbus.leave(all[2].member);
    all[2] = Port::offer(&mut vbus, 1).unwrap();
    let plain = Client::open(&mut vbus, 1);
    let (member, id) = (plain.member, plain.id);
    let table = || paravane_vbus::Table::open(plain.memory.clone(), 4096, 1, 1).unwrap();
    let refused = vbus.lend(member, id, || Ok(table())).unwrap_err();
    assert_eq!(refused.kind(), Kind::Busy);
    let mut echo = system("echo");
    let client = Client::open(&mut echo, 1);
    let refused = echo.lend(client.member, client.id, || Ok(table()));
    assert_eq!(refused.unwrap_err().kind(), Kind::NotFound);
}

/// Buffers that have no room for the record of a lent frame get a copy of the frame.
#[test]
fn small_buffers_get_copies() {
    const SMALL: usize = 300;
    let mut vbus = switch();
    let mut a = Port::open(&mut vbus, 1);
    let mut b = Port::offer(&mut vbus, 1).unwrap();
    let chain = [0, paravane_vbus::ethernet::cap::CHAIN].map(u32::to_le_bytes);
    vbus.call(b.member, b.id, 3, &chain.concat()).unwrap();
    b.up(&mut vbus);
    acquaint(&mut vbus, &mut [&mut a, &mut b]);
    vbus.call(b.member, b.id, 4, &[]).unwrap();
    while b.rx.take().unwrap().is_some() {}
    for number in 0..5 {
        let place = common::buffer(8192 + number * SMALL as u64, SMALL);
        b.rx.post(place).unwrap();
    }
    let frame = a.frame(b.mac, 7, LONG);
    a.send(&mut vbus, 0, &frame);
    settle(&mut vbus);
    assert_eq!((a.reclaim(), a.lent()), (1, vec![]));
    let parts: Vec<_> = std::iter::from_fn(|| b.take()).collect();
    assert_eq!(parts.len(), LONG.div_ceil(SMALL));
    let whole: Vec<u8> = parts.into_iter().flat_map(|part| part.bytes).collect();
    assert_eq!(whole, frame);
}

/// Tests where the words must be.
#[test]
fn words_outside_of_memory_are_refused() {
    let memory = common::Memory::new(4096);
    let open = |offset, slots| paravane_vbus::Table::open(memory.clone(), offset, slots, 64);
    let bytes = paravane_vbus_shm::loans::words(8) as u64 * 4;
    assert!(open(4096 - bytes, 8).is_ok());
    for (offset, slots) in [
        (4096 - bytes + 4, 8),
        (2, 8),
        (4096, 1),
        (8192, 1),
        (u64::MAX - 3, 1),
        (0, u32::MAX),
    ] {
        assert!(open(offset, slots).is_err(), "{offset} {slots}");
    }
    let table = open(0, 8).unwrap();
    let first = paravane_vbus::spaces::base(1);
    assert_eq!(table.slot(first + 64, 64), Some(1));
    assert_eq!(table.slot(first + 7 * 64 + 63, 1), Some(7));
    for (ptr, len) in [
        (64, 1),
        (first + 63, 2),
        (first + 8 * 64, 1),
        (first, 0),
        (first - 1, 2),
        (2 * first, 1),
        (u64::MAX, 1),
        (first, usize::MAX),
    ] {
        assert_eq!(table.slot(ptr, len), None, "{ptr:#x} {len}");
    }
}
