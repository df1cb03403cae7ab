// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of several parts while one device ends amid them and another one comes.
#![allow(clippy::unwrap_used)]

use super::{Put, Queues};
use crate::control::Error;
use crate::events::{self, Events};
use paravane_vbus::{Content, Parts, Region, limits};
use paravane_vbus_shm::Role;
use paravane_vbus_shm::memory::{Queue, size};
use paravane_vbus_shm::south::{Place, South};

const COUNT: u32 = 8;
const BUFFER: usize = 100;
const MORE: u32 = 1;

/// The queues of a client that has posted all receive buffers.
fn queues() -> Queues {
    let mut queues = Queues::new([COUNT; 2], u32::try_from(BUFFER).unwrap()).unwrap();
    while queues.rx.post_next().unwrap() {}
    queues
}

/// A device that attaches now.
fn attach(queues: &Queues, role: Role) -> South<'static> {
    South::attach(ring(queues, COUNT, role).ring, role).unwrap()
}

/// A ring of the queues, as the device sees it. `count`: descriptors of the first ring.
fn ring(queues: &Queues, count: u32, role: Role) -> Queue<'static> {
    let offset = match role {
        Role::Receive => 0,
        Role::Transmit => usize::try_from(Queues::tx_offset(count)).unwrap(),
    };
    let start = queues.memory.range().0;
    // SAFETY: the ring is there, in memory that the test keeps longer.
    unsafe { Queue::open(start.add(offset), size(count), count, role) }.unwrap()
}

/// Gives the client a part of a packet: `len` bytes of this value.
fn fill(queues: &Queues, south: &mut South<'_>, (len, value): (usize, u8), flags: u32) {
    let place = south.take().unwrap().unwrap();
    queues.memory().write(place.ptr, &vec![value; len]).unwrap();
    south.fill(&place, u32::try_from(len).unwrap(), flags);
}

/// The next packet that the client has received.
fn receive(queues: &mut Queues, parts: &mut Parts) -> Option<Vec<u8>> {
    if !queues.collect(parts, limits::PACKET, MORE).unwrap() {
        return None;
    }
    let mut packet = vec![0; parts.len()];
    parts.read(queues.memory(), 0, &mut packet).unwrap();
    queues.forget(parts).unwrap();
    Some(packet)
}

#[test]
fn a_packet_takes_as_many_buffers_as_it_needs() {
    let mut queues = queues();
    let mut south = attach(&queues, Role::Transmit);
    let packet: Vec<u8> = (0..250).collect();
    for _ in 0..5 {
        let content = Content::of(&packet);
        assert!(queues.put(&content, 0xab0 | MORE, MORE).unwrap());
        let mut seen = Vec::new();
        for (len, flags) in [(100, 0xab0 | MORE), (100, MORE), (50, 0)] {
            let place = south.take().unwrap().unwrap();
            assert_eq!((place.len, place.flags), (len, flags));
            let start = seen.len();
            seen.resize(start + len as usize, 0);
            let part = seen.get_mut(start..).unwrap();
            queues.memory().read(place.ptr, part).unwrap();
        }
        assert_eq!(seen, packet);
        // Not in part: two packets of three descriptors fill all but two.
        assert!(queues.put(&content, 0, MORE).unwrap());
        assert!(!queues.put(&content, 0, MORE).unwrap());
        while south.take().unwrap().is_some() {}
        while south.complete() {}
        while queues.tx.take().unwrap().is_some() {}
    }
    let long = [0; BUFFER + 1];
    let refused = queues.put(&Content::of(&long), 0, 0);
    assert!(matches!(refused, Err(Put::Failed(Error::Invalid(_)))));
    let endless = vec![0; BUFFER * COUNT as usize + 1];
    let refused = queues.put(&Content::of(&endless), 0, MORE);
    assert!(matches!(refused, Err(Put::Failed(Error::Invalid(_)))));
}

#[test]
fn a_packet_that_a_device_has_half_given_is_forgotten() {
    for (taken, rest) in [(0, 2), (1, 1), (2, 0)] {
        let (mut queues, mut parts) = (queues(), Parts::default());
        let mut south = attach(&queues, Role::Receive);
        fill(&queues, &mut south, (10, 1), 0);
        for _ in 0..taken {
            fill(&queues, &mut south, (BUFFER, 2), MORE);
        }
        // The client has seen a part of it, or nothing at all.
        if taken > 0 {
            assert_eq!(receive(&mut queues, &mut parts), Some(vec![1; 10]));
            assert_eq!(receive(&mut queues, &mut parts), None);
        }
        for _ in 0..rest {
            fill(&queues, &mut south, (BUFFER, 2), MORE);
        }
        let mut south = attach(&queues, Role::Receive);
        queues.attached(&mut parts).unwrap();
        fill(&queues, &mut south, (20, 3), MORE);
        fill(&queues, &mut south, (20, 3), 0);
        if taken == 0 {
            // A frame that was complete before is not lost.
            assert_eq!(receive(&mut queues, &mut parts), Some(vec![1; 10]));
        }
        assert_eq!(receive(&mut queues, &mut parts), Some(vec![3; 40]));
        assert_eq!(receive(&mut queues, &mut parts), None);
        assert_eq!(queues.rx.outstanding(), COUNT);
    }
}

#[test]
fn a_packet_that_a_device_has_half_taken_is_emptied() {
    for taken in 0..3 {
        let mut queues = queues();
        let mut south = attach(&queues, Role::Transmit);
        let packet = [7; 2 * BUFFER + 10];
        assert!(queues.put(&Content::of(&packet), 0, MORE).unwrap());
        assert!(queues.put(&Content::of(&[8; 10]), 0, MORE).unwrap());
        for _ in 0..taken {
            assert!(south.take().unwrap().is_some() && south.complete());
        }
        while queues.tx.take().unwrap().is_some() {}
        queues.mend();
        let mut south = attach(&queues, Role::Transmit);
        let mut parts = Parts::default();
        let mut lengths = Vec::new();
        while let Some(place) = south.take().unwrap() {
            let Place { len, flags, .. } = place;
            parts.push(place, limits::PACKET, MORE).unwrap();
            if flags & MORE == 0 {
                lengths.push(parts.len());
                parts.clear();
            }
            assert!(len > 0 || taken > 0);
        }
        let expected: &[usize] = match taken {
            0 => &[2 * BUFFER + 10, 10],
            1 => &[0, 0, 10],
            _ => &[0, 10],
        };
        assert_eq!(lengths, expected, "after {taken}");
    }
}

#[test]
fn nothing_is_left_for_a_device_that_has_agreed_on_something_else() {
    for taken in [false, true] {
        let (mut queues, mut parts) = (queues(), Parts::default());
        let packet = [7; 2 * BUFFER];
        assert!(queues.put(&Content::of(&packet), 0, MORE).unwrap());
        let mut south = attach(&queues, Role::Receive);
        fill(&queues, &mut south, (BUFFER, 2), MORE);
        if taken {
            assert_eq!(receive(&mut queues, &mut parts), None);
        }
        fill(&queues, &mut south, (10, 2), 0);
        queues.empty();
        let mut sender = attach(&queues, Role::Transmit);
        for _ in 0..2 {
            let place = sender.take().unwrap().unwrap();
            assert_eq!((place.len, place.flags), (0, 0));
        }
        let mut south = attach(&queues, Role::Receive);
        queues.attached(&mut parts).unwrap();
        queues.forget_all(&mut parts).unwrap();
        fill(&queues, &mut south, (20, 3), 0);
        assert_eq!(receive(&mut queues, &mut parts), Some(vec![3; 20]));
        assert_eq!(receive(&mut queues, &mut parts), None);
        assert_eq!(queues.rx.outstanding(), COUNT);
    }
}

/// The client takes an event before the device notifies it. The device notifies it of the next one.
#[test]
fn an_event_that_is_told_late_hides_no_other() {
    let mut queues = Queues::pairs(&[events::SHAPE], 0).unwrap().0.pop().unwrap();
    while queues.rx.post_next().unwrap() {}
    let count = events::SHAPE.counts[0];
    let ring = ring(&queues, count, Role::Receive);
    let mut south = South::attach(ring.ring, Role::Receive).unwrap();
    let mut events = Events::new(queues);
    events.agree(true);
    events.attached().unwrap();
    let mut store = |events: &Events, up: u32| {
        let mut event = vec![0; events::SHAPE.buffer as usize];
        event.splice(..8, [events::LINK, up].map(u32::to_le_bytes).concat());
        let place = south.take().unwrap().unwrap();
        events.queues().memory().write(place.ptr, &event).unwrap();
        south.fill(&place, events::SHAPE.buffer, 0);
    };
    for up in [0, 1, 0] {
        store(&events, up);
        assert_eq!(events.take().unwrap().0, up != 0);
        assert!(ring.to_north.inject(), "it is told of");
        // The client has nothing to take, and sleeps.
        assert_eq!(events.take().unwrap(), (up != 0, false));
        assert!(events.rest());
    }
    store(&events, 1);
    assert!(ring.to_north.inject(), "it is told of");
    assert!(!events.rest(), "it is to be taken");
    assert!(events.take().unwrap().0);
}
