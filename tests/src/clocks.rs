// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clocks of a Linux guest beside those of the host.

#![allow(clippy::unwrap_used, clippy::panic)]
// A failed setup fails the test.
// Differences of a counter and of times in ns, over a round trip.
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]

use crate::lines::Lines;
use crate::{linux, program, source_root};
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// How certain a measurement must be, in ns.
pub const CERTAIN: i64 = 10_000;
/// The limit for the error of the monotonic clock, including the error of a measurement, in ns.
pub const RIGHT: i64 = 100_000;
/// The limit for the error of the wall clock, in ns.
pub const WALL_RIGHT: i64 = 1_000_000;

/// How much the host's clock is too fast or too slow, in turn, with `--slew-clock`.
pub const SLEW_PPM: i64 = 500;
/// For how long, in ns.
pub const SLEW_TURN: i64 = 8_000_000_000;

/// What the host's clock is ahead when it is slewed, at `CLOCK_MONOTONIC`.
#[must_use]
pub fn slewed(now: i64) -> i64 {
    let at = now % (2 * SLEW_TURN);
    at.min(2 * SLEW_TURN - at) * SLEW_PPM / 1_000_000
}

/// The guest's clocks less the host's, in ns, and how uncertain that is.
#[derive(Clone, Copy, Debug)]
pub struct Offsets {
    /// The host's `CLOCK_MONOTONIC`, ns.
    pub at: i64,
    /// Of `CLOCK_MONOTONIC`.
    pub monotonic: i64,
    /// Of `CLOCK_REALTIME`.
    pub real: i64,
    /// How far either may be off.
    pub uncertain: i64,
}

/// A clock of the host, in ns.
#[must_use]
pub fn now(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The host's counter and clocks at one moment, and how far a clock may be off.
#[derive(Clone, Copy, Debug)]
struct Moment {
    tsc: i64,
    monotonic: i64,
    real: i64,
    uncertain: i64,
}

impl Moment {
    /// The closest of a few readings.
    fn now() -> Self {
        let read = |_| {
            let first = now(ClockId::Monotonic);
            let tsc = counter();
            let real = now(ClockId::Realtime);
            let half = (now(ClockId::Monotonic) - first) / 2;
            Moment {
                tsc,
                monotonic: first + half,
                real,
                uncertain: half,
            }
        };
        (0..5).map(read).min_by_key(|m| m.uncertain).unwrap()
    }

    /// A moment in between, of which the counter is known.
    fn at(&self, after: &Moment, tsc: i64) -> Self {
        let part = (tsc - self.tsc) as f64 / (after.tsc - self.tsc) as f64;
        let between = |first: i64, last: i64| first + ((last - first) as f64 * part) as i64;
        Moment {
            tsc,
            monotonic: between(self.monotonic, after.monotonic),
            real: between(self.real, after.real),
            uncertain: self.uncertain.max(after.uncertain),
        }
    }
}

/// The time-stamp counter, which a guest on the process hypervisor reads, too.
#[must_use]
pub fn counter() -> i64 {
    // SAFETY: every x86-64 processor has both instructions, and they touch no memory.
    let tsc = unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    };
    i64::try_from(tsc).unwrap()
}

/// A machine that prints its clocks.
#[derive(Debug)]
pub struct Clocks {
    /// The monitor.
    pub machine: Child,
    /// Before it was started.
    pub begun: Instant,
    ask: ChildStdin,
    answers: Lines,
    _folder: tempfile::TempDir,
}

impl Clocks {
    /// Starts it, with options that `prepare` adds to those that it gets. Returns when it is up.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(prepare: impl Fn(&[&str]) -> Command) -> Self {
        Clocks::start_between("", "", prepare)
    }

    /// Starts it between two parts of a script, for which `/x/times` is there.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_between(before: &str, after: &str, prepare: impl Fn(&[&str]) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        linux::compile(
            &source_root().join("tests/guest/clock"),
            &folder.path().join("clock"),
        );
        linux::compile(
            &source_root().join("tests/guest/times"),
            &folder.path().join("times"),
        );
        let volume = format!("{}:/x:ro", folder.path().display());
        let mut command = prepare(&["--volume", &volume]);
        let begun = Instant::now();
        let mut machine = command
            .args(["--", "sh", "-c", &format!("{before}\n/x/clock\n{after}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut clocks = Clocks {
            ask: machine.stdin.take().unwrap(),
            answers: Lines::of(machine.stdout.take()),
            machine,
            begun,
            _folder: folder,
        };
        clocks.ask();
        clocks
    }

    /// Asks once.
    ///
    /// # Panics
    /// When the machine has ended.
    pub fn ask(&mut self) -> Offsets {
        let before = Moment::now();
        self.ask.write_all(b"now\n").unwrap();
        let line = self.answers.next_within(program::PATIENCE);
        let after = Moment::now();
        let words: Vec<i64> = line.split(' ').map(|w| w.trim().parse().unwrap()).collect();
        let [tsc, monotonic, real, width] = words[..] else {
            panic!("{line}");
        };
        let at = before.at(&after, tsc);
        // The counters of the host's processors are the same, or this is no measurement.
        assert!((before.tsc..=after.tsc).contains(&tsc), "{before:?} {line}");
        let each = (after.monotonic - before.monotonic) as f64 / (after.tsc - before.tsc) as f64;
        Offsets {
            at: at.monotonic,
            monotonic: monotonic - at.monotonic,
            real: real - at.real,
            uncertain: (width as f64 * each) as i64 / 2 + before.uncertain.max(after.uncertain),
        }
    }

    /// The first try that is certain enough. `None`: there was none in this time.
    pub fn certain(&mut self, uncertain: i64, time: Duration) -> Option<Offsets> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            let offsets = self.ask();
            if offsets.uncertain <= uncertain {
                return Some(offsets);
            }
        }
        None
    }

    /// Ends the machine. Returns what its script prints then.
    ///
    /// # Panics
    /// When it fails.
    pub fn end(mut self) -> String {
        drop(self.ask);
        let rest = self.answers.rest_within(program::LONGEST);
        assert!(
            program::wait_within(&mut self.machine, program::PATIENCE).success(),
            "{rest}"
        );
        rest
    }
}
