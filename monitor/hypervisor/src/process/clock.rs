// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maintains the page with which the guest turns the time-stamp counter into the machine's clock.
//!
//! The machine's clock is the host's `CLOCK_MONOTONIC` plus the suspends of the host in which the
//! counter went on.
//!
//! The host's clock itself is the counter times a rate, which NTP adjusts slightly from time to
//! time. The page follows: about once a second its rate is set such that a second later the page
//! agrees with the host's clock. While the guest is idle this happens less often, with a longer
//! period. The page never jumps back, and it is continuous at every change.
//!
//! While the host is suspended, `CLOCK_MONOTONIC` stands still. If the counter goes on, all readers
//! of the page and of the counter see the time pass, which cannot be undone: the machine's clock
//! then counts the suspend. If the counter stands still or begins again at 0, the machine's clock
//! stands still, too. `CLOCK_BOOTTIME` shows that there was a suspend. The wall clock is right
//! either way.

use super::host_clocks::{self, Sample};
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
/// If the page is slow by more than this, in ns, it jumps ahead: the monitor was stopped for long.
const JUMP: u64 = 10_000_000;
/// The rate is changed by at most 1/this to make up for an error.
const MAX_BEND: u64 = 20;
/// The error of a disturbed rate: 1/this.
#[cfg(feature = "test-hooks")]
const WRONG: u64 = 200;
/// An error of the page in ns at which it is not left until the next update.
const FAR_OFF: u64 = 15_000;
/// A measurement of the rate over less time, in ns, says less than the last one.
const LEAST_MEASURED: u64 = 20_000_000;
/// The shortest suspend in ns; less is how inexactly two clocks are compared.
const SUSPEND: u64 = 1_000_000;
/// If the page is ahead by less than this, in ns, it can be put back while no vCPU reads it. The
/// layer says so only if no vCPU has read it for longer.
const BACK: u64 = 10_000_000;
/// The smallest jump of the wall clock in ns that is reported to the guest. Smaller ones add up.
const WALL_JUMP: u64 = 100_000_000;

/// Whether the clocks of all machines are disturbed.
#[cfg(feature = "test-hooks")]
pub static DISTURB: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// How the page may be put right at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Catch {
    /// Forward.
    Up,
    /// Also back: no vCPU reads it, or has read it for [`BACK`].
    Both,
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
    /// Where the measurement of the rate begins. Its time is the machine's, as all below.
    base: Sample,
    /// The host's rate by the last measurement.
    rate: u64,
    line: Line,
    hz: u64,
    sequence: u32,
    /// The wall clock's offset when a jump was last reported to the guest.
    wall_offset: u64,
    /// [`host_clocks::suspended`] as last seen.
    suspended: u64,
    /// What the machine's clock is ahead of the host's, ns.
    counted: u64,
    /// The machine's clock when the line was made.
    written: u64,
    /// The page's error then, ns.
    error: u64,
    /// The host was suspended since then, and the counter did not go on.
    stood: bool,
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
            rate: line.mult,
            written: line.ns,
            error: 0,
            stood: false,
            line,
            hz,
            sequence: 0,
            wall_offset: 0,
            suspended: host_clocks::suspended(),
            counted: 0,
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

    /// What the machine's clock is ahead of `CLOCK_MONOTONIC`, ns. Timeouts of the host need that.
    pub fn ahead(&self) -> u64 {
        self.counted + host_clocks::shown_ahead()
    }

    /// Writes the page for the first time.
    pub fn publish(&mut self, shared: &Shared) {
        self.write(shared, self.line);
        self.publish_offsets(shared);
    }

    /// Corrects the page by the host's clocks. `period` is the time to the next call in ns. An
    /// error is corrected over the whole period: a faster correction would overshoot. `catch` says
    /// whether it can be corrected at once. Returns whether the wall clock has jumped.
    pub fn update(&mut self, shared: &Shared, period: u64, catch: Option<Catch>) -> bool {
        let suspended = host_clocks::suspended();
        let now = self.machine_time(Sample::take(), suspended);
        let mult = self.next_rate(now, period);
        #[cfg(feature = "test-hooks")]
        let mult = self.disturbed_rate(mult);
        self.switch(shared, now, mult, catch);
        let jumped = self.publish_offsets(shared);
        if jumped {
            shared.header().wall_updates.fetch_add(1, Ordering::SeqCst);
        }
        jumped
    }

    /// Whether the host's clock has changed its rate since the last update, so that the page should
    /// not wait for the next one.
    pub fn is_far_off(&self) -> bool {
        #[cfg(feature = "test-hooks")]
        if self.disturbed.is_some() {
            return false;
        }
        let now = Sample::take();
        let error = self.line.at(now.tsc).abs_diff(now.ns + self.counted);
        now.ns + self.counted >= self.written + LEAST_MEASURED && error > self.error + FAR_OFF
    }

    /// Whether a correction that a vCPU asks for is not under way already: a page that is ahead and
    /// cannot be put back is corrected over a period, which must not begin again each time.
    pub fn needs(&self, catch: Catch) -> bool {
        let now = Sample::take();
        let ahead = self.line.at(now.tsc) > now.ns + self.counted;
        catch == Catch::Both || !ahead || self.is_far_off()
    }

    /// Writes what other clocks differ from this one by. Returns whether the wall clock has jumped.
    fn publish_offsets(&mut self, shared: &Shared) -> bool {
        let header = shared.header();
        header.ahead_ns.store(self.ahead(), Ordering::SeqCst);
        let wall = host_clocks::wall_offset().saturating_sub(self.counted);
        header.wall_offset_ns.store(wall, Ordering::SeqCst);
        let jumped = wall.abs_diff(self.wall_offset) > WALL_JUMP;
        if jumped {
            self.wall_offset = wall;
        }
        jumped
    }

    /// The machine's clock, from that of the host. `suspended` was read before.
    fn machine_time(&mut self, host: Sample, suspended: u64) -> Sample {
        let mut now = Sample {
            ns: host.ns.saturating_add(self.counted),
            ..host
        };
        let slept = suspended.saturating_sub(self.suspended);
        if slept >= SUSPEND {
            self.suspended = suspended;
            let gained = self.line.at(now.tsc).saturating_sub(now.ns);
            let counted = gained > slept / 2;
            tracing::info!(seconds = slept / SECOND, counted, "the host was suspended");
            if now.tsc < self.line.tsc {
                tracing::warn!(
                    "the host's time-stamp counter began again: a guest that uses it as its clock \
                     source must notice that; VMI-Linux of earlier versions does not"
                );
            }
            if counted {
                self.counted = self.counted.saturating_add(slept);
                now.ns = now.ns.saturating_add(slept);
            }
            self.stood = !counted;
        }
        // The rate is not measured across a suspend: clocks of a host agree less well about that,
        // and the counter may have begun again.
        if slept >= SUSPEND || now.tsc < self.base.tsc {
            self.base = now;
        }
        now
    }

    /// The rate with which the page meets the machine's clock at the end of this period.
    fn next_rate(&mut self, now: Sample, period: u64) -> u64 {
        let counts = now.tsc.saturating_sub(self.base.tsc);
        let ns = now.ns.saturating_sub(self.base.ns);
        // The host's present rate, over the last period or a little more. The average since the
        // start would follow too slowly.
        if counts > 0 && ns >= LEAST_MEASURED {
            self.rate = rate(ns, counts);
        }
        let shown = self.line.at(now.tsc);
        self.error = shown.abs_diff(now.ns);
        // A page that has become wrong shows that the rate has changed.
        if ns >= PERIOD / 2 || self.error > FAR_OFF {
            self.base = now;
        }
        let ahead = shown.saturating_sub(now.ns).min(period / MAX_BEND);
        let behind = now.ns.saturating_sub(shown);
        let behind = if behind > JUMP { 0 } else { behind };
        let bend = |by: u64| {
            u64::try_from(u128::from(self.rate) * u128::from(by) / u128::from(period)).unwrap_or(0)
        };
        self.rate
            .saturating_add(bend(behind))
            .saturating_sub(bend(ahead))
    }

    /// Continues with another rate.
    fn switch(&mut self, shared: &Shared, now: Sample, mult: u64, catch: Option<Catch>) {
        self.sequence = self.sequence.wrapping_add(1);
        sequence(shared).store(self.sequence, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Read while the page cannot be read: readers of the old line read the counter before,
        // readers of the new one read it after. So time does not go back between the two.
        let tsc = sys::tsc();
        let line = match catch.and_then(|catch| self.caught(tsc, now, catch)) {
            Some(line) => line,
            None => self.next_line(tsc, now, mult),
        };
        self.fields(shared, line);
    }

    /// The line that is right from this moment on, if the page may jump to it.
    fn caught(&mut self, tsc: u64, now: Sample, catch: Catch) -> Option<Line> {
        #[cfg(feature = "test-hooks")]
        if self.disturbed.is_some() {
            return None;
        }
        let mult = self.rate;
        let right = Line {
            tsc: now.tsc,
            ns: now.ns,
            mult,
        };
        let (shown, ns) = (self.line.at(tsc), right.at(tsc));
        let back = shown.saturating_sub(ns);
        let steady = !self.stood && tsc >= self.line.tsc;
        if !steady || back > 0 && (catch == Catch::Up || back > BACK) {
            return None;
        }
        self.written = now.ns;
        self.error = 0;
        Some(Line { tsc, ns, mult })
    }

    /// The line from this moment on, by the page's present value, or by the machine's clock if that
    /// is far ahead.
    fn next_line(&mut self, tsc: u64, now: Sample, mult: u64) -> Line {
        let shown = self.line.at(tsc);
        let ns = if std::mem::take(&mut self.stood) || tsc < self.line.tsc {
            shown.max(now.ns).max(self.shown_before(now))
        } else if now.ns > shown.saturating_add(JUMP) {
            now.ns
        } else {
            shown
        };
        self.written = now.ns;
        Line { tsc, ns, mult }
    }

    /// What the page had shown when the counter stopped. It may have begun again at any value.
    fn shown_before(&self, now: Sample) -> u64 {
        let passed = u128::from(now.ns.saturating_sub(self.written));
        let shown = passed * u128::from(self.line.mult) / u128::from(self.rate.max(1));
        let inexact = 1000;
        self.line
            .ns
            .saturating_add(u64::try_from(shown).unwrap_or(u64::MAX))
            .saturating_add(inexact)
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
#[path = "clock_tests.rs"]
mod tests;
