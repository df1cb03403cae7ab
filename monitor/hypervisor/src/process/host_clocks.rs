// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's clocks as the writer of the clock page reads them: in pairs, as nearly as possible at
//! the same moment.

use super::sys;

/// How often two clocks are read for one comparison. The closest reading counts: the host may take
/// the processor away during one.
const TRIES: usize = 5;

/// The counter and `CLOCK_MONOTONIC`, in ns, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub tsc: u64,
    pub ns: u64,
}

impl Sample {
    /// Reads both clocks.
    pub fn take() -> Self {
        let (tsc, ns) = together(sys::tsc, monotonic);
        Sample { tsc, ns }
    }
}

/// The time for which the host was suspended since its start, in ns: `CLOCK_BOOTTIME` less
/// `CLOCK_MONOTONIC`. It can be wrong by the time that it takes to read a clock.
pub fn suspended() -> u64 {
    let (monotonic, boot) = together(sys::monotonic, sys::boottime);
    #[cfg(feature = "test-hooks")]
    let boot = boot + bent::stood(monotonic);
    boot.saturating_sub(monotonic)
}

/// `CLOCK_REALTIME` less `CLOCK_MONOTONIC`, in ns.
pub fn wall_offset() -> u64 {
    let (monotonic, real) = together(monotonic, sys::realtime);
    #[cfg(feature = "test-hooks")]
    let real = real + bent::wall(sys::monotonic());
    real.saturating_sub(monotonic)
}

/// What [`Sample::take`] shows more than `CLOCK_MONOTONIC`, in ns: only tests make a difference.
#[cfg(feature = "test-hooks")]
pub fn shown_ahead() -> u64 {
    bent::ahead(sys::monotonic())
}

/// The difference without tests: none.
#[cfg(not(feature = "test-hooks"))]
pub fn shown_ahead() -> u64 {
    0
}

/// `CLOCK_MONOTONIC` in ns, or what tests want it to be.
fn monotonic() -> u64 {
    let now = sys::monotonic();
    #[cfg(feature = "test-hooks")]
    let now = now + bent::ahead(now);
    now
}

/// Reads the first clock before and after the second one. Returns their values in the middle of the
/// closest of a few tries.
fn together(first: impl Fn() -> u64, second: impl Fn() -> u64) -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..TRIES {
        let before = first();
        let other = second();
        let width = first().saturating_sub(before);
        if width < best.0 {
            best = (width, before + width / 2, other);
        }
    }
    (best.1, best.2)
}

/// What tests do to the host's clocks. Times are `CLOCK_MONOTONIC` of the host, in ns.
#[cfg(feature = "test-hooks")]
pub mod bent {
    use crate::process::core::Core;
    use crate::process::sys;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Duration;

    /// A step of the wall clock, and when it happens.
    pub static WALL_STEP: AtomicU64 = AtomicU64::new(0);
    pub static WALL_STEP_AT: AtomicU64 = AtomicU64::new(0);
    /// For how long the clock stands while the counter goes on, as in a suspend, and from when on.
    pub static STAND_FOR: AtomicU64 = AtomicU64::new(0);
    pub static STAND_AT: AtomicU64 = AtomicU64::new(0);
    /// By how many millionths the clock is too fast or too slow.
    pub static SLEW: AtomicU64 = AtomicU64::new(0);
    /// For how long it is too fast, and then too slow, and so on.
    pub static SLEW_FOR: AtomicU64 = AtomicU64::new(1);
    /// When that begins.
    pub static SLEW_FROM: AtomicU64 = AtomicU64::new(0);

    pub fn wall(now: u64) -> u64 {
        if now < WALL_STEP_AT.load(Relaxed) {
            return 0;
        }
        WALL_STEP.load(Relaxed)
    }

    /// For how long the clock has stood.
    pub fn stood(now: u64) -> u64 {
        let passed = now.saturating_sub(STAND_AT.load(Relaxed));
        passed.min(STAND_FOR.load(Relaxed))
    }

    /// What the clock is ahead of the host's. It is ahead by `STAND_FOR` at first, so that it need
    /// not become slow.
    pub fn ahead(now: u64) -> u64 {
        let (ppm, turn) = (SLEW.load(Relaxed), SLEW_FOR.load(Relaxed));
        let at = now.saturating_sub(SLEW_FROM.load(Relaxed)) % (2 * turn);
        let slewed = at.min(2 * turn - at) * ppm / 1_000_000;
        STAND_FOR.load(Relaxed) - stood(now) + slewed
    }

    /// Lets the layer see the clock of a machine as it is bent, too: the layer reads
    /// `CLOCK_MONOTONIC` itself, and adds `ahead_ns`.
    pub fn show_layer(core: &Arc<Core>) {
        const EACH: Duration = Duration::from_millis(1);
        if SLEW.load(Relaxed) == 0 {
            return;
        }
        let core = Arc::clone(core);
        std::thread::spawn(move || {
            while !core.stopping() {
                let ahead = &core.shared.header().ahead_ns;
                ahead.store(self::ahead(sys::monotonic()), Relaxed);
                std::thread::sleep(EACH);
            }
        });
    }

    /// When something happens that the host would report: a step, the end of a suspend.
    pub fn event() -> Option<u64> {
        let step = (WALL_STEP.load(Relaxed) != 0).then(|| WALL_STEP_AT.load(Relaxed));
        let length = STAND_FOR.load(Relaxed);
        step.or((length != 0).then(|| STAND_AT.load(Relaxed) + length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_closest_of_the_tries_counts() {
        // The second reading of the first clock comes late, but in the third try.
        let times = [0, 90, 100, 190, 200, 210, 300, 390, 400, 490];
        let next = Cell::new(0);
        let first = || {
            next.set(next.get() + 1);
            times[next.get() - 1]
        };
        assert_eq!(together(first, || next.get() as u64), (205, 5));
    }

    #[test]
    fn the_wall_clock_is_what_the_offset_says() {
        let error = (wall_offset() + sys::monotonic()).abs_diff(sys::realtime());
        assert!(error < 1_000_000_000, "{error}");
    }
}
