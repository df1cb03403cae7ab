// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bridge and a card on the user-mode network, with a guest that the test plays.

use crate::card::cap;
use crate::test_guest::{Answer, Ask, COMMAND, COUNT, DATA, Guest, MEMORY, RINGS};
use crate::{Bridge, Stack};
use paravane_devices::{OwnDevice, refused};
use paravane_net::user::{Config, Network};
use paravane_vbus_shm::layout::{self, Bridge as Registers, Command};
use paravane_vbus_shm::ring::Role;
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use vm_memory::{Bytes, GuestAddress};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

pub fn guest() -> Guest {
    let network = Network::new(Config::default()).unwrap();
    Guest::new(Bridge::stack(Stack::new(network, MAC)).unwrap())
}

/// Who has 10.0.2.2?
pub fn query() -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(MAC);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(MAC);
    frame.extend([10, 0, 2, 15, 0, 0, 0, 0, 0, 0, 10, 0, 2, 2]);
    frame
}

pub fn is_answer(frame: &[u8]) -> bool {
    frame.len() == 42
        && frame[..6] == MAC
        && frame[20..22] == [0, 2]
        && frame[28..32] == [10, 0, 2, 2]
}

#[test]
fn a_driver_finds_the_card_and_asks_it() {
    let mut guest = guest();
    let register = |guest: &Guest, offset| guest.page.register(offset).load(Ordering::SeqCst);
    let magic = register(&guest, offset_of!(Registers, magic));
    assert_eq!(u64::from(magic), layout::VBUS_BRIDGE_MAGIC);
    // Nothing before it has begun.
    let early = guest.ask(layout::VBUS_COMMAND_INTERFACE, Ask::default());
    assert_eq!(u64::from(early.status), layout::VBUS_ERROR_INVALID);
    assert_eq!(
        guest.ask(layout::VBUS_COMMAND_START, Ask::default()).status,
        0
    );
    let ask = Ask {
        data: DATA,
        ..Ask::default()
    };
    let found = guest.ask(layout::VBUS_COMMAND_INTERFACE, ask);
    let expected = Answer {
        status: 0,
        interface: 1,
        number: 1,
        length: 16,
        connection: 0,
    };
    assert_eq!(found, expected);
    let mut name = [0; 16];
    guest
        .memory
        .read_slice(&mut name, GuestAddress(DATA))
        .unwrap();
    assert_eq!(&name, b"virtual-ethernet");
    let none = guest.ask(
        layout::VBUS_COMMAND_INTERFACE,
        Ask {
            interface: 1,
            ..ask
        },
    );
    assert_eq!(u64::from(none.status), layout::VBUS_ERROR_NOT_FOUND);
    let open = Ask {
        interface: 1,
        number: 1,
        ..Ask::default()
    };
    assert_eq!(guest.ask(layout::VBUS_COMMAND_OPEN, open).status, 0);
    assert_eq!(
        guest.call(layout::VBUS_ETHERNET_MACQUERY, &[]).unwrap(),
        MAC
    );
    let mtu = 65_520u16.to_le_bytes();
    assert_eq!(
        guest.call(layout::VBUS_ETHERNET_MTUQUERY, &[]).unwrap(),
        [mtu, mtu].concat()
    );
    // A group that the card does not have, and all bits of those that it has.
    let none = guest.call(layout::VBUS_ETHERNET_NEGCAP, &[2, 0, 0, 0, 255, 0, 0, 0]);
    assert_eq!(none.unwrap(), [2, 0, 0, 0, 0, 0, 0, 0]);
    let events = guest.call(layout::VBUS_ETHERNET_NEGCAP, &[1, 0, 0, 0, 255, 0, 0, 0]);
    assert_eq!(events.unwrap(), [1, 0, 0, 0, 1, 0, 0, 0]);
    let all = guest.call(
        layout::VBUS_ETHERNET_NEGCAP,
        &[0, 0, 0, 0, 255, 255, 255, 255],
    );
    assert_eq!(all.unwrap(), [0, 0, 0, 0, 7, 0, 0, 0]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut guest = guest();
    guest.up(0);
    let refused = |guest: &mut Guest, command, ask| u64::from(guest.ask(command, ask).status);
    let high = Ask {
        connection: u32::MAX,
        queue: 9,
        number: COUNT,
        data: RINGS,
        ..Ask::default()
    };
    for command in [
        layout::VBUS_COMMAND_CLOSE,
        layout::VBUS_COMMAND_SHARE,
        layout::VBUS_COMMAND_CALL,
    ] {
        assert_eq!(
            refused(&mut guest, command, high),
            layout::VBUS_ERROR_NOT_FOUND
        );
    }
    assert_eq!(refused(&mut guest, 99, high), layout::VBUS_ERROR_NOT_FOUND);
    // A second connection, a queue that is shared, a queue outside of memory, or too long.
    let again = Ask {
        interface: 1,
        number: 1,
        ..Ask::default()
    };
    assert_eq!(
        refused(&mut guest, layout::VBUS_COMMAND_OPEN, again),
        layout::VBUS_ERROR_BUSY
    );
    assert_eq!(
        u64::from(guest.share(1, Role::Transmit)),
        layout::VBUS_ERROR_EXISTS
    );
    let share = Ask {
        queue: 1,
        number: COUNT,
        ..Ask::default()
    };
    for (data, number, status) in [
        (MEMORY as u64 - 64, COUNT, layout::VBUS_ERROR_INVALID),
        (u64::MAX - 63, COUNT, layout::VBUS_ERROR_INVALID),
        (RINGS, 1 << 20, layout::VBUS_ERROR_LIMIT),
        (RINGS, 3, layout::VBUS_ERROR_BROKEN),
        (RINGS + 4, COUNT, layout::VBUS_ERROR_BROKEN),
    ] {
        let ask = Ask {
            data,
            number,
            ..share
        };
        assert_eq!(refused(&mut guest, layout::VBUS_COMMAND_SHARE, ask), status);
    }
    let long = Ask {
        data: DATA,
        length: 1025,
        ..Ask::default()
    };
    assert_eq!(
        refused(&mut guest, layout::VBUS_COMMAND_CALL, long),
        layout::VBUS_ERROR_LIMIT
    );
    // Commands where no memory is, or not at their place, are none.
    guest
        .memory
        .write_obj(77u32, GuestAddress(COMMAND + 4))
        .unwrap();
    for address in [MEMORY as u64, u64::MAX - 63, COMMAND + 4] {
        guest.store(address);
    }
    let status: u32 = guest.memory.read_obj(GuestAddress(COMMAND + 4)).unwrap();
    assert_eq!(status, 77);
}

#[test]
fn a_frame_comes_back_in_one_buffer() {
    let mut guest = guest();
    guest.up(0);
    guest.post(2, 2048);
    guest.send(&[(&query(), 0)]);
    guest.work(1);
    let frames = guest.received();
    assert!(frames.len() == 1 && is_answer(&frames[0].0), "{frames:?}");
    assert!(guest.tx.as_mut().unwrap().north.take().unwrap().is_some());
}

#[test]
fn frames_have_parts_where_both_sides_agree() {
    let mut guest = guest();
    guest.up(u64::from(cap::CHAIN));
    // Three buffers for 42 bytes, and the rest for another frame.
    guest.post(4, 16);
    let frame = query();
    let more = layout::VBUS_ETHERNET_MORE;
    guest.send(&[(&frame[..3], more), (&frame[3..14], more)]);
    guest.work(1);
    assert_eq!(guest.received(), []);
    guest.send(&[(&frame[14..], 0), (&frame, 0)]);
    guest.work(1);
    let parts = guest.received();
    let whole: Vec<u8> = parts.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    assert!(is_answer(&whole), "{parts:?}");
    let more = parts.iter().map(|(_, flags)| flags & 1).collect::<Vec<_>>();
    assert_eq!(more, [1, 1, 0]);
    // One buffer was left: too few for the second answer, which waits for more.
    guest.post(2, 16);
    guest.work(1);
    let rest = guest.received();
    assert_eq!(rest.iter().map(|(bytes, _)| bytes.len()).sum::<usize>(), 42);
}

#[test]
fn parts_without_bytes_or_end_break_the_connection() {
    let more = layout::VBUS_ETHERNET_MORE;
    let long = vec![0; 4096];
    let endless: Vec<(&[u8], u64)> = vec![(&long, more); COUNT as usize];
    for (frame, times) in [(&[(&[][..], more)][..], 1), (&endless[..], 2)] {
        let mut guest = guest();
        guest.up(u64::from(cap::CHAIN));
        let before = guest.count.raised.load(Ordering::SeqCst);
        for _ in 0..times {
            guest.send(frame);
            guest.work(1);
            while guest.tx.as_mut().unwrap().north.take().unwrap().is_some() {}
        }
        assert!(guest.count.raised.load(Ordering::SeqCst) > before);
        let event = guest.ask(layout::VBUS_COMMAND_EVENT, Ask::default());
        assert_eq!(
            (u64::from(event.number), event.connection),
            (layout::VBUS_EVENT_CLOSED, 0)
        );
        // The number is free again when the driver has closed it, too.
        let none = guest.call(layout::VBUS_ETHERNET_MACQUERY, &[]);
        assert_eq!(none, Err(crate::card::word(layout::VBUS_ERROR_NOT_FOUND)));
        assert_eq!(
            guest.ask(layout::VBUS_COMMAND_CLOSE, Ask::default()).status,
            0
        );
        guest.up(0);
    }
}

#[test]
fn a_driver_that_looks_by_itself_is_not_interrupted() {
    let mut guest = guest();
    guest.up(0);
    guest.post(8, 2048);
    let query = query();
    guest.send(&[(&query, 0)]);
    guest.work(1);
    let before = guest.count.raised.load(Ordering::SeqCst);
    for _ in 0..3 {
        guest.send(&[(&query, 0)]);
        guest.work(1);
    }
    assert_eq!(guest.received().len(), 4);
    assert_eq!(
        guest.count.raised.load(Ordering::SeqCst),
        before,
        "no queue waits"
    );
    // It waits now, and is interrupted once for two frames.
    let _ = guest.rx.as_ref().unwrap().here.rest();
    guest.send(&[(&query, 0), (&query, 0)]);
    guest.work(1);
    assert_eq!(guest.count.raised.load(Ordering::SeqCst), before + 1);
}

/// A driver that waits for both gets one interrupt for a frame that was sent and one that came.
#[test]
fn a_round_is_one_interrupt() {
    let mut guest = guest();
    guest.up(0);
    guest.post(8, 2048);
    guest.work(1);
    for ring in [guest.rx.as_ref().unwrap(), guest.tx.as_ref().unwrap()] {
        let _ = ring.here.rest();
    }
    let before = guest.count.raised.load(Ordering::SeqCst);
    guest.send(&[(&query(), 0)]);
    guest.work(1);
    assert_eq!(guest.count.raised.load(Ordering::SeqCst), before + 1);
    assert_eq!(guest.received().len(), 1);
    assert!(guest.tx.as_mut().unwrap().north.take().unwrap().is_some());
}

#[test]
fn the_bridge_asks_for_notifications_only_while_it_sleeps() {
    let mut guest = guest();
    guest.up(0);
    guest.post(8, 2048);
    guest.work(1);
    let query = query();
    guest.send(&[(&query, 0)]);
    assert!(guest.tx.as_ref().unwrap().there.inject(), "it sleeps");
    guest.send(&[(&query, 0)]);
    assert!(!guest.tx.as_ref().unwrap().there.inject(), "it was told");
    guest.bridge.serve(false, 1);
    assert_eq!(guest.received().len(), 2);
    guest.work(1);
    guest.send(&[(&query, 0)]);
    assert!(guest.tx.as_ref().unwrap().there.inject(), "it sleeps again");
}

#[test]
fn another_driver_finds_nothing_of_the_first() {
    let mut guest = guest();
    guest.up(0);
    guest.post(1, 2048);
    guest.send(&[(&query(), 0)]);
    // The first one's queues have ended with it.
    guest.up(u64::from(cap::CHAIN));
    guest.work(1);
    assert_eq!(guest.received(), []);
    guest.post(1, 2048);
    guest.send(&[(&query(), 0)]);
    guest.work(1);
    assert_eq!(guest.received().len(), 1);
}

/// The call `bus.command` carries out a command as a store does, and returns the status.
#[test]
fn a_command_by_a_call_answers() {
    let mut guest = guest();
    guest.up(0);
    let before = guest.counters.read();
    assert!(before.commands > 0 && before.commands_called == 0);
    for (command, status) in [
        (layout::VBUS_COMMAND_EVENT, layout::VBUS_DONE),
        (99, layout::VBUS_ERROR_NOT_FOUND),
    ] {
        let at = COMMAND + offset_of!(Command, command) as u64;
        let command = crate::card::word(command);
        guest.memory.write_obj(command, GuestAddress(at)).unwrap();
        let answer = guest.bridge.command(COMMAND);
        assert_eq!(u64::try_from(answer), Ok(status));
        let at = COMMAND + offset_of!(Command, status) as u64;
        let shown: u32 = guest.memory.read_obj(GuestAddress(at)).unwrap();
        assert_eq!(u64::from(shown), status);
    }
    // Commands where no memory is, or not at their place, are none, and it says so.
    for address in [MEMORY as u64, u64::MAX - 63, COMMAND + 4] {
        let answer = guest.bridge.command(address);
        assert_eq!(answer, refused(paravane_abi::EFAULT), "{address:#x}");
    }
    let figures = guest.counters.read();
    assert_eq!(
        (figures.commands, figures.commands_called),
        (before.commands + 5, 5)
    );
}
