// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! A peer that writes anything anywhere in the shared memory, while the other side works.
//!
//! The honest side does a bounded number of calls. Each of them ends, stays in its own memory, and
//! returns what its documentation allows.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{Area, alone, buffer};
use paravane_vbus_shm::fault::{Fault, plant};
use paravane_vbus_shm::layout::{Descriptor, Ioq};
use paravane_vbus_shm::north::{North, Posted, Refused};
use paravane_vbus_shm::ring::Role;
use paravane_vbus_shm::signal::Left;
use paravane_vbus_shm::south::South;
use std::collections::VecDeque;
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const COUNT: u32 = 8;
const ROLES: [Role; 2] = [Role::Transmit, Role::Receive];

/// Where the honest side's indices are.
static INDEX: AtomicU32 = AtomicU32::new(0);

/// xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Small numbers and indices near the true ones, which mean something, more often than others.
    fn word(&mut self) -> u32 {
        let number = self.next();
        let small = u32::try_from(number >> 32 & 0x3ff).unwrap();
        match number % 8 {
            0..3 => small & 3,
            3..5 => INDEX.load(Ordering::Relaxed).wrapping_add(small & 15),
            5 => small & 15,
            6 => small,
            _ => u32::try_from(number >> 32).unwrap(),
        }
    }
}

impl Random {
    fn scribble(&mut self, area: &Area) {
        let at = usize::try_from(self.next() >> 8).unwrap();
        let slot = size_of::<Ioq>() + at / 8 % COUNT as usize * size_of::<Descriptor>();
        // Every second one hits what matters most.
        let byte = match at % 8 {
            0 => offset_of!(Ioq, inuse_head),
            1 => offset_of!(Ioq, inuse_tail),
            2 => slot + offset_of!(Descriptor, used),
            3 => slot + offset_of!(Descriptor, owner),
            _ => at / 8 * 4,
        };
        area.word(byte / 4).store(self.word(), Ordering::Relaxed);
    }
}

/// Runs `honest` while another thread scribbles over the whole area. `honest` scribbles between its
/// calls too: how often the other thread gets to run is the host's choice.
fn against_a_scribbler(area: &Area, seed: u64, honest: impl FnOnce(&mut dyn FnMut())) {
    let end = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(seed | 1);
            while !end.load(Ordering::Relaxed) {
                random.scribble(area);
            }
        });
        let mut random = Random(seed << 1 | 1);
        let mut scribble = || random.scribble(area);
        let result = catch_unwind(AssertUnwindSafe(|| honest(&mut scribble)));
        end.store(true, Ordering::Relaxed);
        result
    });
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn calls() -> u32 {
    if std::env::var_os("PARAVANE_TEST_LONG").is_some() {
        20_000_000
    } else {
        200_000
    }
}

/// Returns the number of breaches.
fn norths(role: Role) -> u32 {
    let area = Area::new(COUNT);
    let mut breaches = 0;
    against_a_scribbler(&area, 0x1234_5678, |scribble| {
        let mut posted: VecDeque<(u64, u32)> = VecDeque::new();
        let mut honest = None;
        for call in 0..calls() {
            let north = honest.get_or_insert_with(|| {
                posted.clear();
                INDEX.store(call, Ordering::Relaxed);
                let table = [Posted::default(); COUNT as usize];
                North::begin(area.make(COUNT, role).ring, role, table, call).unwrap()
            });
            scribble();
            let len = call % 1000;
            match north.post(buffer(call.into(), len)) {
                Ok(()) => posted.push_back((call.into(), len)),
                Err(Refused::Full) => assert_eq!(posted.len(), COUNT as usize),
                Err(Refused::Breach(breach)) => assert_eq!(north.breach(), Some(breach)),
            }
            scribble();
            match north.take() {
                Ok(None) => {}
                Ok(Some(returned)) => {
                    let wanted = posted.pop_front().unwrap();
                    assert_eq!((returned.cookie, returned.len), wanted);
                    assert!(returned.used <= returned.len, "beyond the buffer");
                }
                Err(breach) => {
                    assert_eq!(north.take(), Err(breach), "a breach is remembered");
                    breaches += 1;
                }
            }
            assert_eq!(north.outstanding() as usize, posted.len());
            if north.breach().is_some() {
                honest = None;
            }
        }
    });
    breaches
}

#[test]
fn a_north_survives_a_hostile_south() {
    let _alone = alone();
    for role in ROLES {
        assert!(norths(role) > 0, "{role:?}: nothing hostile happened");
    }
}

/// Returns the number of refused attachments and of breaches.
fn souths(role: Role) -> (u32, u32) {
    let area = Area::new(COUNT);
    let (mut refused, mut breaches) = (0, 0);
    against_a_scribbler(&area, 0x8765_4321, |scribble| {
        let mut south: Option<South<'_>> = None;
        let mut taken = 0;
        for call in 0..calls() {
            let Some(one) = &mut south else {
                taken = 0;
                // An honest head, so that more than one in a million attaches.
                let _ = area.make(COUNT, role);
                scribble();
                match area
                    .open(COUNT, role)
                    .and_then(|q| South::attach(q.ring, role))
                {
                    Ok(attached) => south = Some(attached),
                    Err(_) => refused += 1,
                }
                continue;
            };
            scribble();
            match one.take() {
                Ok(None) => {}
                Ok(Some(_)) if role == Role::Transmit => {
                    taken += 1;
                    assert!(taken <= COUNT, "more packets than descriptors");
                }
                Ok(Some(place)) => assert!(one.fill(&place, call, 0)),
                Err(breach) => {
                    breaches += 1;
                    assert_eq!(one.take(), Err(breach), "a breach is remembered");
                    south = None;
                    continue;
                }
            }
            if call % 3 == 0 && one.complete() {
                taken -= 1;
            }
        }
    });
    (refused, breaches)
}

#[test]
fn a_south_survives_a_hostile_north() {
    let _alone = alone();
    for role in ROLES {
        let (refused, breaches) = souths(role);
        assert!(
            refused > 0 && breaches > 0,
            "{role:?}: {refused} {breaches}"
        );
    }
}

/// Flags change at any moment: each call ends, and so does a loop over work that never ends.
#[test]
fn signals_survive_a_hostile_peer() {
    let _alone = alone();
    let area = Area::new(COUNT);
    let (mut worked, mut more) = (0u32, 0u32);
    against_a_scribbler(&area, 99, |scribble| {
        let queue = area.make(COUNT, Role::Transmit);
        for _ in 0..calls() / 10 {
            let before = worked;
            for _ in 0..area.len / 64 {
                scribble();
            }
            let mut left = queue.to_south.enable();
            if left == Left::More {
                left = queue.to_south.wake_up(3, || worked += 1);
            }
            more += u32::from(left == Left::More);
            assert!(worked - before <= 3, "more rounds than allowed");
            let _ = queue.to_north.inject();
            queue.to_south.disable();
            queue.to_south.look();
            let _ = queue.to_south.rest();
        }
    });
    assert!(worked > 0, "nothing was announced");
}

#[test]
fn planted_faults_are_found() {
    let _alone = alone();
    plant(Some(Fault::LengthUnchecked));
    let failed = catch_unwind(|| norths(Role::Receive)).is_err();
    plant(None);
    assert!(failed, "an unchecked length is not found");
}
