// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests that attack the process hypervisor with all that its kernel can reach: the host's system calls through the
//! layer's one instruction, the shared area, wild tables, floods. The monitor stays up, says what happened, and nothing
//! stays behind or changes outside.

#![allow(clippy::unwrap_used)] // What cannot be set up has failed.

use paravane_tests::program::{self, Run};
use paravane_tests::tree;
use rustix::process::Signal;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For `make test-release`: many more machines.
const LONG: &str = "PARAVANE_TEST_LONG";
/// A guest that has lost its way is ended after this, s.
const TIMEOUT: &str = "3";
/// MiB that a machine may take beyond its memory and its budget.
const OVERSHOOT: u64 = 256;

static ALONE: Mutex<()> = Mutex::new(());

fn count(short: u64, long: u64) -> u64 {
    if std::env::var_os(LONG).is_some() { long } else { short }
}

fn command(mode: &str, words: &[String]) -> Command {
    let mut command = program::command();
    command.args([
        "conformance",
        "--hypervisor",
        "process",
        "--append",
        &format!("hostile={mode}"),
    ]);
    for word in words {
        command.args(["--append", word]);
    }
    command
}

/// Ended with a reason on one line, and without a word from the monitor's own troubles.
fn check(run: &Run, what: &str) {
    assert_eq!(run.code, 1, "{what}: {run:?}");
    let problems = run.stdout.lines().filter(|l| l.contains("Problem: ")).count();
    assert!((1..=3).contains(&problems), "{what}: {run:?}");
    assert!(
        !run.stderr.contains("panicked") && !run.stdout.contains("panicked"),
        "{what}: {run:?}"
    );
}

/// What no guest may change.
struct Outside {
    folder: tempfile::TempDir,
    sleeper: Child,
}

impl Outside {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "as it was").unwrap();
        let sleeper = Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn().unwrap();
        Outside { folder, sleeper }
    }

    fn check(&mut self, what: &str) {
        assert_eq!(
            fs::read_to_string(self.folder.path().join("file")).unwrap(),
            "as it was",
            "{what}"
        );
        assert!(self.sleeper.try_wait().unwrap().is_none(), "{what}");
        let status = fs::read_to_string(format!("/proc/{}/status", self.sleeper.id())).unwrap();
        assert!(status.contains("State:\tS"), "{what}: {status}");
        let left: Vec<_> = tree::children(std::process::id());
        assert_eq!(left, [self.sleeper.id()], "{what}");
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        tree::signal(self.sleeper.id(), Signal::KILL);
        let _ = self.sleeper.wait();
    }
}

fn machines(mode: &str, number: u64, words: &[&str]) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut outside = Outside::new();
    for seed in 0..number {
        let mut all: Vec<String> = words.iter().map(ToString::to_string).collect();
        all.push(format!("seed={seed}"));
        let start = Instant::now();
        let run = program::finish(
            command(mode, &all)
                .args(["--cpus", "2", "--timeout", TIMEOUT])
                .current_dir(outside.folder.path()),
        );
        let what = format!("hostile={mode} {all:?}");
        check(&run, &what);
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{what}: {:?}",
            start.elapsed()
        );
        outside.check(&what);
    }
}

#[test]
fn calls_of_the_host() {
    machines("calls", count(20, 1000), &["others"]);
}

#[test]
fn a_scribbled_shared_area() {
    machines("scribble", count(10, 200), &["others", "count=20000"]);
}

#[test]
fn wild_tables() {
    machines("cr3", count(10, 200), &["others", "count=20000"]);
}

fn available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|l| l.starts_with("MemAvailable")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// Runs a machine; returns how it went and how many MiB of the host's memory it took at most.
fn measured(command: &mut Command) -> (Run, u64) {
    let before = available();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let least = scope.spawn(|| {
            let mut least = before;
            while !stop.load(Ordering::Relaxed) {
                least = least.min(available());
                std::thread::sleep(Duration::from_millis(5));
            }
            least
        });
        let run = program::finish(command);
        stop.store(true, Ordering::Relaxed);
        (run, before.saturating_sub(least.join().unwrap()))
    })
}

/// Tables of the host, made by the host's own call: two for each page; whole ones.
#[test]
fn floods_of_tables_are_ended() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in [0, 1] {
        let (run, taken) = measured(command("flood", &[format!("kind={kind}")]).args(["--timeout", "60"]));
        check(&run, "flood");
        assert!(
            run.stdout.contains("of the host's page tables, the budget is"),
            "kind {kind}: {run:?}"
        );
        // 256 MiB of RAM, 72 of budget.
        assert!(taken < 256 + 72 + OVERSHOOT, "kind {kind}: it took {taken} MiB");
    }
}

/// A guest may map what it likes by its own tables: the layer keeps itself in bounds, and the machine is not ended.
#[test]
fn legal_floods_are_served() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in [4, 5, 6] {
        let (run, taken) = measured(command("flood", &[format!("kind={kind}")]).args(["--timeout", "60"]));
        assert!(!run.stdout.contains("was ended"), "kind {kind}: {run:?}");
        // The guest came to its end, but has run no test.
        assert!(run.stdout.contains("never said"), "kind {kind}: {run:?}");
        assert!(taken < 256 + 72 + OVERSHOOT, "kind {kind}: it took {taken} MiB");
    }
}

/// What a guest can do for nothing must not cost the monitor a processor.
#[test]
fn storms_cost_the_monitor_little() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for mode in ["alarms", "alarm", "doorbell", "ipis"] {
        let mut monitor = command(mode, &[])
            .args(["--timeout", "60"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let before = tree::cpu_time(&[monitor.id()]);
        std::thread::sleep(Duration::from_secs(2));
        let used = tree::cpu_time(&[monitor.id()]) - before;
        tree::signal(monitor.id(), Signal::TERM);
        monitor.wait().unwrap();
        println!("{mode}: {} ms of CPU in 2 s", used / 1_000_000);
        assert!(used < 400_000_000, "{mode}: {} ms of CPU in 2 s", used / 1_000_000);
    }
}
