// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the clock page's writer.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

fn clock(line: Line) -> Clock {
    Clock {
        base: Sample {
            tsc: line.tsc,
            ns: line.ns,
        },
        rate: line.mult,
        written: line.ns,
        error: 0,
        stood: false,
        line,
        hz: 0,
        sequence: 0,
        wall_offset: 0,
        suspended: 0,
        counted: 0,
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
        clock.update(&shared, PERIOD, None);
    }
    let now = Sample::take();
    assert!(clock.line.at(now.tsc).abs_diff(now.ns) < 200_000);
    assert_eq!(sequence(&shared).load(Ordering::SeqCst) % 2, 0);
}

#[test]
fn an_error_is_gone_after_a_period() {
    for period in [PERIOD, IDLE_PERIOD] {
        // A counter of 1 GHz on a host whose clock runs 100 ppm fast; the page is 20 us slow.
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

/// A counter of 1 GHz, and a page that is wrong by the ppm of a rate that has changed seconds ago.
fn wrong(by: i64) -> (Clock, Sample) {
    let clock = clock(Line {
        tsc: 0,
        ns: 0,
        mult: 1 << SHIFT,
    });
    let tsc = 4 * SECOND;
    let now = Sample {
        tsc,
        ns: tsc.checked_sub_signed(by).unwrap(),
    };
    (clock, now)
}

#[test]
fn a_page_is_put_right_at_once_where_nobody_can_tell() {
    const FAR: i64 = 2_000_000;
    let at = |by, catch| {
        let (mut clock, now) = wrong(by);
        clock.next_rate(now, PERIOD);
        let line = clock.caught(now.tsc + 1000, now, catch)?;
        assert_eq!(line.tsc, now.tsc + 1000);
        assert!(line.ns.abs_diff(now.ns + 1000) <= 1, "{line:?}");
        // It goes on with the host's rate, without what the error was to be removed by.
        assert_eq!(line.mult, clock.rate);
        Some(())
    };
    assert_eq!(at(-FAR, Catch::Up), Some(()));
    assert_eq!(at(-FAR, Catch::Both), Some(()));
    assert_eq!(at(FAR, Catch::Both), Some(()));
    // A vCPU may have read it.
    assert_eq!(at(FAR, Catch::Up), None);
    assert_eq!(at(5 * FAR + 2000, Catch::Both), None);
    let (mut clock, now) = wrong(-FAR);
    clock.stood = true;
    assert_eq!(clock.caught(now.tsc, now, Catch::Both), None);
}

#[test]
fn a_correction_that_is_under_way_does_not_begin_again() {
    const FAR: i64 = 2_000_000;
    // A page that is wrong by `by`, of which `known` was found a second ago.
    let needs = |by: i64, known: u64, catch| {
        let mut clock = Clock::new(Sample::take());
        let now = Sample::take();
        clock.line = Line {
            tsc: now.tsc,
            ns: now.ns.checked_add_signed(by).unwrap(),
            mult: clock.rate,
        };
        clock.written = now.ns - SECOND;
        clock.error = known;
        clock.needs(catch)
    };
    assert!(needs(FAR, 0, Catch::Up));
    assert!(!needs(FAR, FAR.unsigned_abs(), Catch::Up));
    // It can be put right at once.
    assert!(needs(FAR, FAR.unsigned_abs(), Catch::Both));
    assert!(needs(-FAR, FAR.unsigned_abs(), Catch::Up));
}

const HOUR: u64 = 3600 * SECOND;

/// A host with a counter of 1 GHz and a machine's clock, which is corrected each second.
struct Host {
    clock: Clock,
    sample: Sample,
    suspended: u64,
    /// The latest that a reader of the page has seen.
    seen: u64,
}

impl Host {
    fn new(fast: bool) -> Self {
        // The page is wrong at first.
        let mult = if fast {
            1 << SHIFT | 1 << 18
        } else {
            1 << SHIFT
        };
        let line = Line {
            tsc: 5 * SECOND,
            ns: 7 * SECOND,
            mult,
        };
        let (tsc, ns) = (line.tsc, line.ns);
        let mut host = Host {
            clock: clock(line),
            sample: Sample { tsc, ns },
            suspended: 0,
            seen: ns,
        };
        // Then the rate is known, and the page still wrong.
        host.pass(SECOND / 10);
        host.update();
        host
    }

    fn read(&mut self) -> u64 {
        let shown = self.clock.line.at(self.sample.tsc);
        assert!(shown >= self.seen, "{shown} after {}", self.seen);
        self.seen = shown;
        shown
    }

    /// Time passes. A reader reads at its end.
    fn pass(&mut self, ns: u64) {
        self.sample.tsc += ns;
        self.sample.ns += ns;
        self.read();
    }

    /// The host sleeps. `tsc` is the counter at the end.
    fn suspend(&mut self, ns: u64, tsc: u64) {
        self.suspended += ns;
        self.sample.tsc = tsc;
        self.update();
    }

    fn update(&mut self) {
        let now = self.clock.machine_time(self.sample, self.suspended);
        let mult = self.clock.next_rate(now, PERIOD);
        self.clock.line = self.clock.next_line(self.sample.tsc, now, mult);
        self.read();
    }

    /// The clock is corrected some times. Then it is right.
    fn settle(&mut self, updates: usize) {
        for _ in 0..updates {
            self.pass(SECOND);
            self.update();
        }
        let error = self.read().abs_diff(self.sample.ns + self.clock.counted);
        assert!(error < 1000, "{error} ns");
    }
}

#[test]
fn a_suspend_counts_if_the_counter_goes_on() {
    let mut host = Host::new(false);
    host.settle(4);
    host.pass(SECOND / 3);
    let before = host.read();
    host.suspend(HOUR, host.sample.tsc + HOUR);
    assert_eq!(host.clock.counted, HOUR);
    assert_eq!(host.clock.ahead(), HOUR);
    // The page shows what the counter says, neither faster nor slower than before.
    assert!(host.read().abs_diff(before + HOUR) < 1000);
    assert!(host.clock.line.mult.abs_diff(1 << SHIFT) < 1 << 16);
    host.settle(4);
}

#[test]
fn a_suspend_does_not_count_if_the_counter_stands() {
    let mut host = Host::new(false);
    host.settle(4);
    host.pass(SECOND / 3);
    let before = host.read();
    host.suspend(HOUR, host.sample.tsc);
    assert_eq!(host.clock.counted, 0);
    assert!(host.read().abs_diff(before) < 2000);
    host.settle(4);
}

#[test]
fn a_counter_may_begin_again() {
    let mut host = Host::new(false);
    host.settle(4);
    host.pass(SECOND / 3);
    let before = host.read();
    host.suspend(HOUR, 1234);
    assert_eq!(host.clock.counted, 0);
    assert!(host.read().abs_diff(before) < 2000);
    // Not only as long as the old counter lasts.
    host.settle(4);
}

proptest! {
    /// Each reading checks that.
    #[test]
    fn time_never_goes_back_across_suspends(
        fast: bool,
        events in prop::collection::vec((0..4, 1..5 * SECOND, SUSPEND..HOUR), 1..30),
    ) {
        let mut host = Host::new(fast);
        for (kind, ns, sleep) in events {
            host.pass(ns);
            let tsc = host.sample.tsc;
            match kind {
                0 => host.suspend(sleep, tsc + sleep),
                1 => host.suspend(sleep, tsc),
                2 => host.suspend(sleep, (sleep % SECOND).min(tsc)),
                _ => host.update(),
            }
        }
    }

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
            clock.switch(&shared, host, mult, None);
            let now = clock.line.tsc;
            prop_assert!(clock.line.at(now) >= before.at(now));
            prop_assert!(clock.line.at(now) >= shown);
            shown = clock.line.at(now);
        }
    }
}
