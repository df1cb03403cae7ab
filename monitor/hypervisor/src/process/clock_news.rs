// SPDX-License-Identifier: Apache-2.0 OR MIT
//! News from the watch, which keeps the clock, to the alarm thread, which interrupts vCPUs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A vCPU that runs has to rewrite the guest's clock page, or to recompute a timeout. Of no
/// interest while none runs.
pub const PAGE: u32 = 1;
/// The wall clock has jumped. One vCPU has to learn it, if need be by an end of its halt.
pub const WALL: u32 = 2;

/// The news that were not passed on yet, and how far the clock is ahead. The guest cannot write it.
#[derive(Debug, Default)]
pub struct ClockNews {
    waiting: AtomicU32,
    ahead: AtomicU64,
}

impl ClockNews {
    /// Adds news. The caller wakes the alarm thread.
    pub fn add(&self, news: u32) {
        self.waiting.fetch_or(news, Ordering::SeqCst);
    }

    /// Takes all that waits.
    pub fn take(&self) -> u32 {
        self.waiting.swap(0, Ordering::SeqCst)
    }

    /// What the machine's clock is ahead of `CLOCK_MONOTONIC`, ns.
    pub fn ahead(&self) -> u64 {
        self.ahead.load(Ordering::SeqCst)
    }

    /// Sets that. Returns whether it is new: the caller then wakes the alarm thread, whose timeouts
    /// are no longer right.
    pub fn set_ahead(&self, ns: u64) -> bool {
        self.ahead.swap(ns, Ordering::SeqCst) != ns
    }
}
