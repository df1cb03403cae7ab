// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! The C side against the Rust side, over the same memory: by the model, with threads, and under a
//! hostile south.
#![allow(clippy::unwrap_used)]

#[path = "../../shm/tests/common/mod.rs"]
mod common;

use common::{AnyNorth, Area, alone, buffer, compare, steps};
use paravane_vbus_guest::{FAULTS, North, Side};
use paravane_vbus_shm::fault::{Fault, plant};
use paravane_vbus_shm::layout;
use paravane_vbus_shm::north::{Buffer, Refused, Returned};
use paravane_vbus_shm::ring::{Breach, NORTH, Role};
use paravane_vbus_shm::signal::Left;
use paravane_vbus_shm::south::South;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::VecDeque;
use std::mem::offset_of;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const ROLES: [Role; 2] = [Role::Transmit, Role::Receive];
/// A side that sleeps for this time has lost a notification.
const PATIENCE: Duration = Duration::from_secs(60);

impl AnyNorth for North<'_> {
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

fn north(area: &Area, count: u32, role: Role, start: u32) -> North<'_> {
    // SAFETY: the memory lives as long as `area`.
    unsafe { North::begin(area.start, area.len, count, role, start) }.unwrap()
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
fn the_c_side_is_as_the_model() {
    let _alone = alone();
    model();
}

fn side() -> layout::Side {
    layout::Side {
        enabled: AtomicU32::new(0),
        pending: AtomicU32::new(0),
        dirty: AtomicU32::new(0),
        reserved: [const { AtomicU32::new(0) }; 13],
    }
}

fn words(side: &layout::Side) -> [u32; 3] {
    [&side.enabled, &side.pending, &side.dirty].map(|word| word.load(Ordering::Relaxed))
}

/// Each call on the same flags leaves the same flags and the same answer in both languages.
fn signals() {
    let call = (0u8..6, 0u32..4, 0u32..4);
    TestRunner::default()
        .run(&prop::collection::vec(call, 1..100), |calls| {
            let (ours, theirs) = (side(), side());
            let rust = paravane_vbus_shm::signal::Side::from(&ours);
            let c = Side(&theirs);
            for (call, rounds, again) in calls {
                match call {
                    0 => assert_eq!(rust.inject(), c.inject()),
                    1 => assert_eq!(rust.enable(), c.enable()),
                    2 => {
                        rust.disable();
                        c.disable();
                    }
                    3 => {
                        rust.look();
                        c.look();
                    }
                    4 => assert_eq!(rust.rest(), c.rest()),
                    _ => {
                        // More work comes in the first `again` rounds.
                        let mut times = (0, 0);
                        let left = rust.wake_up(rounds, || {
                            times.0 += 1;
                            if times.0 <= again {
                                assert!(!rust.inject(), "notified while it works");
                            }
                        });
                        let c_left = c.wake_up(rounds, || {
                            times.1 += 1;
                            if times.1 <= again {
                                let _ = c.inject();
                            }
                        });
                        assert_eq!((left, times.0), (c_left, times.1));
                    }
                }
                assert_eq!(words(&ours), words(&theirs));
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn signals_are_the_same_in_both_languages() {
    let _alone = alone();
    signals();
}

/// A C north and a Rust south in two threads: all packets arrive in order, and each side sleeps
/// only when the signal says so.
fn stream(packets: u32) {
    const COUNT: u32 = 16;
    let area = Area::new(COUNT);
    let mut north = north(&area, COUNT, Role::Transmit, u32::MAX - 20);
    let queue = area.open(COUNT, Role::Transmit).unwrap();
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let device = scope.spawn(|| {
            let mut south = South::attach(queue.ring, Role::Transmit).unwrap();
            let mut next = 0;
            while next < packets && !failed.load(Ordering::Relaxed) {
                queue.to_south.disable();
                queue.to_south.look();
                while let Some(place) = south.take().unwrap() {
                    let wanted = buffer(next.into(), next % 777);
                    let right = (place.ptr, place.len, place.flags)
                        == (wanted.ptr, wanted.len, wanted.flags);
                    failed.fetch_or(!right, Ordering::Relaxed);
                    assert!(south.complete());
                    if queue.to_north.inject() {
                        main_thread().unpark();
                    }
                    next += 1;
                }
                if next < packets && queue.to_south.rest() == Left::Nothing {
                    sleep();
                }
            }
            main_thread().unpark();
        });
        let to_south = to_south(&area);
        let to_north = Side(&layout_of(&area).signal.sides[0]);
        let (mut sent, mut returned) = (0, 0);
        while returned < packets && !failed.load(Ordering::Relaxed) {
            to_north.disable();
            to_north.look();
            while sent < packets && north.post(buffer(sent.into(), sent % 777)).is_ok() {
                sent += 1;
                if to_south.inject() {
                    device.thread().unpark();
                }
            }
            while let Some(back) = north.take().unwrap() {
                assert_eq!(back.cookie, u64::from(returned));
                returned += 1;
            }
            if returned < packets
                && north.outstanding() == COUNT
                && to_north.rest() == Left::Nothing
            {
                sleep();
            }
        }
        device.thread().unpark();
    });
    assert!(!failed.load(Ordering::Relaxed), "a packet was torn");
}

/// Sleeps until the other side wakes this one. A side that has failed does not wake the other one.
fn sleep() {
    let begun = Instant::now();
    std::thread::park_timeout(PATIENCE);
    assert!(begun.elapsed() < PATIENCE, "nobody wakes it");
}

static MAIN: std::sync::Mutex<Option<std::thread::Thread>> = std::sync::Mutex::new(None);

fn main_thread() -> std::thread::Thread {
    MAIN.lock().unwrap().clone().unwrap()
}

fn layout_of(area: &Area) -> &layout::Ioq {
    // SAFETY: `begin` has made an ioq there; all its fields are atomics.
    unsafe { area.start.cast().as_ref() }
}

fn to_south(area: &Area) -> Side<'_> {
    Side(&layout_of(area).signal.sides[1])
}

fn packets() -> u32 {
    if std::env::var_os("PARAVANE_TEST_LONG").is_some() {
        20_000_000
    } else {
        200_000
    }
}

fn streams() {
    *MAIN.lock().unwrap() = Some(std::thread::current());
    stream(packets());
}

#[test]
fn packets_stream_from_c_to_rust() {
    let _alone = alone();
    streams();
}

/// Tells the other thread to end, also if the test fails: otherwise the scope waits for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes something somewhere. `state` is that of xorshift.
fn scribble(area: &Area, state: &mut u64) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    let word = area.word(usize::try_from(*state >> 8).unwrap());
    let value = u32::try_from(*state >> 32).unwrap();
    let masked = value & [3, 15, u32::MAX][(*state % 3) as usize];
    word.store(masked, Ordering::Relaxed);
}

/// Hands a descriptor back as the rules say, whatever is in it.
fn hand_over(area: &Area, role: Role, index: u32, count: u32) {
    let ioq = layout_of(area);
    let word = match role {
        Role::Transmit => &ioq.inuse_head,
        Role::Receive => &ioq.inuse_tail,
    };
    word.store(index.wrapping_add(1), Ordering::Relaxed);
    let slot = (index % count) as usize * size_of::<layout::Descriptor>();
    let owner = size_of::<layout::Ioq>() + slot + offset_of!(layout::Descriptor, owner);
    area.word(owner / 4).store(NORTH, Ordering::Release);
}

#[test]
fn the_c_side_survives_a_hostile_south() {
    let _alone = alone();
    hostile();
}

fn hostile() {
    const COUNT: u32 = 8;
    for role in ROLES {
        let area = Area::new(COUNT);
        let (end, mut breaches, mut returned) = (AtomicBool::new(false), 0, 0);
        std::thread::scope(|scope| {
            let _ends = Ends(&end);
            scope.spawn(|| {
                let mut state = 88_172_645_463_325_252;
                while !end.load(Ordering::Relaxed) {
                    scribble(&area, &mut state);
                }
            });
            let mut state = 1_234_567;
            let mut posted: VecDeque<(u64, u32)> = VecDeque::new();
            let (mut honest, mut head) = (None, 0);
            for call in 0..packets() {
                let one = honest.get_or_insert_with(|| {
                    posted.clear();
                    head = call;
                    north(&area, COUNT, role, call)
                });
                if one.post(buffer(call.into(), call % 1000)) == Ok(()) {
                    posted.push_back((call.into(), call % 1000));
                }
                // How often the other thread gets to run is the host's choice.
                scribble(&area, &mut state);
                if state.is_multiple_of(2) {
                    hand_over(&area, role, head, COUNT);
                }
                match one.take() {
                    Ok(None) => {}
                    Ok(Some(back)) => {
                        assert_eq!(Some((back.cookie, back.len)), posted.pop_front());
                        assert!(back.used <= back.len);
                        (head, returned) = (head.wrapping_add(1), returned + 1);
                    }
                    Err(breach) => {
                        assert_eq!(one.take(), Err(breach), "a breach is remembered");
                        breaches += 1;
                        honest = None;
                    }
                }
                assert!(posted.len() <= COUNT as usize);
            }
        });
        assert!(breaches > 0, "{role:?}: nothing hostile happened");
        assert!(returned > 0, "{role:?}: no descriptor came back");
    }
}

#[test]
fn c_refuses_what_is_not_allowed() {
    let _alone = alone();
    let area = Area::new(4);
    for (offset, len, count) in [
        (0, area.len - 1, 4),
        (0, area.len, 3),
        (0, area.len, 0),
        (8, area.len, 1),
        (0, usize::MAX, 0x10000),
    ] {
        // SAFETY: refused before the memory is touched.
        let begun = unsafe { North::begin(area.start.add(offset), len, count, Role::Transmit, 0) };
        assert!(begun.is_none(), "{offset} {len} {count}");
    }
}

/// A mistake on the Rust side makes the two languages differ, which is seen.
#[test]
fn planted_faults_are_found() {
    let _alone = alone();
    let tests: [(Fault, fn()); 2] = [
        (Fault::EnableWithoutLook, signals),
        (Fault::NeverDisables, signals),
    ];
    for (fault, test) in tests {
        plant(Some(fault));
        let failed = catch_unwind(test).is_err();
        plant(None);
        assert!(failed, "{fault:?} is not found");
    }
}

/// A mistake on the C side is found by the test that is about it.
#[test]
fn faults_planted_in_c_are_found() {
    let _alone = alone();
    let tests: [(&str, fn()); 9] = [
        // Two threads need not meet in one stream.
        ("owner_first", || (0..20).for_each(|_| streams())),
        ("index_missing", model),
        ("wraps_early", model),
        ("full_accepts", model),
        ("comes_twice", model),
        ("trusts_descriptor", hostile),
        ("length_unchecked", hostile),
        ("never_notifies", signals),
        ("rests_without_look", signals),
    ];
    let names = FAULTS.iter().map(|fault| fault.name);
    assert!(names.eq(tests.iter().map(|(name, _)| *name)));
    for (fault, test) in tests {
        paravane_vbus_guest::plant(Some(fault));
        let failed = catch_unwind(test).is_err();
        paravane_vbus_guest::plant(None);
        assert!(failed, "{fault} is not found");
    }
}
