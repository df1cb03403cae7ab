// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card with several pairs of queues, and its events, with a guest that the test plays.

use crate::card::STALL;
use crate::test_guest::{Ask, COUNT, Guest, RINGS};
use crate::tests::{guest, is_answer, query};
use paravane_devices::OwnDevice;
use paravane_vbus_shm::layout;
use paravane_vbus_shm::ring::Role;
use std::time::Instant;

/// Whether the pair has got the answer to its question, and nothing else.
fn answered(guest: &mut Guest, pair: usize) -> bool {
    guest.switch_to(pair);
    let received = guest.received();
    assert!(received.iter().all(|(frame, _)| is_answer(frame)));
    assert!(received.len() < 2);
    received.len() == 1
}

#[test]
fn an_answer_comes_by_the_pair_of_the_question() {
    let mut guest = guest();
    guest.up_pairs(0, 4);
    for pair in 0..4 {
        guest.switch_to(pair);
        guest.post(4, 2048);
    }
    for pair in [2, 0, 3, 1] {
        guest.switch_to(pair);
        guest.send(&[(&query(), 0)]);
        guest.work(1);
        for other in 0..4 {
            assert_eq!(answered(&mut guest, other), other == pair, "{other} {pair}");
        }
    }
}

/// A pair that never posts a buffer delays its own answer for a moment, and no later answer.
#[test]
fn a_pair_that_stands_still_stops_no_other() {
    let mut guest = guest();
    guest.up_pairs(0, 2);
    guest.switch_to(1);
    guest.post(8, 2048);
    guest.switch_to(0);
    let begun = Instant::now();
    guest.send(&[(&query(), 0)]);
    guest.work(1);
    // It may post one yet.
    let early = answered(&mut guest, 1);
    assert!(!early || begun.elapsed() > STALL);
    std::thread::sleep(STALL);
    guest.bridge.serve(true, 0);
    guest.work(0);
    let brought = answered(&mut guest, 1);
    assert!(brought != early, "the other pair brings it");
    for _ in 0..3 {
        guest.switch_to(1);
        guest.send(&[(&query(), 0)]);
        guest.work(1);
        assert!(answered(&mut guest, 1));
    }
    // A pair whose frame never ends does not do so either.
    let mut guest = self::guest();
    guest.up_pairs(layout::VBUS_ETHERNET_CAP_CHAIN, 2);
    guest.send(&[(&query()[..20], layout::VBUS_ETHERNET_MORE)]);
    guest.switch_to(1);
    guest.post(8, 2048);
    guest.send(&[(&query(), 0)]);
    guest.work(1);
    assert!(answered(&mut guest, 1));
}

/// The bridge wakes by itself for the frames of a pair that is stalled.
#[test]
fn a_pair_that_stands_still_is_looked_at_in_time() {
    let mut guest = guest();
    guest.up_pairs(0, 2);
    guest.switch_to(1);
    guest.post(8, 2048);
    guest.switch_to(0);
    guest.send(&[(&query(), 0)]);
    guest.work(1);
    let reactor = std::sync::Arc::clone(&guest.reactor);
    let stop = std::sync::Arc::clone(&reactor);
    let (report, reports) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        reactor.run(|device| {
            let _ = report.send(device);
        })
    });
    let woken = reports.recv_timeout(STALL * 100);
    stop.stop();
    thread.join().unwrap().unwrap();
    assert!(woken.is_ok(), "nothing wakes the bridge");
}

/// Posts buffers for a pair, and waits for both of its queues.
fn wait(guest: &mut Guest, pair: usize) {
    guest.switch_to(pair);
    guest.post(4, 2048);
    for ring in [guest.rx.as_ref().unwrap(), guest.tx.as_ref().unwrap()] {
        let _ = ring.here.rest();
    }
}

#[test]
fn each_pair_has_the_interrupt_that_the_guest_chose() {
    let mut guest = guest();
    guest.up_pairs(0, 3);
    for pair in 0..3 {
        wait(&mut guest, pair);
    }
    guest.work(1);
    guest.interrupts();
    // The queues of pair 1 have one interrupt, those of pair 2 two, those of pair 0 the line.
    for (queue, apic, vector) in [(3, 1, 0x41), (4, 1, 0x41), (5, 0, 0x42), (6, 1, 0x43)] {
        assert_eq!(guest.choose(queue, apic, vector), 0);
    }
    let expected = [
        (1, vec![]),
        (0, vec![(1, 0x41)]),
        (0, vec![(0, 0x42), (1, 0x43)]),
    ];
    for (pair, expected) in expected.into_iter().enumerate() {
        guest.switch_to(pair);
        guest.send(&[(&query(), 0)]);
        guest.work(1);
        assert!(answered(&mut guest, pair));
        assert_eq!(guest.interrupts(), expected, "{pair}");
        wait(&mut guest, pair);
    }
    // All pairs in one round: each is notified once.
    for pair in 0..3 {
        guest.switch_to(pair);
        guest.send(&[(&query(), 0)]);
    }
    guest.work(1);
    let (line, mut own) = guest.interrupts();
    own.sort_unstable();
    assert_eq!((line, own), (1, vec![(0, 0x42), (1, 0x41), (1, 0x43)]));
}

#[test]
fn an_interrupt_ends_with_its_connection() {
    let mut guest = guest();
    for end in [layout::VBUS_COMMAND_CLOSE, layout::VBUS_COMMAND_START] {
        guest.up_pairs(0, 1);
        assert_eq!(guest.choose(0, 1, 0x41), 0);
        assert_eq!(guest.choose(2, 0, 0x42), 0);
        assert_eq!(guest.choose(3, 0, 0x42), layout::VBUS_ERROR_NOT_FOUND);
        assert_eq!(guest.ask(end, Ask::default()).status, 0);
        assert_ne!(guest.choose(0, 1, 0x41), 0);
        guest.up_pairs(0, 1);
        wait(&mut guest, 0);
        guest.work(1);
        guest.interrupts();
        guest.send(&[(&query(), 0)]);
        guest.work(1);
        assert_eq!(guest.interrupts(), (1, vec![]));
    }
    // So does one that the other side has ended, before the guest closes it, too.
    let second = RINGS + 0x1000 + 448 + 32;
    let at = vm_memory::GuestAddress(second + 28);
    vm_memory::Bytes::write_obj(&*guest.memory, 7_u32, at).unwrap();
    guest.work(1);
    let closed = guest.ask(layout::VBUS_COMMAND_EVENT, Ask::default());
    assert_eq!(u64::from(closed.number), layout::VBUS_EVENT_CLOSED);
    assert_eq!(guest.choose(0, 1, 0x41), layout::VBUS_ERROR_NOT_FOUND);
}

#[test]
fn a_card_tells_how_its_link_is() {
    let mut guest = guest();
    guest.up_pairs(0, 1);
    guest.work(1);
    let memory = std::sync::Arc::clone(&guest.memory);
    let events = guest.events.as_mut().unwrap();
    assert!(events.received(&memory).is_empty());
    // It waits for a buffer.
    events.post(2, 16);
    guest.work(1);
    let up = [[1, 0, 0, 0], [1, 0, 0, 0], [0; 4], [0; 4]].concat();
    let events = guest.events.as_mut().unwrap();
    assert_eq!(events.received(&memory), [(up, 0)]);
    guest.work(1);
    let events = guest.events.as_mut().unwrap();
    assert!(events.received(&memory).is_empty(), "once");
}

#[test]
fn what_makes_no_sense_of_pairs_is_refused() {
    let mut guest = guest();
    let open = |guest: &mut Guest| {
        guest.ask(layout::VBUS_COMMAND_START, Ask::default());
        let ask = Ask {
            interface: 1,
            number: 1,
            ..Ask::default()
        };
        assert_eq!(guest.ask(layout::VBUS_COMMAND_OPEN, ask).status, 0);
    };
    let pairs = |guest: &mut Guest, bytes: &[u8]| guest.call(layout::VBUS_ETHERNET_PAIRS, bytes);
    let share = |guest: &mut Guest, queue, role| u64::from(guest.share(queue, role));
    open(&mut guest);
    for bytes in [&[][..], &[0; 4], &[1, 0, 0], &[1, 0, 0, 0, 0]] {
        let refused = pairs(&mut guest, bytes).map_err(u64::from);
        assert_eq!(refused, Err(layout::VBUS_ERROR_INVALID), "{bytes:?}");
    }
    // It never gets more than there are.
    assert_eq!(pairs(&mut guest, &[0xff; 4]).unwrap(), [8, 0, 0, 0]);
    assert_eq!(pairs(&mut guest, &[2, 0, 0, 0]).unwrap(), [2, 0, 0, 0]);
    // Without a capability there is no event queue, and no pair beyond the second.
    let nothing = guest.call(layout::VBUS_ETHERNET_EVQQUERY, &[]);
    assert_eq!(
        nothing.map_err(u64::from),
        Err(layout::VBUS_ERROR_NOT_FOUND)
    );
    for (queue, role) in [
        (2, Role::Receive),
        (5, Role::Receive),
        (6, Role::Transmit),
        (17, Role::Receive),
    ] {
        let refused = share(&mut guest, queue, role);
        assert_eq!(refused, layout::VBUS_ERROR_NOT_FOUND, "{queue}");
    }
    for (queue, role) in [(0, Role::Receive), (1, Role::Transmit), (3, Role::Receive)] {
        assert_eq!(share(&mut guest, queue, role), 0);
    }
    assert_eq!(
        share(&mut guest, 3, Role::Receive),
        layout::VBUS_ERROR_EXISTS
    );
    // All of them are needed, and none may be more or less than was agreed on.
    let up = guest
        .call(layout::VBUS_ETHERNET_LINKUP, &[])
        .map_err(u64::from);
    assert_eq!(up, Err(layout::VBUS_ERROR_INVALID));
    for (call, bytes) in [
        (layout::VBUS_ETHERNET_PAIRS, &[1, 0, 0, 0][..]),
        (layout::VBUS_ETHERNET_NEGCAP, &[1, 0, 0, 0, 1, 0, 0, 0]),
    ] {
        let late = guest.call(call, bytes).map_err(u64::from);
        assert_eq!(late, Err(layout::VBUS_ERROR_BUSY));
    }
    assert_eq!(share(&mut guest, 4, Role::Transmit), 0);
    guest.call(layout::VBUS_ETHERNET_LINKUP, &[]).unwrap();
    // A breach of any pair resets the connection.
    let at = vm_memory::GuestAddress(RINGS + 4 * 0x1000 + 448 + 28);
    vm_memory::Bytes::write_obj(&*guest.memory, 7_u32, at).unwrap();
    guest.work(1);
    let closed = guest.ask(layout::VBUS_COMMAND_EVENT, Ask::default());
    assert_eq!(u64::from(closed.number), layout::VBUS_EVENT_CLOSED);
    const { assert!(COUNT > 8) };
    // Another driver begins with one pair.
    guest.up(0);
    guest.switch_to(0);
    guest.post(4, 2048);
    guest.send(&[(&query(), 0)]);
    guest.work(1);
    assert!(answered(&mut guest, 0));
}
