// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host calls of this back end: futexes in the shared area, clocks.

use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// Not `FUTEX_PRIVATE_FLAG`: several processes map the words.
const SHARED: futex::Flags = futex::Flags::empty();

/// Sleeps while `word` is `value`, until it is woken, a signal comes, or the absolute
/// `CLOCK_MONOTONIC` time `until` has passed. The caller checks its condition again in every case.
pub fn futex_wait(word: &AtomicU32, value: u32, until: Option<u64>) {
    let until = until.map(timespec);
    // The only errors are the ordinary ways to return: another value, a signal, the time.
    let _ = futex::wait_bitset(word, SHARED, value, until.as_ref(), NonZeroU32::MAX);
}

/// Wakes all threads that sleep on `word`.
pub fn futex_wake(word: &AtomicU32) {
    // Cannot fail: the word is mapped and aligned.
    let _ = futex::wake(word, SHARED, i32::MAX.unsigned_abs());
}

/// `CLOCK_MONOTONIC`, ns.
pub fn monotonic() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// `CLOCK_REALTIME`, ns.
pub fn realtime() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// `CLOCK_BOOTTIME`, ns.
pub fn boottime() -> u64 {
    nanoseconds(clock_gettime(ClockId::Boottime))
}

/// The time-stamp counter, read after everything that precedes the call in program order.
pub fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has both instructions, and they touch no memory. If rdtsc is
    // disabled for this process, it is killed by SIGSEGV, as a guest would be; only the process
    // itself can disable it.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

/// The signal that the watch waits for. The watch blocks it, and no other thread gets it.
pub fn watch_signal() -> i32 {
    libc::SIGRTMIN() + 4
}

/// The time as the host takes it.
pub fn timespec(ns: u64) -> Timespec {
    // Both values fit: 2^64 ns are 18,446,744,073 s.
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: signed(ns / SECOND),
        tv_nsec: signed(ns % SECOND),
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    // The host's clocks are never before their epochs.
    time.tv_sec.max(0).unsigned_abs() * SECOND + time.tv_nsec.max(0).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_in_time() {
        let word = AtomicU32::new(1);
        let start = monotonic();
        futex_wait(&word, 2, None);
        futex_wait(&word, 1, Some(start + 2_000_000));
        assert!(monotonic() >= start + 2_000_000);
        futex_wake(&word);
    }

    #[test]
    fn the_counter_goes_on() {
        let first = tsc();
        assert!(tsc() >= first);
    }
}
