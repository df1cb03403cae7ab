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
    /// Of the vCPU that does not ask.
    asleep: AtomicU32,
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

    /// `wake_clock()`, `unread()` and `ask()` of `vcpu/wake_clock.c`. The vCPU waits for no claim.
    fn first(&self) -> u32 {
        self.lock();
        let wanted = match self.asleep.load(Ordering::Relaxed) {
            0 => WRONG,
            _ => UNREAD,
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
        self.checked.store(1, Ordering::Release);
        self.lock.store(0, Ordering::Release);
        self.line.load(Ordering::Relaxed)
    }

    /// `sleep()` of `vcpu/wait.c`, and `wake_clock()`.
    fn second(&self) -> u32 {
        self.asleep.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let checked = self.checked.load(Ordering::Acquire) != 0;
        if !checked || self.lock.load(Ordering::Relaxed) != 0 {
            self.lock();
            self.lock.store(0, Ordering::Release);
        }
        self.line.load(Ordering::Relaxed)
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

/// No vCPU has read a clock that is put back later.
#[test]
fn a_clock_that_was_read_is_not_put_back() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let machine = Arc::new(Machine {
            wanted: AtomicU32::new(RIGHT),
            line: AtomicU32::new(AHEAD),
            lock: AtomicU32::new(0),
            checked: AtomicU32::new(0),
            asleep: AtomicU32::new(1),
        });
        let on = |what: fn(&Machine) -> u32| {
            let machine = Arc::clone(&machine);
            thread::spawn(move || what(&machine))
        };
        let (first, second) = (on(Machine::first), on(Machine::second));
        machine.monitor();
        let read = [first.join().unwrap(), second.join().unwrap()];
        let line = machine.line.load(Ordering::SeqCst);
        assert!(read.iter().all(|&read| read == line), "{read:?} {line}");
    });
}
