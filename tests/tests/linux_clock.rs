// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clocks of VMI-Linux beside those of the host.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::busy::Busy;
use paravane_tests::{cpu_times, linux, program, source_root, tree, vm};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The guest's clocks less the host's, in ns, and how uncertain that is.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    monotonic: i64,
    real: i64,
    uncertain: i64,
}

fn now(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// A machine that prints its clocks.
struct Clocks {
    machine: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

impl Clocks {
    fn start(prepare: impl Fn(&[&str]) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        linux::compile(
            &source_root().join("tests/guest/clock"),
            &folder.path().join("clock"),
        );
        let volume = format!("{}:/x:ro", folder.path().display());
        let mut machine = prepare(&["--volume", &volume])
            .args(["--", "/x/clock"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut clocks = Clocks {
            ask: machine.stdin.take().unwrap(),
            answers: BufReader::new(machine.stdout.take().unwrap()),
            machine,
            _folder: folder,
        };
        clocks.ask();
        clocks
    }

    fn ask(&mut self) -> Offsets {
        let (host, real) = (now(ClockId::Monotonic), now(ClockId::Realtime));
        self.ask.write_all(b"now\n").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let half = (now(ClockId::Monotonic) - host) / 2;
        let (monotonic, guest) = line.trim().split_once(' ').unwrap();
        Offsets {
            monotonic: monotonic.parse::<i64>().unwrap() - host - half,
            real: guest.parse::<i64>().unwrap() - real - half,
            uncertain: half,
        }
    }

    /// The most certain of many tries.
    fn offsets(&mut self) -> Offsets {
        (0..200)
            .map(|_| self.ask())
            .min_by_key(|offsets| offsets.uncertain)
            .unwrap()
    }

    /// The change of the guest's monotonic clock against the host's, in ns, and how uncertain that
    /// is.
    fn drift(&mut self, time: Duration) -> (i64, i64) {
        let first = self.offsets();
        std::thread::sleep(time);
        let last = self.offsets();
        (
            last.monotonic - first.monotonic,
            last.uncertain + first.uncertain,
        )
    }

    fn end(mut self) {
        drop(self.ask);
        assert!(self.machine.wait().unwrap().success());
    }
}

/// The frequency of the counter that a guest names in its log, in kHz, wrong by 1/1000.
fn wrong_khz() -> u64 {
    let run = program::finish(vm::command([""; 0]).args(["--", "dmesg"]));
    let mhz = run
        .stdout
        .split_once("tsc: Detected ")
        .and_then(|(_, after)| after.split_once(" MHz"))
        .unwrap()
        .0;
    let khz: u64 = mhz.replace('.', "").parse().unwrap();
    khz + khz / 1000
}

/// A guest that believes in a wrong frequency of its counter keeps the host's time all the same: as
/// if the host's clock were adjusted all the time. Without the correction it does not.
#[test]
fn the_clock_follows_the_hosts() {
    const TIME: Duration = Duration::from_secs(5);
    let khz = format!("tsc_early_khz={}", wrong_khz());
    let off = format!("{khz} vmi.clock=0");
    for (append, drifts) in [("", false), (&*khz, false), (&*off, true)] {
        let mut clocks = Clocks::start(|words| {
            let mut command = vm::command(words.iter().copied());
            command.args(["--append", append]);
            command
        });
        // The first correction takes a second to see the error and one to remove it.
        std::thread::sleep(Duration::from_secs(4));
        let (drift, uncertain) = clocks.drift(TIME);
        println!("{append}: {drift} ns in {TIME:?}, uncertain by {uncertain} ns");
        if drifts {
            assert!(drift.abs() > 4_000_000, "{append}: {drift}");
        } else {
            assert!(drift.abs() <= 100_000 + uncertain, "{append}: {drift}");
        }
        clocks.end();
    }
}

/// The wall clock is the host's from the boot on. When the host's is set, it follows within two
/// seconds, and the monotonic clock does not notice.
#[test]
fn the_wall_clock_follows_the_hosts() {
    const STEP: i64 = 3600;
    let mut clocks = Clocks::start(|words| {
        let mut command = vm::command_with_hooks(words.iter().copied());
        command.args(["--step-wall-clock", &STEP.to_string()]);
        command
    });
    let before = clocks.offsets();
    println!("{before:?}");
    assert!(
        before.real.abs() <= 1_000_000 + before.uncertain,
        "{before:?}"
    );
    let begun = Instant::now();
    while clocks.ask().real < STEP * 500_000_000 {
        assert!(
            begun.elapsed() < Duration::from_secs(6),
            "{:?}",
            clocks.ask()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let after = clocks.offsets();
    println!("{after:?}");
    let error = (after.real - STEP * 1_000_000_000).abs();
    assert!(error <= 1_000_000 + after.uncertain, "{after:?}");
    let jump = (after.monotonic - before.monotonic).abs();
    assert!(
        jump <= 100_000 + before.uncertain + after.uncertain,
        "{before:?} {after:?}"
    );
    clocks.end();
}

/// The clock's change against the host's while something happens that stops the machine or leaves
/// it alone: at its first reading after that, and at the most certain of the next.
fn across(cpus: &str, event: impl FnOnce(u32)) {
    let mut clocks = Clocks::start(|words| {
        let mut command = vm::command(words.iter().copied());
        command.args(["--cpus", cpus]);
        command
    });
    // As in the first test.
    std::thread::sleep(Duration::from_secs(4));
    let before = clocks.offsets();
    event(clocks.machine.id());
    for after in [clocks.ask(), clocks.offsets()] {
        let error = after.monotonic - before.monotonic;
        let uncertain = after.uncertain + before.uncertain;
        println!("{error} ns, uncertain by {uncertain} ns");
        assert!(error.abs() <= 100_000 + uncertain, "{before:?} {after:?}");
        let wall = (after.real - before.real).abs();
        assert!(wall <= 1_000_000 + uncertain, "{before:?} {after:?}");
    }
    clocks.end();
}

/// All processes of a machine are stopped for a while and go on.
#[test]
fn the_clock_is_right_after_a_stop() {
    let long = std::env::var_os(LONG).is_some();
    let time = Duration::from_secs(if long { 60 } else { 3 });
    across("2", |machine| {
        let all = tree::everything(machine);
        for &pid in &all {
            tree::signal(pid, Signal::STOP);
        }
        std::thread::sleep(time);
        // The monitor is the first: it may find its machine stopped.
        for &pid in &all {
            tree::signal(pid, Signal::CONT);
        }
    });
}

/// Nothing happens in a machine for an hour.
#[test]
#[ignore = "an hour: make test-release"]
fn the_clock_is_right_after_an_idle_hour() {
    across("2", |_| std::thread::sleep(Duration::from_secs(3600)));
}

/// The lengths for `make test-release`.
const LONG: &str = "PARAVANE_TEST_LONG";

/// Limit for the error of the accounted time, in percent.
const SUM: f64 = 1.0;

/// Four vCPUs that all read the clock, beside programs that use the host's processors twice: the
/// clock never goes back between vCPUs, the host's is followed, and user, system, idle and stolen
/// time of each CPU add up to the time that passes, whether it is always busy or sleeps at times.
#[test]
fn time_is_right_where_processors_are_short() {
    let (always, at_times) = if std::env::var_os(LONG).is_some() {
        (600, 120)
    } else {
        (8, 7)
    };
    let times = cpu_times::program("times");
    let script = format!(
        "/t/times {always} && /t/times {at_times} 30 && \
         mount -t debugfs none /sys/kernel/debug && cat /sys/kernel/debug/vmi/clock"
    );
    let mut command = vm::command(["--cpus", "4", "--volume", &times.volume]);
    let busy = Busy::start(2);
    let run = program::finish(command.args(["--", "sh", "-c", &script]));
    drop(busy);
    println!("{}", run.stdout);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(run.stdout.matches("backwards 0\n").count(), 2, "{run:?}");
    let cpus = cpu_times::shares(&run.stdout);
    assert_eq!(cpus.len(), 8, "{run:?}");
    for (number, cpu) in cpus.iter().enumerate() {
        assert!((cpu.sum - 100.0).abs() <= SUM, "{number}: {run:?}");
        // Eight programs and vCPUs want two processors.
        assert!(number >= 4 || cpu.stolen > 20.0, "{number}: {run:?}");
    }
    // The boot is part of the worst.
    let offset = run
        .stdout
        .lines()
        .find_map(|l| l.strip_prefix("offset_ns "));
    let offset: i64 = offset.unwrap().trim().parse().unwrap();
    assert!(offset.abs() < 100_000, "{run:?}");
}
