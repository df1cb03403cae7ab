// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock that a vCPU which wakes up has put right, in every order that the memory model allows.
//! See loom.rs.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

const RIGHT: u32 = 0;
const WRONG: u32 = 1;
const UNREAD: u32 = 2;
const CLAIMED: u32 = 3;

/// The clock's line is ahead, or was put back.
const AHEAD: u32 = 2;
const BACK: u32 = 1;

struct Machine {
    wanted: AtomicU32,
    line: AtomicU32,
    lock: AtomicU32,
    checked: AtomicU32,
    /// Of each vCPU.
    asleep: [AtomicU32; 2],
}

impl Machine {
    fn lock(&self) {
        while self
            .lock
            .compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst)
            .is_err()
        {
            thread::yield_now();
        }
        // A locked instruction of x86 is a full barrier.
        fence(Ordering::SeqCst);
    }

    /// `wake_clock()` of `vcpu/wake_clock.c`, and a reading of the clock. `recent`: the counter of
    /// this vCPU says that the clock was compared a moment ago. `barrier`: as in the layer.
    fn wake(&self, me: usize, recent: bool, barrier: bool) -> u32 {
        if recent || self.checked.load(Ordering::Acquire) != 0 {
            self.asleep[me].store(0, Ordering::Relaxed);
            if barrier {
                fence(Ordering::SeqCst);
            }
            if self.lock.load(Ordering::Acquire) == 0 {
                return self.line.load(Ordering::Relaxed);
            }
        }
        self.lock();
        if self.checked.load(Ordering::Relaxed) == 0 {
            self.ask();
            self.checked.store(1, Ordering::Release);
        }
        self.asleep[me].store(0, Ordering::Relaxed);
        self.lock.store(0, Ordering::Release);
        self.line.load(Ordering::Relaxed)
    }

    /// `unread()` and `ask()`. The vCPU does not wait for the claim.
    fn ask(&self) {
        let asleep = |vcpu: &AtomicU32| vcpu.load(Ordering::Relaxed) != 0;
        let wanted = if self.asleep.iter().all(asleep) {
            UNREAD
        } else {
            WRONG
        };
        self.wanted.store(wanted, Ordering::SeqCst);
        loop {
            match self.wanted.load(Ordering::Acquire) {
                RIGHT => break,
                CLAIMED => thread::yield_now(),
                asked => {
                    let (yes, no) = (Ordering::SeqCst, Ordering::SeqCst);
                    let back = self.wanted.compare_exchange(asked, RIGHT, yes, no);
                    if back.is_ok() {
                        break;
                    }
                }
            }
        }
    }

    /// `claim()`, a correction and `end()` of `process/clock_asked.rs`.
    fn monitor(&self) {
        let asked = self.wanted.load(Ordering::SeqCst);
        if asked == RIGHT
            || self
                .wanted
                .compare_exchange(asked, CLAIMED, Ordering::SeqCst, Ordering::SeqCst)
                .is_err()
        {
            return;
        }
        if asked == UNREAD {
            self.line.store(BACK, Ordering::Relaxed);
        }
        self.wanted.store(RIGHT, Ordering::SeqCst);
    }
}

/// Two vCPUs wake up. None has read a clock that is put back later.
fn both_wake(recent: bool, barrier: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let machine = Arc::new(Machine {
            wanted: AtomicU32::new(RIGHT),
            line: AtomicU32::new(AHEAD),
            lock: AtomicU32::new(0),
            checked: AtomicU32::new(0),
            asleep: [AtomicU32::new(1), AtomicU32::new(1)],
        });
        let on = |me, recent| {
            let machine = Arc::clone(&machine);
            thread::spawn(move || machine.wake(me, recent, barrier))
        };
        let (first, second) = (on(0, false), on(1, recent));
        machine.monitor();
        let read = [first.join().unwrap(), second.join().unwrap()];
        let line = machine.line.load(Ordering::SeqCst);
        assert!(read.iter().all(|&read| read == line), "{read:?} {line}");
    });
}

#[test]
fn a_clock_that_was_read_is_not_put_back() {
    both_wake(false, true);
}

/// The last comparison was long ago for one vCPU, and not yet for the other.
#[test]
fn a_vcpu_that_compares_nothing_is_seen_or_waits() {
    both_wake(true, true);
}

#[test]
#[should_panic(expected = "[1, 2] 1")]
fn without_a_barrier_a_clock_that_was_read_is_put_back() {
    both_wake(true, false);
}
