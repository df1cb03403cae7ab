// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clocks of VMI-Linux when the time-stamp counter begins again at a lower value, as after a
//! suspend of some hosts. No test can do that to a counter. In place of that, a file in debugfs
//! raises all values of the counter that the kernel keeps. The kernel cannot see a difference.

// Alone: it measures time.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::clocks::{CERTAIN, Clocks, Offsets, RIGHT, WALL_RIGHT};
use paravane_tests::{cpu_times, program, vm};
use std::time::{Duration, Instant};

/// How long a clock may stand after the kernel could have noticed, in us.
const STANDS: u64 = 100_000;
/// How far it may be below what was read before, until then: the time since the last tick, which is
/// late on a host that is busy.
const BACK: u64 = 100_000;
/// How long a sleep of 50 ms may take, in ms. It began while the clock stood.
const SLEPT: u64 = 500;
/// The phases of `tests/guest/falls`. Its program on CPU 0 begins them, so the others may be late.
const NOTHING: usize = 0;
const CARELESS: usize = 1;
const PHASES: usize = 5;
/// How much of its time the scheduler has seen the program run, in permille, if the clock of the
/// scheduler stands, at most; and if it does not, at least, on a host that is busy.
const RAN_NOT: u64 = 2;
const RAN: u64 = 10;

/// A CPU in a phase.
#[derive(Debug)]
struct Record {
    phase: usize,
    cpu: usize,
    standing_us: u64,
    may_stand_us: u64,
    back_us: u64,
    ran_permille: u64,
}

/// `phase P cpu C standing_us S may_stand_us M back_us B ran_permille R`
fn record(line: &str) -> Option<Record> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let value = |at: usize| words.get(at)?.parse::<u64>().ok();
    (words.first() == Some(&"phase")).then_some(())?;
    Some(Record {
        phase: usize::try_from(value(1)?).ok()?,
        cpu: usize::try_from(value(3)?).ok()?,
        standing_us: value(5)?,
        may_stand_us: value(7)?,
        back_us: value(9)?,
        ran_permille: value(11)?,
    })
}

/// Without the correction, clocks and scheduler stand still. With it, they continue at once on each
/// CPU, and sleeps end.
#[test]
fn clocks_go_on_when_the_counter_begins_again() {
    let falls = cpu_times::program("falls");
    for cpus in [1, 2] {
        let mut machine = vm::command(["--cpus", &cpus.to_string(), "--volume", &falls.volume]);
        let script = format!(
            "mount -t debugfs none /sys/kernel/debug && /t/falls {cpus} && \
             cat /sys/kernel/debug/vmi/clock"
        );
        let run = program::finish(machine.args(["--", "sh", "-c", &script]));
        println!("{}", run.stdout);
        assert_eq!(run.code, 0, "{run:?}");
        let records: Vec<Record> = run.stdout.lines().filter_map(record).collect();
        assert_eq!(records.len(), PHASES * cpus, "{run:?}");
        for record in &records {
            match record.phase {
                NOTHING | CARELESS if record.cpu > 0 => {}
                NOTHING => assert_eq!(record.back_us, 0, "{record:?}"),
                CARELESS => {
                    assert!(record.may_stand_us > 3 * STANDS, "{record:?}");
                    assert!(record.ran_permille <= RAN_NOT, "{record:?}");
                }
                _ => {
                    assert!(record.standing_us < STANDS, "{record:?}");
                    assert!(record.back_us < BACK, "{record:?}");
                    assert!(record.ran_permille >= RAN, "{record:?}");
                }
            }
        }
        let number = |name: &str| {
            let line = run.stdout.lines().find_map(|l| l.strip_prefix(name));
            line.unwrap().trim().parse::<u64>().unwrap()
        };
        let slept = number("sleep_ms ");
        assert!(slept < SLEPT, "{slept} ms");
        assert_eq!(number("counter_falls "), 4, "{run:?}");
    }
}

/// After that, the clocks agree with the host's, in an idle machine and in a busy one.
#[test]
fn clocks_are_right_after_the_counter_began_again() {
    for work in ["", "while :; do :; done &"] {
        let before = format!(
            "mount -t debugfs none /sys/kernel/debug; clock=/sys/kernel/debug/vmi/clock; {work} \
             (sleep 7; echo fell 3600 >$clock; sleep 5; echo fell 100000 >$clock) &"
        );
        let after = "cat $clock";
        let mut clocks = Clocks::start_between(&before, after, |words| {
            let mut command = vm::command(words.iter().copied());
            command.args(["--cpus", "2"]);
            command
        });
        // The script has begun before.
        let begun = Instant::now();
        let mut at = |seconds| {
            std::thread::sleep(Duration::from_secs(seconds).saturating_sub(begun.elapsed()));
            let found = clocks.certain(CERTAIN, Duration::from_secs(2));
            assert!(found.is_some(), "not measured: the host is busy");
            found.unwrap()
        };
        let first = at(4);
        let check = |now: Offsets| {
            let uncertain = first.uncertain + now.uncertain;
            let error = (now.monotonic - first.monotonic).abs() + uncertain;
            let wall = (now.real - first.real).abs() + uncertain;
            println!("{work}: {error} ns, wall clock {wall} ns");
            assert!(error <= RIGHT, "{first:?} {now:?}");
            assert!(wall <= WALL_RIGHT, "{first:?} {now:?}");
        };
        check(at(9));
        check(at(14));
        check(at(18));
        let text = clocks.end();
        assert!(text.contains("counter_falls 2\n"), "{text}");
    }
}
