// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! Both sides of shm-signal and ioq, in every order that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p paravane-vbus-shm --test loom --release`
//!
//! With `LOOM_MAX_PREEMPTIONS=3`, as in `scripts/test.sh`, it tries only orders in which a thread
//! that could continue is preempted at most three times. Without this variable the models take much
//! longer.
//!
//! A notification that is lost leaves a thread in `Event::wait` for good, which loom reports as a
//! deadlock. Each planted fault is found by one of the tests.
#![cfg(loom)]
#![allow(clippy::unwrap_used)]

#[path = "loom/lend.rs"]
mod lend;
#[path = "loom/sleep.rs"]
mod sleep;

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use paravane_vbus_shm::fault::{Fault, plant};
use paravane_vbus_shm::layout::Descriptor;
use paravane_vbus_shm::north::{Buffer, North, Posted, Refused};
use paravane_vbus_shm::ring::{Ring, Role};
use paravane_vbus_shm::signal::{Left, Side};
use paravane_vbus_shm::south::South;
use std::panic::{AssertUnwindSafe, catch_unwind};
// Not loom's, whose drop panics once more when a model ends in a deadlock.
use std::sync::{Arc, PoisonError};

/// What crosses the boundary: an eventfd.
struct Event {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    fn notify(&self) {
        *self.set.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut set = self.set.lock().unwrap();
        while !*set {
            set = self.changed.wait(set).unwrap();
        }
        *set = false;
    }
}

struct Words {
    enabled: AtomicU32,
    pending: AtomicU32,
    dirty: AtomicU32,
    work: AtomicU32,
    event: Event,
}

impl Words {
    fn new() -> Arc<Self> {
        Arc::new(Words {
            enabled: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            dirty: AtomicU32::new(0),
            work: AtomicU32::new(0),
            event: Event {
                set: Mutex::new(false),
                changed: Condvar::new(),
            },
        })
    }

    fn side(&self) -> Side<'_> {
        Side {
            enabled: &self.enabled,
            pending: &self.pending,
            dirty: &self.dirty,
        }
    }

    /// Stores work `times` times, and notifies where the signal asks for it.
    fn produce(words: &Arc<Self>, times: u32) -> thread::JoinHandle<()> {
        let words = Arc::clone(words);
        thread::spawn(move || {
            for work in 1..=times {
                words.work.store(work, Ordering::Relaxed);
                if words.side().inject() {
                    words.event.notify();
                }
            }
        })
    }
}

/// A consumer that works in the notification, as a driver's interrupt handler does.
fn by_wake_up() {
    loom::model(|| {
        let words = Words::new();
        assert_eq!(words.side().enable(), Left::Nothing);
        let producer = Words::produce(&words, 2);
        let mut seen = 0;
        loop {
            while words
                .side()
                .wake_up(2, || seen = words.work.load(Ordering::Relaxed))
                == Left::More
            {}
            if seen == 2 {
                break;
            }
            words.event.wait();
        }
        producer.join().unwrap();
    });
}

/// A consumer that polls with notifications disabled and enables them before it sleeps.
fn by_polling() {
    loom::model(|| {
        let words = Words::new();
        let producer = Words::produce(&words, 2);
        loop {
            words.side().disable();
            words.side().look();
            if words.work.load(Ordering::Relaxed) == 2 {
                break;
            }
            if words.side().rest() == Left::Nothing {
                words.event.wait();
            }
        }
        producer.join().unwrap();
    });
}

struct Memory {
    indices: [AtomicU32; 4],
    descriptors: Vec<Descriptor>,
}

impl Memory {
    /// Both sides borrow it, and a thread needs what lives for ever: it is never freed.
    fn new(count: usize) -> &'static Self {
        let descriptor = || Descriptor {
            cookie: AtomicU64::new(0),
            ptr: AtomicU64::new(0),
            len: AtomicU32::new(0),
            used: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            owner: AtomicU32::new(0),
        };
        Box::leak(Box::new(Memory {
            indices: [0; 4].map(AtomicU32::new),
            descriptors: (0..count).map(|_| descriptor()).collect(),
        }))
    }

    fn ring(&self) -> Ring<'_> {
        Ring {
            valid_head: &self.indices[0],
            valid_tail: &self.indices[1],
            inuse_head: &self.indices[2],
            inuse_tail: &self.indices[3],
            descriptors: &self.descriptors,
        }
    }
}

fn buffer(number: u32) -> Buffer {
    Buffer {
        cookie: u64::from(number) + 10,
        ptr: u64::from(number) + 20,
        len: number + 30,
        flags: number + 40,
    }
}

/// The north sends `packets` packets through a ring of `count`, whose indices wrap.
fn transmit(count: usize, packets: u32) {
    loom::model(move || {
        let memory = Memory::new(count);
        let posted = vec![Posted::default(); count];
        let north = North::begin(memory.ring(), Role::Transmit, posted, u32::MAX);
        let mut north = north.unwrap();
        let mut south = South::attach(memory.ring(), Role::Transmit).unwrap();
        let device = thread::spawn(move || {
            let mut next = 0;
            while next < packets {
                let Some(place) = south.take().unwrap() else {
                    thread::yield_now();
                    continue;
                };
                let Buffer {
                    ptr, len, flags, ..
                } = buffer(next);
                assert_eq!((place.ptr, place.len, place.flags), (ptr, len, flags));
                assert!(south.complete());
                next += 1;
            }
        });
        let (mut sent, mut returned) = (0, 0);
        while returned < packets {
            let mut idle = true;
            if sent < packets {
                match north.post(buffer(sent)) {
                    Ok(()) => {
                        sent += 1;
                        idle = false;
                    }
                    Err(Refused::Full) => {}
                    Err(Refused::Breach(breach)) => panic!("{breach}"),
                }
            }
            if let Some(back) = north.take().unwrap() {
                assert_eq!(back.cookie, buffer(returned).cookie);
                returned += 1;
                idle = false;
            }
            if idle {
                thread::yield_now();
            }
        }
        device.join().unwrap();
    });
}

/// The device fills two buffers that the north has posted.
fn receive() {
    loom::model(|| {
        let memory = Memory::new(2);
        let posted = vec![Posted::default(); 2];
        let mut north = North::begin(memory.ring(), Role::Receive, posted, 7).unwrap();
        north.post(buffer(0)).unwrap();
        let mut south = South::attach(memory.ring(), Role::Receive).unwrap();
        let device = thread::spawn(move || {
            for number in 0..2 {
                let place = loop {
                    if let Some(place) = south.take().unwrap() {
                        break place;
                    }
                    thread::yield_now();
                };
                assert_eq!(place.ptr, buffer(number).ptr);
                assert!(south.fill(&place, number + 5, number + 9));
            }
        });
        north.post(buffer(1)).unwrap();
        for number in 0..2 {
            let back = loop {
                if let Some(back) = north.take().unwrap() {
                    break back;
                }
                thread::yield_now();
            };
            assert_eq!(back.cookie, buffer(number).cookie);
            assert_eq!((back.used, back.flags), (number + 5, number + 9));
        }
        device.join().unwrap();
    });
}

/// A device that polls and then sleeps until it is notified of packets. `early`: the north injects
/// the signal before it has posted, and not after.
fn wake_for_packets(packets: u32, early: bool) {
    loom::model(move || {
        let (memory, words) = (Memory::new(2), Words::new());
        let posted = vec![Posted::default(); 2];
        let mut north = North::begin(memory.ring(), Role::Transmit, posted, u32::MAX).unwrap();
        let mut south = South::attach(memory.ring(), Role::Transmit).unwrap();
        let device = Arc::clone(&words);
        let device = thread::spawn(move || {
            let mut next = 0;
            loop {
                device.side().disable();
                device.side().look();
                while let Some(place) = south.take().unwrap() {
                    assert_eq!(place.ptr, buffer(next).ptr);
                    assert!(south.complete());
                    next += 1;
                }
                if next == packets {
                    return;
                }
                if device.side().rest() == Left::Nothing && !south.ready() {
                    device.event.wait();
                }
            }
        });
        let inject = || {
            if words.side().inject() {
                words.event.notify();
            }
        };
        for number in 0..packets {
            if early {
                inject();
            }
            north.post(buffer(number)).unwrap();
            if !early {
                inject();
            }
        }
        device.join().unwrap();
    });
}

/// Faults are planted in the whole process.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn sound(test: impl Fn()) {
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    test();
}

fn finds(fault: Fault, test: fn()) {
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    plant(Some(fault));
    let failed = catch_unwind(AssertUnwindSafe(test)).is_err();
    plant(None);
    assert!(failed, "{fault:?} is not found");
}

#[test]
fn no_notification_is_lost_by_wake_ups() {
    sound(by_wake_up);
}

#[test]
fn no_notification_is_lost_by_polling() {
    sound(by_polling);
}

#[test]
fn packets_arrive_whole_and_in_order() {
    sound(|| transmit(2, 2));
}

#[test]
fn a_full_ring_waits_for_its_reader() {
    sound(|| transmit(1, 2));
}

#[test]
fn buffers_are_filled_whole_and_in_order() {
    sound(receive);
}

#[test]
fn a_device_that_sleeps_is_woken_for_each_packet() {
    sound(|| wake_for_packets(2, false));
}

/// The model also finds errors outside of the ring and the signal.
#[test]
fn a_notification_before_its_packet_is_found() {
    let failed = |packets| {
        let test = move || wake_for_packets(packets, true);
        catch_unwind(AssertUnwindSafe(|| sound(test))).is_err()
    };
    assert!(failed(1), "it is not found");
}

#[test]
fn an_injection_without_a_barrier_is_found() {
    finds(Fault::InjectWithoutBarrier, by_polling);
    finds(Fault::InjectWithoutBarrier, || wake_for_packets(1, false));
}

#[test]
fn an_end_without_a_look_is_found() {
    finds(Fault::EndWithoutLook, by_wake_up);
}

#[test]
fn a_late_clear_is_found() {
    finds(Fault::DirtyClearedLate, by_wake_up);
}

#[test]
fn an_enable_without_a_look_is_found() {
    finds(Fault::EnableWithoutLook, by_polling);
}

#[test]
fn a_hand_over_before_the_contents_is_found() {
    finds(Fault::OwnerFirst, || transmit(2, 2));
    finds(Fault::OwnerFirst, receive);
}

#[test]
fn a_full_ring_that_accepts_is_found() {
    finds(Fault::FullAccepts, || transmit(1, 2));
}
