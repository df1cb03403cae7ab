// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! Both sides of a ring sleep, each until the other one notifies it: the north waits for returned
//! descriptors, as clients and drivers do, and the south for posted ones, as devices do. A packet
//! takes one descriptor, or several.

use crate::{Event, Memory, Words, buffer, finds, sound};
use loom::thread;
use paravane_vbus_shm::fault::Fault;
use paravane_vbus_shm::layout::VBUS_ETHERNET_MORE;
use paravane_vbus_shm::north::{Buffer, North, Posted};
use paravane_vbus_shm::ring::Role;
use paravane_vbus_shm::signal::Left;
use paravane_vbus_shm::south::South;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

#[expect(clippy::cast_possible_truncation, reason = "a word of 32 bits")]
const MORE: u32 = VBUS_ETHERNET_MORE as u32;

/// What the sides do.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// A side that is about to sleep looks at its flags and at the ring, as all do.
    Whole,
    /// It looks at its flags only. That is enough, and shows whether that look works.
    Flags,
    /// The south notifies the north before it hands over, and not after.
    Early,
    /// The north clears `dirty` once more after it has looked at the ring.
    LateLook,
    /// The south takes one buffer of a packet that needs several for all of them.
    OneForAll,
}

/// The packets of a model.
#[derive(Clone, Copy)]
struct Load {
    /// Descriptors of the ring.
    count: u32,
    packets: u32,
    /// Descriptors of a packet.
    parts: u32,
}

impl Load {
    fn total(self) -> u32 {
        self.packets * self.parts
    }

    /// The flags of a descriptor.
    fn flags(self, number: u32) -> u32 {
        let last = (number + 1).is_multiple_of(self.parts);
        if last { 0 } else { MORE }
    }

    fn posted(self) -> Vec<Posted> {
        vec![Posted::default(); self.count as usize]
    }

    fn memory(self) -> &'static Memory {
        Memory::new(self.count as usize)
    }
}

fn tell(side: &Words) {
    if side.side().inject() {
        side.event.notify();
    }
}

/// A side has found nothing. `ready`: it finds something now.
fn sleep(side: &Words, way: Way, ready: impl FnOnce() -> bool) {
    let looks = way == Way::Whole;
    if side.side().rest() == Left::Nothing && !(looks && ready()) {
        Event::wait(&side.event);
    }
}

/// A side works again.
fn watch(side: &Words) {
    side.side().disable();
    side.side().look();
}

/// The north posts buffers and sleeps for packets. The south sleeps until there are enough buffers
/// for one. Of the buffers, `before` are posted before the south begins.
fn receive(load: Load, before: u32, way: Way) {
    loom::model(move || {
        let (memory, to_north, to_south) = (load.memory(), Words::new(), Words::new());
        let mut north = North::begin(memory.ring(), Role::Receive, load.posted(), 7).unwrap();
        for number in 0..before {
            north.post(buffer(number)).unwrap();
        }
        let mut south = South::attach(memory.ring(), Role::Receive).unwrap();
        let (bell, me) = (Arc::clone(&to_north), Arc::clone(&to_south));
        let device = thread::spawn(move || {
            let needs = if way == Way::OneForAll { 1 } else { load.parts };
            let mut number = 0;
            loop {
                watch(&me);
                let mut news = false;
                while number < load.total() && south.has(needs) {
                    if way == Way::Early {
                        tell(&bell);
                    }
                    for _ in 0..load.parts {
                        let place = south.take().unwrap().unwrap();
                        assert_eq!(place.ptr, buffer(number).ptr);
                        assert!(south.fill(&place, number + 5, load.flags(number)));
                        number += 1;
                    }
                    news = true;
                }
                if news && way != Way::Early {
                    tell(&bell);
                }
                if number == load.total() {
                    return;
                }
                sleep(&me, way, || south.has(needs));
            }
        });
        let (mut posted, mut taken) = (before, 0);
        loop {
            let before = posted;
            while posted < load.total() && north.room() > 0 {
                north.post(buffer(posted)).unwrap();
                posted += 1;
            }
            if posted > before {
                tell(&to_south);
            }
            let mut any = false;
            while let Some(back) = north.take().unwrap() {
                assert_eq!(back.cookie, buffer(taken).cookie);
                assert_eq!((back.used, back.flags), (taken + 5, load.flags(taken)));
                taken += 1;
                any = true;
            }
            if taken == load.total() {
                break;
            }
            if way == Way::LateLook {
                to_north.side().look();
            }
            // Its buffer goes to the south first.
            if any && posted < load.total() {
                continue;
            }
            sleep(&to_north, way, || north.ready());
            watch(&to_north);
        }
        device.join().unwrap();
    });
}

/// The north sends packets and sleeps for room, and at the end until all are delivered. The south
/// sleeps for packets. `at_once`: it returns each descriptor when it has read it, and not all of a
/// packet together.
fn send(load: Load, at_once: bool, way: Way) {
    loom::model(move || {
        let (memory, to_north, to_south) = (load.memory(), Words::new(), Words::new());
        let north = North::begin(memory.ring(), Role::Transmit, load.posted(), u32::MAX);
        let mut north = north.unwrap();
        let mut south = South::attach(memory.ring(), Role::Transmit).unwrap();
        let (bell, me) = (Arc::clone(&to_north), Arc::clone(&to_south));
        let device = thread::spawn(move || {
            let (mut number, mut held) = (0, 0);
            loop {
                watch(&me);
                let mut news = false;
                while let Some(place) = south.take().unwrap() {
                    let Buffer { ptr, len, .. } = buffer(number);
                    let flags = load.flags(number);
                    assert_eq!((place.ptr, place.len, place.flags), (ptr, len, flags));
                    (number, held) = (number + 1, held + 1);
                    if !at_once && flags == MORE {
                        continue;
                    }
                    if way == Way::Early {
                        tell(&bell);
                    }
                    for _ in 0..std::mem::take(&mut held) {
                        assert!(south.complete());
                    }
                    news = true;
                }
                if news && way != Way::Early {
                    tell(&bell);
                }
                if number == load.total() {
                    return;
                }
                sleep(&me, way, || south.ready());
            }
        });
        let (mut sent, mut taken) = (0, 0);
        loop {
            if sent < load.total() && north.room() >= load.parts {
                for _ in 0..load.parts {
                    let flags = load.flags(sent);
                    north
                        .post(Buffer {
                            flags,
                            ..buffer(sent)
                        })
                        .unwrap();
                    sent += 1;
                }
                tell(&to_south);
            }
            while let Some(back) = north.take().unwrap() {
                assert_eq!(back.cookie, buffer(taken).cookie);
                taken += 1;
            }
            if taken == load.total() {
                break;
            }
            if way == Way::LateLook {
                to_north.side().look();
            }
            if sent < load.total() && north.room() >= load.parts {
                continue;
            }
            sleep(&to_north, way, || north.ready());
            watch(&to_north);
        }
        device.join().unwrap();
    });
}

/// A packet in each turn of a ring of one descriptor.
const ONE_BY_ONE: Load = Load {
    count: 1,
    packets: 2,
    parts: 1,
};
/// A packet that needs the whole ring.
const IN_PARTS: Load = Load {
    count: 2,
    packets: 1,
    parts: 2,
};

fn fails(test: impl Fn()) -> bool {
    catch_unwind(AssertUnwindSafe(|| sound(test))).is_err()
}

#[test]
fn a_north_that_sleeps_is_woken_for_each_received_packet() {
    sound(|| receive(ONE_BY_ONE, 1, Way::Whole));
    sound(|| receive(ONE_BY_ONE, 1, Way::Flags));
}

#[test]
fn a_north_that_sleeps_is_woken_for_each_completion() {
    sound(|| send(ONE_BY_ONE, true, Way::Flags));
}

#[test]
fn a_north_that_sleeps_gets_packets_in_several_buffers_whole() {
    for way in [Way::Whole, Way::Flags] {
        sound(|| receive(IN_PARTS, 1, way));
    }
}

#[test]
fn a_packet_of_several_descriptors_is_sent_whole_to_one_that_sleeps() {
    sound(|| send(IN_PARTS, true, Way::Flags));
    sound(|| send(IN_PARTS, false, Way::Whole));
}

#[test]
fn a_notification_before_what_comes_back_is_found() {
    assert!(fails(|| receive(ONE_BY_ONE, 1, Way::Early)), "one buffer");
    assert!(fails(|| receive(IN_PARTS, 1, Way::Early)), "two buffers");
    assert!(fails(|| send(ONE_BY_ONE, true, Way::Early)), "one by one");
    assert!(fails(|| send(IN_PARTS, true, Way::Early)), "at once");
    assert!(fails(|| send(IN_PARTS, false, Way::Early)), "together");
}

#[test]
fn a_north_that_clears_its_flags_after_its_look_is_found() {
    assert!(fails(|| receive(ONE_BY_ONE, 1, Way::LateLook)), "received");
    assert!(fails(|| send(ONE_BY_ONE, true, Way::LateLook)), "sent");
}

#[test]
fn a_packet_for_which_buffers_are_missing_is_found() {
    assert!(fails(|| receive(IN_PARTS, 1, Way::OneForAll)));
}

#[test]
fn a_sleep_without_a_look_is_found() {
    finds(Fault::EnableWithoutLook, || {
        receive(ONE_BY_ONE, 1, Way::Flags)
    });
    finds(Fault::EnableWithoutLook, || {
        receive(IN_PARTS, 1, Way::Flags)
    });
    finds(Fault::EnableWithoutLook, || {
        send(ONE_BY_ONE, true, Way::Flags)
    });
    finds(Fault::EnableWithoutLook, || {
        send(IN_PARTS, true, Way::Flags)
    });
    finds(Fault::EnableWithoutLook, || {
        send(IN_PARTS, false, Way::Flags)
    });
}

#[test]
fn an_injection_without_a_barrier_is_found_by_both_that_sleep() {
    finds(Fault::InjectWithoutBarrier, || {
        receive(ONE_BY_ONE, 1, Way::Whole)
    });
    finds(Fault::InjectWithoutBarrier, || {
        send(ONE_BY_ONE, true, Way::Whole)
    });
}

#[test]
fn a_hand_over_of_parts_before_their_contents_is_found() {
    finds(Fault::OwnerFirst, || receive(IN_PARTS, 2, Way::Whole));
    finds(Fault::OwnerFirst, || send(IN_PARTS, true, Way::Whole));
    finds(Fault::OwnerFirst, || send(IN_PARTS, false, Way::Whole));
}
