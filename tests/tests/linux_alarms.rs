// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rate of VMI-Linux's alarms is not HZ: timers expire more often, and a busy CPU may tick less
//! often.

// Alone: it measures time.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::quiet::{self, Try, Watch};
use paravane_tests::worker::{self, COMMANDS, Worker};
use paravane_tests::{cpu_times, program, vm};

/// The time between two expiries, in us. A kernel with a HZ of 100 ticks once in 20.
const PERIOD: u64 = 500;
/// Tries on a host that may be busy. Each takes four seconds and a machine.
const TRIES: usize = 4;

/// How some expiries went.
#[derive(Debug)]
struct Expired {
    count: u64,
    /// The time that they took, in us.
    us: u64,
    /// How often the program waited.
    waits: u64,
    /// Waits that ended less than a period late.
    timely: u64,
    /// Interrupts of the vCPU in that time: its alarms, and a few of devices.
    interrupts: u64,
    /// The host was quiet meanwhile.
    quiet: bool,
}

impl Expired {
    fn new(machine: &mut Worker, by: &str, count: u64) -> Self {
        let before = machine.stat();
        let watch = Watch::begin(machine);
        let text = machine.tell(&format!(
            "printf %s \"$(/t/expiries {by} {count} {PERIOD})\""
        ));
        let quiet = watch.was_quiet(machine);
        let after = machine.stat();
        let figures: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
        let figures = figures.unwrap();
        assert_eq!(figures.len(), 3, "{text}");
        let expired = Expired {
            count,
            us: figures[0],
            waits: figures[1],
            timely: figures[2],
            interrupts: worker::sum(&after, "interrupts") - worker::sum(&before, "interrupts"),
            quiet,
        };
        println!("{by}: {expired:?}");
        expired
    }

    /// They took as long as their periods. Many came by themselves, less than a period late: all
    /// of them where the host's processor is free, at most one in twenty with ticks alone. A wait
    /// cost one alarm.
    fn is_right(&self) -> bool {
        let count = self.count;
        self.us.abs_diff(count * PERIOD) <= count * PERIOD / 20
            && self.timely >= count / 4
            && (self.timely..=self.waits * 11 / 10 + 100).contains(&self.interrupts)
    }
}

fn machine(append: &str) -> (Worker, cpu_times::Program) {
    let program = cpu_times::program("expiries");
    let machine = Worker::start(None, COMMANDS, |_| {
        ["--cpus", "1", "--net", "none", "--append", append]
            .into_iter()
            .chain(["--volume", &program.volume])
            .map(String::from)
            .collect()
    });
    (machine, program)
}

/// A thousand expiries come when they are due, not with the next tick, and each costs one alarm.
#[test]
fn expiries_do_not_wait_for_ticks() {
    let (mut exact, _program) = machine("");
    for by in ["timerfd", "sleep"] {
        quiet::mostly(by, || {
            let expired = Expired::new(&mut exact, by, 1000);
            let (quiet, right) = (expired.quiet, expired.is_right());
            Try { quiet, right }
        });
    }
    exact.end();
}

/// The test above, on a kernel whose timers expire with its ticks, sees a timer with a longer
/// period, and mostly sleeps that end as soon as they begin.
#[test]
fn with_ticks_alone_they_do() {
    let (mut coarse, _program) = machine("highres=off");
    for by in ["timerfd", "sleep"] {
        assert!(!Expired::new(&mut coarse, by, 100).is_right(), "{by}");
    }
    coarse.end();
}

/// Seconds for which a vCPU is busy.
const BUSY: u64 = 4;

/// Alarms of a vCPU that is busy all the time, and what its kernel accounts for it, in percent of
/// the time.
fn busy(append: &str, program: &cpu_times::Program) -> (u64, f64) {
    let alarms = "awk '/LOC:/ { print $2 }' /proc/interrupts";
    let script =
        format!("a=$({alarms}); /t/times {BUSY}; b=$({alarms}); echo alarms $((b - a)); dmesg");
    let mut machine = vm::command(["--cpus", "1", "--append", append]);
    machine.args(["--volume", &program.volume, "--", "sh", "-c", &script]);
    let run = program::finish(&mut machine);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("backwards 0\n"), "{run:?}");
    let line = run
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("alarms "));
    let alarms = line.unwrap().parse().unwrap();
    let sum = cpu_times::shares(&run.stdout)[0].sum;
    println!("{append}: {alarms} alarms in {BUSY} s, {sum} % accounted");
    let refused = run.stdout.contains("are possible");
    assert_eq!(refused, append.ends_with("=5"), "{run:?}");
    (alarms, sum)
}

/// A busy CPU has the rate of alarms that the command line asks for, and not more than HZ. A rate
/// that is too low for the kernel is refused.
#[test]
fn a_busy_cpu_has_the_rate_that_was_asked_for() {
    let program = cpu_times::program("times");
    for (append, rate) in [("vmi.alarm_hz=20", 20), ("", 100), ("vmi.alarm_hz=5", 100)] {
        let right = (0..TRIES).any(|_| {
            let (alarms, sum) = busy(append, &program);
            // A few are those of timers.
            let most = rate * BUSY + 40;
            assert!(alarms <= most, "{append}: {alarms}");
            // The time after the last tick is not accounted yet: up to 50 ms, which is 1.25 %.
            alarms >= rate * BUSY * 9 / 10 && (sum - 100.0).abs() <= 1.5
        });
        assert!(
            right,
            "{append}: too few alarms, or not all of the time was accounted"
        );
    }
}
