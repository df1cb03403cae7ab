// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How threads of the monitor and of the layer wake each other: the monitor's half.
//!
//! The layer's half is `layers/process/host/doorbell.h`, which has the table of all uses. A waker
//! and a sleeper each store, then load what the other one stores:
//!
//! | | waker | sleeper |
//! |---|---|---|
//! | 1 | stores work | announces its sleep |
//! | 2 | full barrier | full barrier |
//! | 3 | reads the announcement, wakes if there | looks for work again, waits if there is none |
//!
//! The barriers keep each load after the store before it, so at least one side sees the other. No
//! function here makes a host call: the caller passes the futex wait or wake. `tests/loom.rs` runs
//! both halves in every order that the memory model allows.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(not(loom))]
pub use core::sync::atomic;
#[cfg(loom)]
pub use loom::sync::atomic;

use atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Goes to sleep unless there is work. `sleeping` is the announcement, which a waker takes away.
///
/// `work` looks for work; `wait` waits on a futex whose word changes with the work or with the
/// wake. Returns after a wake, after work, or for no reason: the caller looks for work either way.
pub fn sleep_unless(sleeping: &AtomicU32, work: impl FnOnce() -> bool, wait: impl FnOnce()) {
    sleeping.swap(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if !work() {
        wait();
    }
    sleeping.swap(0, Ordering::SeqCst);
}

/// Wakes a thread of [`sleep_unless`] for work that the caller has stored. One wake serves all work
/// that comes before the thread runs.
pub fn wake_announced(sleeping: &AtomicU32, wake: impl FnOnce()) {
    fence(Ordering::SeqCst);
    if sleeping.load(Ordering::SeqCst) != 0 && sleeping.swap(0, Ordering::SeqCst) != 0 {
        wake();
    }
}

/// Sleeps until `moment`, unless work that is due earlier has arrived.
///
/// `until` is the announcement: a waker whose work is due before it counts the futex's word up and
/// wakes. `seen` is that word, read before the caller looked for work and found `moment`.
/// `earliest` looks again.
pub fn sleep_until(
    until: &AtomicU64,
    moment: u64,
    earliest: impl FnOnce() -> u64,
    wait: impl FnOnce(),
) {
    until.store(moment, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if earliest() >= moment {
        wait();
    }
}

/// The words of a vCPU by which it is kicked.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// What is pending, a bit for each kind.
    pub pending: &'a AtomicU32,
    /// The vCPU's state.
    pub state: &'a AtomicU32,
    /// The value of `state` while the vCPU waits.
    pub halted: u32,
    /// Not 0: a vCPU that waits looks for what is pending before it sleeps.
    pub polling: &'a AtomicU32,
    /// Futex of a vCPU that waits: one more wakes it.
    pub wait_word: &'a AtomicU32,
    /// The thread that is the vCPU. 0: the vCPU is between two threads.
    pub owner: &'a AtomicU64,
}

/// Where a vCPU was when it was kicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It waited, and its futex's word has changed: wake it.
    Waiting,
    /// It waited without a sleep, and looks once more before one.
    Looking,
    /// This thread is the vCPU, or was a moment ago: signal it. 0: the thread that becomes the vCPU
    /// next looks by itself. A guest can write any number here.
    Owner(u64),
}

impl Target<'_> {
    /// Sets pending bits. The vCPU's next owner sees them, or [`Target::find`] sees the owner.
    pub fn set_pending(&self, bits: u32) {
        self.pending.fetch_or(bits, Ordering::SeqCst);
    }

    /// Finds the vCPU after something was made pending.
    ///
    /// Pairs with `irq_wait()`, which stores `state` and then reads `pending`, and with `become()`,
    /// which stores `owner` and then reads `pending`. `space_load()` clears `owner` before that.
    pub fn find(&self) -> Found {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) == self.halted {
            // It takes this back, executes a barrier, and looks for the last time.
            if self.polling.load(Ordering::SeqCst) != 0 {
                return Found::Looking;
            }
            self.wait_word.fetch_add(1, Ordering::SeqCst);
            return Found::Waiting;
        }
        Found::Owner(self.owner.load(Ordering::SeqCst))
    }
}

/// How often [`raise`] reads a route that changes while it does. The guest can write the route, so
/// this bounds the loop.
const TRIES: u32 = 8;

/// Signals an interrupt line: returns the route to deliver to, or notes that the line is masked.
///
/// The low byte of a route is the vector, and vector 0 masks the line. Pairs with `line.route`,
/// which stores `route` and then takes `raised`: one of the two delivers, and only one.
pub fn raise(route: &AtomicU32, raised: &AtomicU32) -> Option<u32> {
    for _ in 0..TRIES {
        let to = route.load(Ordering::SeqCst);
        if to & 0xff != 0 {
            return Some(to);
        }
        raised.fetch_or(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if route.load(Ordering::SeqCst) & 0xff == 0 || raised.swap(0, Ordering::SeqCst) == 0 {
            return None;
        }
    }
    // Only a guest that masks and unmasks the line without end gets here. It finds the signal when
    // it unmasks the line the next time.
    raised.fetch_or(1, Ordering::SeqCst);
    None
}
