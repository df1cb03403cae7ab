// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: ports that share, come, go, break the rules, and keep what they get for any time. A
//! frame that was lent is as it was sent until its receiver gives it back, whatever the others do.
//! When all was given back, all slots are free.
#![allow(clippy::unwrap_used)] // A target fails by panicking.

mod common;
#[path = "common/sharing.rs"]
mod sharing;

use common::{Memory, buffer, name, system};
use paravane_fuzz::{Input, fuzz};
use paravane_vbus::ethernet::cap;
use paravane_vbus::spaces::base;
use paravane_vbus::{ConnectionId, MemoryContext, Vbus};
use paravane_vbus_shm::fault::{Fault, plant};
use paravane_vbus_shm::loans::PLACES;
use sharing::{Got, LONG, Port, SIZE, SLOTS};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// The most steps of an input, and ports at a time.
const STEPS: usize = 300;
const PORTS: usize = 4;

/// A port that keeps the rules, or one that does not.
struct One {
    port: Port,
    honest: bool,
    /// Frames that it keeps, and their bytes, the oldest first.
    kept: VecDeque<(Got, Vec<u8>)>,
    /// Slots with a frame whose descriptor has not come back, the oldest first.
    posted: VecDeque<Option<u32>>,
    /// Numbers frames.
    number: u8,
}

impl One {
    fn new(port: Port, honest: bool) -> Self {
        One {
            port,
            honest,
            kept: VecDeque::new(),
            posted: VecDeque::new(),
            number: 0,
        }
    }

    fn reclaim(&mut self) {
        while let Ok(Some(_)) = self.port.tx.take() {
            self.posted.pop_front();
        }
    }

    /// A slot that it may write.
    fn free(&self) -> Option<u32> {
        (0..SLOTS).find(|&slot| self.port.loans.is_free(slot) && !self.posted.contains(&Some(slot)))
    }
}

struct World {
    vbus: Vbus,
    ports: [Option<One>; PORTS],
    slots: BTreeMap<ConnectionId, Arc<Memory>>,
    /// Connections of ports that cheat, also of those that have gone.
    cheats: BTreeSet<u64>,
    process: u64,
    lent: u64,
}

impl World {
    fn new() -> Self {
        let mut vbus = system("venet-switch");
        vbus.set_attribute(&name("dev"), "share", "1").unwrap();
        World {
            vbus,
            ports: [const { None }; PORTS],
            slots: BTreeMap::new(),
            cheats: BTreeSet::new(),
            process: 1,
            lent: 0,
        }
    }

    fn work(&mut self, rounds: u32) {
        for _ in 0..rounds {
            if !self.vbus.has_work() {
                return;
            }
            for id in self.vbus.work(3) {
                let broken = self.ports.iter_mut().find(|port| {
                    let port = port.as_ref();
                    port.is_some_and(|one| one.port.id == id)
                });
                let broken = broken.and_then(Option::take).unwrap();
                assert!(!broken.honest, "an honest port was reset");
                self.vbus.leave(broken.port.member);
            }
        }
    }

    fn open(&mut self, number: usize, honest: bool, chain: bool) {
        let Ok(mut port) = Port::offer(&mut self.vbus, self.process) else {
            return;
        };
        if chain {
            let argument = [0, cap::CHAIN].map(u32::to_le_bytes).concat();
            let called = self.vbus.call(port.member, port.id, 3, &argument);
            called.unwrap();
        }
        port.up(&mut self.vbus);
        self.slots.insert(port.id, port.slots.clone());
        if !honest {
            self.cheats.insert(port.id.0);
        }
        self.ports[number] = Some(One::new(port, honest));
    }

    fn leave(&mut self, number: usize) {
        if let Some(one) = self.ports[number].take() {
            self.vbus.leave(one.port.member);
        }
    }

    /// A frame to another port, or to an address without a port.
    fn send(&mut self, number: usize, input: &mut Input<'_>) {
        let to = usize::from(input.u8()) % PORTS;
        let mac = self.ports[to].as_ref().map_or([2; 6], |one| one.port.mac);
        let len = input.pick(&[60, 400, 1311, 1312, LONG, 2000]);
        let Some(one) = &mut self.ports[number] else {
            return;
        };
        one.reclaim();
        let Some(slot) = one.free().filter(|_| one.port.tx.room() > 0) else {
            return;
        };
        one.number = one.number.wrapping_add(1);
        let frame = one.port.frame(mac, one.number, len);
        one.port.send(&mut self.vbus, slot, &frame);
        one.posted.push_back(Some(slot));
    }

    /// What a port that breaks the rules does.
    fn cheat(&mut self, number: usize, input: &mut Input<'_>) {
        let Some(one) = self.ports[number].as_mut().filter(|one| !one.honest) else {
            return;
        };
        one.reclaim();
        match input.u8() % 6 {
            0 | 1 => {
                // A part of anywhere.
                let ptr = match input.u8() % 3 {
                    0 => base(input.u8().into()) + u64::from(input.u16()),
                    1 => base(1) + u64::from(input.u32()),
                    _ => u64::from(input.u16()),
                };
                let len = usize::from(input.u16());
                let mut part = buffer(ptr, len);
                part.flags = u32::from(input.u8() % 2);
                if one.port.tx.post(part).is_ok() {
                    one.posted.push_back(None);
                    self.vbus.notified(one.port.id);
                }
            }
            2 => {
                // A slot again that is lent, or any bytes in it.
                let slot = u32::from(input.u8()) % SLOTS;
                let frame = one.port.frame([2; 6], 0xee, LONG);
                let at = u64::from(slot) * SIZE as u64;
                one.port.slots.write(at, &frame).unwrap();
            }
            3 => one
                .port
                .loans
                .set_mapped(usize::from(input.u8()) % PLACES, input.u8().into()),
            4 => one.port.loans.set_handled(input.u8().into()),
            _ => one
                .port
                .loans
                .lend(u32::from(input.u8()) % SLOTS, input.u8().is_multiple_of(2)),
        }
        self.vbus.notified(one.port.id);
    }

    fn receive(&mut self, number: usize) {
        let Some(one) = &mut self.ports[number] else {
            return;
        };
        if !one.honest {
            // It may have said that it has mapped what it has not.
            if let Ok(Some(back)) = one.port.rx.take() {
                one.port.post(&mut self.vbus, back.cookie);
            }
            return;
        }
        while let Some(got) = one.port.take() {
            self.lent += u64::from(got.lent.is_some());
            let frame = one.port.whole(&got);
            one.kept.push_back((got, frame));
        }
    }

    /// Looks whether what was kept is as it was. Frames of ports that cheat may change.
    fn give_back(&mut self, number: usize, most: usize) {
        let Some(one) = &mut self.ports[number] else {
            return;
        };
        for _ in 0..most.min(one.kept.len()) {
            let (got, frame) = one.kept.pop_front().unwrap();
            let lender = got.lent.as_ref().map(|lent| lent.lender.into());
            let cheated = lender.is_some_and(|lender| self.cheats.contains(&lender));
            assert!(
                cheated || one.port.whole(&got) == frame,
                "it was overwritten"
            );
            one.port.post(&mut self.vbus, got.cookie);
        }
    }

    fn hear(&mut self, number: usize) {
        let slots = &self.slots;
        if let Some(one) = &mut self.ports[number] {
            one.port.hear(&mut self.vbus, |id| slots.get(&id).cloned());
        }
    }

    fn play(mut self, bytes: &[u8]) -> u64 {
        let mut input = Input::new(bytes);
        let begin = input.u8();
        for number in 0..PORTS {
            self.open(
                number,
                number > 0 || begin.is_multiple_of(2),
                number % 2 == 0,
            );
        }
        // Most inputs begin with ports that know each other.
        for _ in 0..if begin & 6 == 0 { 0 } else { 20 } {
            self.work(100);
            (0..PORTS).for_each(|number| self.hear(number));
        }
        for _ in 0..STEPS {
            if input.is_empty() {
                break;
            }
            let kind = input.u8();
            let number = usize::from(kind >> 6) % PORTS;
            match kind % 32 {
                0..10 => self.send(number, &mut input),
                10..14 => self.receive(number),
                14..17 => self.give_back(number, usize::from(input.u8() % 8)),
                17..21 => self.hear(number),
                21..27 => self.work(u32::from(input.u8() % 6)),
                27 => self.leave(number),
                28 => {
                    self.leave(number);
                    self.process += 1;
                    self.open(
                        number,
                        !input.u8().is_multiple_of(4),
                        input.u8().is_multiple_of(2),
                    );
                }
                _ => self.cheat(number, &mut input),
            }
        }
        // Those that cheat leave, and the others give everything back.
        for number in 0..PORTS {
            if self.ports[number].as_ref().is_some_and(|one| !one.honest) {
                self.leave(number);
            }
        }
        for _ in 0..3 {
            self.work(10_000);
            for number in 0..PORTS {
                self.receive(number);
                self.give_back(number, usize::MAX);
            }
        }
        self.work(10_000);
        assert!(!self.vbus.has_work(), "the work has no end");
        for one in self.ports.iter_mut().flatten() {
            one.reclaim();
            assert_eq!((&one.port.lent()[..], one.posted.len()), (&[][..], 0));
        }
        self.lent
    }
}

/// A fault is planted in the whole process.
static ONE: Mutex<()> = Mutex::new(());

#[test]
fn vbus_lending() {
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    fuzz("vbus_lending", || |bytes| _ = World::new().play(bytes));
}

/// Inputs by a generator: frames are lent in them, and slots that are free too early are found.
#[test]
fn a_lent_frame_is_as_it_was_until_it_is_given_back() {
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let play = |seed: u64| {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let bytes = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        });
        let bytes: Vec<u8> = bytes.take(1500).collect();
        World::new().play(&bytes)
    };
    let lent = (0..100).map(play).sum::<u64>();
    assert!(lent > 100, "little is lent: {lent}");
    for fault in [Fault::ReturnedAtOnce, Fault::LentIsFree] {
        plant(Some(fault));
        let found = (0..100).any(|seed| catch_unwind(AssertUnwindSafe(|| play(seed))).is_err());
        plant(None);
        assert!(found, "{fault:?} is not found");
    }
}
