// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! Compares the ioq with a model, and tests each of its rules alone.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{AnyNorth, Area, alone, buffer, compare, steps};
use paravane_vbus_shm::atomic::Ordering;
use paravane_vbus_shm::fault::{Fault, plant};
use paravane_vbus_shm::north::{Buffer, North, Posted, Refused, Returned};
use paravane_vbus_shm::ring::{Breach, NORTH, Role, SOUTH};
use paravane_vbus_shm::south::South;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::panic::catch_unwind;

const ROLES: [Role; 2] = [Role::Transmit, Role::Receive];

impl AnyNorth for North<'_, Vec<Posted>> {
    fn post(&mut self, buffer: Buffer) -> Result<(), Refused> {
        North::post(self, buffer)
    }
    fn take(&mut self) -> Result<Option<Returned>, Breach> {
        North::take(self)
    }
    fn outstanding(&self) -> u32 {
        North::outstanding(self)
    }
}

fn north(area: &Area, count: u32, role: Role, start: u32) -> North<'_, Vec<Posted>> {
    let posted = vec![Posted::default(); count as usize];
    North::begin(area.make(count, role).ring, role, posted, start).unwrap()
}

fn model() {
    let inputs = (
        0u32..5,
        any::<bool>(),
        prop_oneof![Just(0), any::<u32>()],
        steps(),
    );
    TestRunner::default()
        .run(&inputs, |(shift, transmit, start, steps)| {
            let (count, role) = (1 << shift, ROLES[usize::from(!transmit)]);
            let area = Area::new(count);
            compare(
                &area,
                count,
                role,
                &mut north(&area, count, role, start),
                &steps,
            );
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_ring_is_as_its_model() {
    let _alone = alone();
    model();
}

/// A descriptor that the north hands over without an index that covers it.
fn uncovered() {
    for role in ROLES {
        let area = Area::new(4);
        let mut north = north(&area, 4, role, u32::MAX);
        let queue = area.open(4, role).unwrap();
        let mut south = South::attach(queue.ring, role).unwrap();
        north.post(buffer(1, 10)).unwrap();
        let place = south.take().unwrap().unwrap();
        // The next one is not posted.
        queue.ring.descriptors[0]
            .owner
            .store(SOUTH, Ordering::Relaxed);
        if role == Role::Receive {
            assert!(south.fill(&place, 1, 0));
        }
        let breach = Breach::Index { slot: 0, value: 0 };
        assert_eq!(south.take(), Err(breach), "{role:?}");
        assert_eq!((south.take(), south.breach()), (Err(breach), Some(breach)));
    }
}

#[test]
fn what_no_index_covers_is_a_breach() {
    let _alone = alone();
    uncovered();
}

fn too_long() {
    let area = Area::new(2);
    let mut north = north(&area, 2, Role::Receive, 7);
    let queue = area.open(2, Role::Receive).unwrap();
    let mut south = South::attach(queue.ring, Role::Receive).unwrap();
    north.post(buffer(1, 100)).unwrap();
    let place = south.take().unwrap().unwrap();
    assert!(south.fill(&place, 1000, 0));
    let descriptor = &queue.ring.descriptors[1];
    assert_eq!(descriptor.used.load(Ordering::Relaxed), 100);
    // The south may not lengthen the buffer either.
    descriptor.used.store(101, Ordering::Relaxed);
    descriptor.len.store(200, Ordering::Relaxed);
    let breach = Breach::Length {
        slot: 1,
        used: 101,
        posted: 100,
    };
    assert_eq!(north.take(), Err(breach));
    assert_eq!(north.post(buffer(2, 1)), Err(Refused::Breach(breach)));
    assert_eq!((north.take(), north.breach()), (Err(breach), Some(breach)));
}

#[test]
fn a_packet_longer_than_its_buffer_is_a_breach() {
    let _alone = alone();
    too_long();
}

#[test]
fn an_owner_that_is_no_side_is_a_breach() {
    let _alone = alone();
    for role in ROLES {
        let area = Area::new(1);
        let mut north = north(&area, 1, role, 0);
        north.post(buffer(1, 1)).unwrap();
        let queue = area.open(1, role).unwrap();
        let mut south = South::attach(queue.ring, role).unwrap();
        queue.ring.descriptors[0].owner.store(2, Ordering::Relaxed);
        let breach = Breach::Owner { slot: 0, value: 2 };
        assert!(
            south.ready() && north.ready(),
            "an error is something to look at"
        );
        assert_eq!(south.take(), Err(breach));
        assert_eq!(north.take(), Err(breach));
        assert_eq!(South::attach(queue.ring, role).unwrap_err(), breach);
    }
}

/// A south moved its index and died before it handed the descriptor over.
#[test]
fn a_south_may_die_between_its_two_stores() {
    let _alone = alone();
    for role in ROLES {
        let area = Area::new(2);
        let mut north = north(&area, 2, role, u32::MAX);
        let queue = area.open(2, role).unwrap();
        north.post(buffer(1, 9)).unwrap();
        let index = match role {
            Role::Transmit => queue.ring.inuse_head,
            Role::Receive => queue.ring.inuse_tail,
        };
        index.store(0, Ordering::Relaxed);
        assert_eq!(north.take(), Ok(None), "it was not handed over");
        let mut south = South::attach(queue.ring, role).unwrap();
        assert_eq!(index.load(Ordering::Relaxed), u32::MAX);
        let place = south.take().unwrap().unwrap();
        assert!(south.complete() || south.fill(&place, 3, 0));
        assert_eq!(north.take().unwrap().unwrap().cookie, 1);
    }
}

#[test]
fn a_head_that_was_not_agreed_on_is_refused() {
    let _alone = alone();
    let area = Area::new(4);
    let _ = area.make(4, Role::Transmit);
    assert!(area.open(4, Role::Transmit).is_ok());
    for (count, role, field) in [
        (2, Role::Transmit, "count"),
        (4, Role::Receive, "role"),
        (3, Role::Transmit, "len"),
        (8, Role::Transmit, "len"),
        (0, Role::Transmit, "len"),
        (0x10000, Role::Transmit, "len"),
    ] {
        let Err(Breach::Head { field: found, .. }) = area.open(count, role) else {
            unreachable!("{field} is accepted");
        };
        assert_eq!(found, field);
    }
    // Every word of the head that has a fixed value: magic, version, and those of the signal.
    for word in [0, 1, 2, 3, 16, 17] {
        let word = area.word(word);
        word.fetch_xor(0x100, Ordering::Relaxed);
        assert!(area.open(4, Role::Transmit).is_err());
        word.fetch_xor(0x100, Ordering::Relaxed);
    }
    assert!(area.open(4, Role::Transmit).is_ok());
}

#[test]
fn a_south_does_not_attach_to_indices_without_sense() {
    let _alone = alone();
    let area = Area::new(4);
    let mut north = north(&area, 4, Role::Transmit, 0);
    north.post(buffer(1, 1)).unwrap();
    north.post(buffer(2, 1)).unwrap();
    let queue = area.open(4, Role::Transmit).unwrap();
    queue.ring.valid_tail.store(5, Ordering::Relaxed);
    let error = South::attach(queue.ring, Role::Transmit).unwrap_err();
    assert_eq!(
        error,
        Breach::Head {
            field: "valid_tail",
            value: 5
        }
    );
    queue.ring.valid_tail.store(2, Ordering::Relaxed);
    // Completed after one that is not.
    queue.ring.descriptors[1]
        .owner
        .store(NORTH, Ordering::Relaxed);
    let error = South::attach(queue.ring, Role::Transmit).unwrap_err();
    assert_eq!(
        error,
        Breach::Owner {
            slot: 1,
            value: NORTH
        }
    );
}

#[test]
fn counts_and_tables_are_checked() {
    let _alone = alone();
    let area = Area::new(4);
    let ring = area.make(4, Role::Transmit).ring;
    let short = vec![Posted::default(); 3];
    assert!(North::begin(ring, Role::Transmit, short, 0).is_none());
    // SAFETY: refused before the memory is touched.
    let odd = unsafe {
        paravane_vbus_shm::memory::Queue::make(area.start.add(8), area.len, 1, Role::Receive)
    };
    assert!(odd.is_none());
}

#[test]
fn planted_faults_are_found() {
    let _alone = alone();
    let tests: [(Fault, fn()); 3] = [
        (Fault::FullAccepts, model),
        (Fault::IndexUnchecked, uncovered),
        (Fault::LengthUnchecked, too_long),
    ];
    for (fault, test) in tests {
        plant(Some(fault));
        let failed = catch_unwind(test).is_err();
        plant(None);
        assert!(failed, "{fault:?} is not found");
    }
}
