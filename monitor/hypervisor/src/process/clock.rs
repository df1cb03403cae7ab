// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maintains the page with which the guest turns the time-stamp counter into the host's
//! `CLOCK_MONOTONIC`.
//!
//! The host's clock itself is the counter times a rate, which NTP adjusts slightly from time to
//! time. The page follows: about once a second its rate is set such that a second later the page
//! agrees with the host's clock. While the guest is idle this happens less often, with a longer
//! period. The page never jumps back, and it is continuous at every change.

use super::shared::Shared;
use super::sys::{self, SECOND};
use std::arch::x86_64::__cpuid;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// The time between two updates in ns.
pub const PERIOD: u64 = SECOND;
/// The time between two updates while the guest is idle, in ns. The page can be further off then,
/// by the change of the host's rate, but costs nothing.
pub const IDLE_PERIOD: u64 = 4 * SECOND;
/// The rate is a fraction with this many binary places. With 32, a counter of 1 GHz is exact to
/// 2^-32.
const SHIFT: u32 = 32;
/// How long the counter is compared with the clock at the start.
const CALIBRATION: Duration = Duration::from_millis(10);
/// A frequency that the processor or a hypervisor names is used if it differs from the measured one
/// by less than 1/this.
const BELIEVE: u64 = 1000;
/// If the page is behind by more than this, in ns, it jumps ahead: the host was suspended, or the
/// monitor was stopped.
const JUMP: u64 = 10_000_000;
/// The rate is changed by at most 1/this to make up for an error.
const MAX_BEND: u64 = 20;
/// The error of a disturbed rate: 1/this.
#[cfg(feature = "test-hooks")]
const WRONG: u64 = 200;
/// The smallest jump of the wall clock in ns; less is its slow adjustment.
const WALL_JUMP: u64 = 100_000_000;

/// Whether the clocks of all machines are disturbed.
#[cfg(feature = "test-hooks")]
pub static DISTURB: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// A planted step of the host's wall clock, in ns.
#[cfg(feature = "test-hooks")]
pub static WALL_STEP: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
/// The value of `CLOCK_MONOTONIC` at which the step happens, in ns.
#[cfg(feature = "test-hooks")]
pub static WALL_STEP_AT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub tsc: u64,
    pub ns: u64,
}

impl Sample {
    /// Reads both clocks, the counter before and after the other one. Takes the closest of a few
    /// tries.
    pub fn take() -> Self {
        let mut best = (u64::MAX, Sample { tsc: 0, ns: 0 });
        for _ in 0..5 {
            let before = sys::tsc();
            let ns = sys::monotonic();
            let width = sys::tsc().saturating_sub(before);
            if width < best.0 {
                best = (
                    width,
                    Sample {
                        tsc: before + width / 2,
                        ns,
                    },
                );
            }
        }
        best.1
    }
}

/// A linear function from the counter to nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    tsc: u64,
    ns: u64,
    mult: u64,
}

impl Line {
    /// Computes it as the layer does.
    fn at(&self, tsc: u64) -> u64 {
        let product = (u128::from(tsc.saturating_sub(self.tsc)) * u128::from(self.mult)) >> SHIFT;
        self.ns
            .saturating_add(u64::try_from(product).unwrap_or(u64::MAX))
    }
}

/// Nanoseconds for each count, times 2^SHIFT.
fn rate(ns: u64, counts: u64) -> u64 {
    let scaled = (u128::from(ns) << SHIFT) / u128::from(counts.max(1));
    // A counter slower than 1 Hz is unusable: the page stands still, and follows the host's clock
    // in jumps.
    u64::try_from(scaled).unwrap_or(0)
}

/// The clock page's writer.
#[derive(Debug)]
pub struct Clock {
    /// Where the measurement of the rate begins.
    base: Sample,
    line: Line,
    hz: u64,
    sequence: u32,
    wall_offset: u64,
    /// Each rate is wrong, alternately too low and too high.
    #[cfg(feature = "test-hooks")]
    disturbed: Option<bool>,
}

impl Clock {
    /// Measures the counter. `since` is an earlier sample: the earlier, the more exact.
    pub fn new(since: Sample) -> Self {
        let age = Duration::from_nanos(sys::monotonic().saturating_sub(since.ns));
        if age < CALIBRATION {
            std::thread::sleep(CALIBRATION - age);
        }
        let now = Sample::take();
        let (ns, counts) = (now.ns - since.ns, now.tsc.saturating_sub(since.tsc));
        let measured = frequency(ns, counts);
        let named = named_frequency().filter(|&hz| hz.abs_diff(measured) < measured / BELIEVE);
        let hz = named.unwrap_or(measured);
        let line = Line {
            tsc: now.tsc,
            ns: now.ns,
            mult: rate(SECOND, hz),
        };
        Clock {
            base: since,
            line,
            hz,
            sequence: 0,
            wall_offset: 0,
            #[cfg(feature = "test-hooks")]
            disturbed: None,
        }
    }

    /// Makes the clock wrong. It begins ahead of the counter, as on a host whose CPUs' counters
    /// differ, but by much more, and its rate is never right.
    #[cfg(feature = "test-hooks")]
    pub fn disturb(&mut self) {
        self.line.tsc += self.hz;
        self.disturbed = Some(false);
    }

    /// A rate that is wrong by 1/`WRONG`, if the clock is disturbed.
    #[cfg(feature = "test-hooks")]
    fn disturbed_rate(&mut self, mult: u64) -> u64 {
        let Some(fast) = &mut self.disturbed else {
            return mult;
        };
        *fast = !*fast;
        if *fast {
            mult - mult / WRONG
        } else {
            mult + mult / WRONG
        }
    }

    /// The counter's frequency in Hz.
    pub fn hz(&self) -> u64 {
        self.hz
    }

    /// Writes the page for the first time.
    pub fn publish(&mut self, shared: &Shared) {
        self.write(shared, self.line);
        self.wall_offset = wall_offset();
        shared
            .header()
            .wall_offset_ns
            .store(self.wall_offset, Ordering::SeqCst);
    }

    /// Corrects the page by the host's clocks. `period` is the time to the next call in ns. An
    /// error is corrected over the whole period: a faster correction would overshoot.
    pub fn update(&mut self, shared: &Shared, period: u64) {
        let now = Sample::take();
        let mult = self.next_rate(now, period);
        #[cfg(feature = "test-hooks")]
        let mult = self.disturbed_rate(mult);
        self.switch(shared, now, mult);
        let wall = wall_offset();
        let jumped = wall.abs_diff(self.wall_offset) > WALL_JUMP;
        self.wall_offset = wall;
        shared.header().wall_offset_ns.store(wall, Ordering::SeqCst);
        if jumped {
            shared.header().wall_updates.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The rate with which the page meets the host's clock at the end of this period.
    fn next_rate(&mut self, now: Sample, period: u64) -> u64 {
        let counts = now.tsc.saturating_sub(self.base.tsc);
        let ns = now.ns.saturating_sub(self.base.ns);
        // The host's present rate, over the last period or a little more. The average since the
        // start would follow too slowly.
        let host = if counts > 0 {
            rate(ns, counts)
        } else {
            self.line.mult
        };
        if ns >= PERIOD / 2 {
            self.base = now;
        }
        let shown = self.line.at(now.tsc);
        let ahead = shown.saturating_sub(now.ns).min(period / MAX_BEND);
        let behind = now.ns.saturating_sub(shown);
        let behind = if behind > JUMP { 0 } else { behind };
        let bend = |by: u64| {
            u64::try_from(u128::from(host) * u128::from(by) / u128::from(period)).unwrap_or(0)
        };
        host.saturating_add(bend(behind))
            .saturating_sub(bend(ahead))
    }

    /// Continues with another rate from the page's present value, or from the host's clock if that
    /// is far ahead.
    fn switch(&mut self, shared: &Shared, host: Sample, mult: u64) {
        self.sequence = self.sequence.wrapping_add(1);
        sequence(shared).store(self.sequence, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Read while the page cannot be read: readers of the old line read the counter before,
        // readers of the new one read it after. So time does not go back between the two.
        let tsc = sys::tsc();
        let shown = self.line.at(tsc);
        let ns = if host.ns > shown.saturating_add(JUMP) {
            host.ns
        } else {
            shown
        };
        self.fields(shared, Line { tsc, ns, mult });
    }

    fn write(&mut self, shared: &Shared, line: Line) {
        self.sequence = self.sequence.wrapping_add(1);
        sequence(shared).store(self.sequence, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.fields(shared, line);
    }

    fn fields(&mut self, shared: &Shared, line: Line) {
        self.line = line;
        let clock = &shared.header().clock;
        clock.shift.store(SHIFT, Ordering::Relaxed);
        clock.tsc.store(line.tsc, Ordering::Relaxed);
        clock.ns.store(line.ns, Ordering::Relaxed);
        clock.mult.store(line.mult, Ordering::Relaxed);
        clock.tsc_hz.store(self.hz, Ordering::Relaxed);
        self.sequence = self.sequence.wrapping_add(1);
        sequence(shared).store(self.sequence, Ordering::Release);
    }
}

fn sequence(shared: &Shared) -> &std::sync::atomic::AtomicU32 {
    &shared.header().clock.sequence
}

fn wall_offset() -> u64 {
    let now = sys::monotonic();
    let offset = sys::realtime().saturating_sub(now);
    #[cfg(feature = "test-hooks")]
    if now >= WALL_STEP_AT.load(Ordering::Relaxed) {
        return offset + WALL_STEP.load(Ordering::Relaxed);
    }
    offset
}

fn frequency(ns: u64, counts: u64) -> u64 {
    u64::try_from(u128::from(counts) * u128::from(SECOND) / u128::from(ns.max(1))).unwrap_or(0)
}

/// The counter's frequency as the processor (leaf 0x15) or the hypervisor below (leaf 0x40000010)
/// names it.
// Newer standard libraries declare __cpuid safe: every x86-64 processor has it.
#[allow(unused_unsafe)]
fn named_frequency() -> Option<u64> {
    // SAFETY: cpuid has no effect but its result. If cpuid faults in a process, the process itself
    // has asked for that.
    let leaf = |number| unsafe { __cpuid(number) };
    if leaf(1).ecx >> 31 == 1 && (0x4000_0010..0x4001_0000).contains(&leaf(0x4000_0000).eax) {
        let khz = leaf(0x4000_0010).eax;
        if khz != 0 {
            return Some(u64::from(khz) * 1000);
        }
    }
    let crystal = (leaf(0).eax >= 0x15).then(|| leaf(0x15))?;
    if crystal.eax == 0 || crystal.ebx == 0 || crystal.ecx == 0 {
        return None;
    }
    Some(u64::from(crystal.ecx) * u64::from(crystal.ebx) / u64::from(crystal.eax))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn clock(line: Line) -> Clock {
        Clock {
            base: Sample {
                tsc: line.tsc,
                ns: line.ns,
            },
            line,
            hz: 0,
            sequence: 0,
            wall_offset: 0,
            #[cfg(feature = "test-hooks")]
            disturbed: None,
        }
    }

    #[test]
    fn the_counter_is_measured() {
        let clock = Clock::new(Sample::take());
        assert!(
            (100_000_000..20_000_000_000).contains(&clock.hz()),
            "{}",
            clock.hz()
        );
    }

    #[test]
    fn the_page_stays_with_the_host() {
        let shared = Shared::new(0).unwrap();
        let mut clock = Clock::new(Sample::take());
        clock.publish(&shared);
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(20));
            clock.update(&shared, PERIOD);
        }
        let now = Sample::take();
        assert!(clock.line.at(now.tsc).abs_diff(now.ns) < 200_000);
        assert_eq!(sequence(&shared).load(Ordering::SeqCst) % 2, 0);
    }

    #[test]
    fn an_error_is_gone_after_a_period() {
        for period in [PERIOD, IDLE_PERIOD] {
            // A counter of 1 GHz on a host whose clock runs 100 ppm fast; the page is 20 us behind.
            let mut clock = clock(Line {
                tsc: 0,
                ns: 0,
                mult: 1 << SHIFT,
            });
            let host = |tsc: u64| tsc + tsc / 10_000 + 20_000;
            let mut worst = 0;
            for step in 1..20u64 {
                let now = Sample {
                    tsc: step * period,
                    ns: host(step * period),
                };
                worst = clock.line.at(now.tsc).abs_diff(now.ns);
                let mult = clock.next_rate(now, period);
                clock.line = Line {
                    tsc: now.tsc,
                    ns: clock.line.at(now.tsc),
                    mult,
                };
            }
            assert!(worst < 1000, "{worst} ns");
        }
    }

    proptest! {
        #[test]
        fn time_never_goes_back(
            jumps in prop::collection::vec((1u64..3 * SECOND, 0u64..4 * SECOND), 1..30),
        ) {
            let shared = Shared::new(0).unwrap();
            let mut clock = clock(Line { tsc: sys::tsc(), ns: 0, mult: 1 << SHIFT });
            let (mut host, mut shown) = (Sample { tsc: clock.line.tsc, ns: 0 }, 0);
            for (counts, ns) in jumps {
                host = Sample { tsc: host.tsc + counts, ns: host.ns + ns };
                let mult = clock.next_rate(host, PERIOD);
                let before = clock.line;
                clock.switch(&shared, host, mult);
                let now = clock.line.tsc;
                prop_assert!(clock.line.at(now) >= before.at(now));
                prop_assert!(clock.line.at(now) >= shown);
                shown = clock.line.at(now);
            }
        }
    }
}
