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
/// MiB that a machine may take beyond its memory and its budget, and how long.
const OVERSHOOT: u64 = 256;
const END: Duration = Duration::from_millis(250);

static ALONE: Mutex<()> = Mutex::new(());

fn count(short: u64, long: u64) -> u64 {
    if std::env::var_os(LONG).is_some() {
        long
    } else {
        short
    }
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
    let problems = run
        .stdout
        .lines()
        .filter(|l| l.contains("Problem: "))
        .count();
    assert_eq!(problems, 1, "{what}: {run:?}");
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
        let sleeper = Command::new("sleep")
            .arg("3600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
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
    // It may have to be built first.
    let _ = program::path();
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

/// MiB of a kind of the host's memory.
fn of_host(kind: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|l| l.starts_with(kind)).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        >> 10
}

/// What the host has left.
fn available() -> u64 {
    of_host("MemAvailable")
}

/// The host's kernel's structures, of mappings among others.
fn structures() -> u64 {
    of_host("SUnreclaim")
}

/// What a machine took while it ran.
struct Taken {
    run: Run,
    /// Moment, KiB of page tables and private memory of all processes.
    samples: Vec<(Instant, u64)>,
    /// When its processes were gone.
    gone: Instant,
    /// MiB that the host had less, at most. Others take and give, too.
    host: u64,
    /// MiB that its kernel's structures grew, at most.
    structures: u64,
}

impl Taken {
    /// Runs a machine.
    fn by(command: &mut Command) -> Self {
        let (before, structures_before) = (available(), structures());
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let monitor = child.id();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                let (mut samples, mut least, mut gone, mut started) =
                    (Vec::new(), before, Instant::now(), false);
                let mut most_structures = 0;
                let (mut spaces, mut looked) = (Vec::new(), Instant::now());
                while !done.load(Ordering::Relaxed) {
                    least = least.min(available());
                    most_structures = structures().max(most_structures);
                    // Looking for them takes longer than looking at them, and while it floods there are no new ones.
                    if looked.elapsed() > Duration::from_millis(20) {
                        spaces = tree::spaces(monitor);
                        looked = Instant::now();
                    }
                    spaces.retain(|&pid| tree::overhead(pid).is_some());
                    if !spaces.is_empty() {
                        started = true;
                        gone = Instant::now();
                    }
                    // Without mappings, which take long to count.
                    let kib = spaces.iter().filter_map(|&pid| tree::overhead(pid)).sum();
                    samples.push((Instant::now(), kib));
                    std::thread::sleep(Duration::from_millis(2));
                }
                assert!(started, "it had no processes");
                (samples, least, most_structures, gone)
            });
            let output = child.wait_with_output().unwrap();
            done.store(true, Ordering::Relaxed);
            let (samples, least, most_structures, gone) = sampler.join().unwrap();
            Taken {
                run: Run::of(&output),
                samples,
                gone,
                host: before.saturating_sub(least),
                structures: most_structures.saturating_sub(structures_before),
            }
        })
    }

    /// MiB of page tables and private memory, at most.
    fn most(&self) -> u64 {
        self.samples.iter().map(|&(_, kib)| kib).max().unwrap_or(0) >> 10
    }

    /// From the first moment above so many MiB: until it stopped growing, and until all was gone; and how much of that
    /// nobody can be blamed for, since this thread got no processor either.
    fn late(&self, budget: u64) -> Option<[Duration; 3]> {
        let over = self
            .samples
            .iter()
            .position(|(_, kib)| kib >> 10 > budget)?;
        let last = self.samples.iter().max_by_key(|(_, kib)| kib)?.0;
        let start = self.samples[over].0;
        // From the sample before: it may have been over since.
        let pairs = self.samples[over.saturating_sub(1)..].windows(2);
        let starved = pairs
            .map(|pair| pair[1].0.duration_since(pair[0].0).saturating_sub(SAMPLE))
            .sum();
        Some([
            last.duration_since(start),
            self.gone.duration_since(start),
            starved,
        ])
    }
}

/// The budget that a message names, MiB.
fn budget(run: &Run) -> u64 {
    let line = run
        .stdout
        .lines()
        .find(|l| l.contains("the budget is "))
        .unwrap();
    let words = line.split("the budget is ").nth(1).unwrap();
    words.split(' ').next().unwrap().parse().unwrap()
}

/// Between two samples, where a processor is free for them.
const SAMPLE: Duration = Duration::from_millis(20);
/// More time without one than this, and others decide when a machine ends.
const STARVED: Duration = Duration::from_millis(50);
/// For a processor to become free for the monitor, and for the host to free what the processes had.
const TOLERANCE: Duration = Duration::from_millis(250);

/// Tables of the host, made by the host's own calls: two for each page; whole ones; the first of all processes.
#[test]
fn floods_of_tables_are_ended() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in [0, 1, 8] {
        let mut machine = command("flood", &[format!("kind={kind}")]);
        let taken = Taken::by(machine.args(["--cpus", "2", "--timeout", "60"]));
        check(&taken.run, "flood");
        assert!(
            taken
                .run
                .stdout
                .contains("of the host's page tables and private memory"),
            "kind {kind}: {:?}",
            taken.run
        );
        let budget = budget(&taken.run);
        println!(
            "kind {kind}: budget {budget} MiB, taken {} (host {}), {:?} until it stopped and was gone",
            taken.most(),
            taken.host,
            taken.late(budget)
        );
        assert!(
            taken.most() <= budget + OVERSHOOT,
            "kind {kind}: {} MiB",
            taken.most()
        );
        let Some([stopped, gone, starved]) = taken.late(budget) else {
            continue;
        };
        if starved > STARVED {
            println!(
                "the host is too busy to say how long it took: {starved:?} without a processor"
            );
            continue;
        }
        assert!(stopped <= END, "kind {kind}: {stopped:?}");
        assert!(gone <= END + TOLERANCE, "kind {kind}: {gone:?}");
    }
}

/// The host's structures for mappings: what all processes can have is above the budget.
#[test]
fn floods_of_mappings_are_ended() {
    // A million of them takes its time.
    if std::env::var_os(LONG).is_none() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut machine = command("flood", &["kind=7".to_string()]);
    // Sixty can have 900 MiB.
    machine.args(["--spaces", "60"]);
    let taken = Taken::by(machine.args(["--timeout", "300"]));
    check(&taken.run, "flood");
    assert!(
        taken.run.stdout.contains("MiB for mappings"),
        "{:?}",
        taken.run
    );
    let budget = budget(&taken.run);
    println!(
        "mappings: budget {budget} MiB, the host's structures {}",
        taken.structures
    );
    // The host's figure: there is no other for these structures.
    assert!(
        taken.structures < budget + OVERSHOOT,
        "{} MiB",
        taken.structures
    );
}

/// The layer's records and stacks, in all processes: as much as there is of them fits into the budget.
#[test]
fn floods_of_private_memory_find_an_end() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut machine = command("flood", &["kind=3".to_string()]);
    let taken = Taken::by(machine.args(["--cpus", "2", "--timeout", "60"]));
    check(&taken.run, "flood");
    let line = taken.run.stdout.lines().find(|l| l.contains("flooded"));
    assert!(line.is_some(), "{:?}", taken.run);
    let line = line.unwrap_or_default();
    let spaces: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    println!(
        "{spaces} spaces, taken {} (host {})",
        taken.most(),
        taken.host
    );
    assert!(spaces >= 64, "{spaces}");
    // An arena of 1 MiB, 128 KiB for a vCPU's thread, little else; and the pool of 48 MiB, once.
    assert!(taken.most() <= spaces * 3 / 2 + 48, "{} MiB", taken.most());
    assert!(
        taken.host < spaces * 2 + 48 + 256 + OVERSHOOT,
        "{} MiB",
        taken.host
    );
}

/// A guest may map what it likes by its own tables: the layer keeps itself in bounds, and the machine is not ended.
#[test]
fn legal_floods_are_served() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in [4, 5, 6] {
        let taken =
            Taken::by(command("flood", &[format!("kind={kind}")]).args(["--timeout", "60"]));
        let run = &taken.run;
        assert!(!run.stdout.contains("was ended"), "kind {kind}: {run:?}");
        // The guest came to its end, but has run no test.
        assert!(run.stdout.contains("never said"), "kind {kind}: {run:?}");
        assert!(
            taken.most() < 72,
            "kind {kind}: it took {} MiB",
            taken.most()
        );
    }
}

/// A guest that has destroyed itself may hang; its monitor does not, and ends it when asked to.
#[test]
fn whatever_was_scribbled_the_machine_ends_on_request() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for seed in 0..count(6, 100) {
        let mut machine = command(
            "scribble",
            &["others".to_string(), format!("seed={}", 7000 + seed)],
        );
        machine.args([
            "--append",
            "count=100000000",
            "--cpus",
            "2",
            "--timeout",
            "60",
        ]);
        let mut monitor = machine
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(300 + seed % 7 * 100));
        let all = tree::everything(monitor.id());
        let start = Instant::now();
        tree::signal(monitor.id(), Signal::TERM);
        let status = monitor.wait().unwrap();
        // 143: it was asked to. 1: it had found the damage before.
        assert!(
            matches!(status.code(), Some(143 | 1)),
            "seed {seed}: {status}"
        );
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "seed {seed}: {:?}",
            start.elapsed()
        );
        tree::wait_gone(&all).unwrap();
    }
}

/// A machine is looked at so often: some end within a tenth of a second.
const LOOK: Duration = Duration::from_millis(5);
/// A process that is still not in its sandbox after so many looks never gets there.
const LOOKS: u32 = 400;

/// Processes are made while the guest writes to all that one of them could obey before it is in its sandbox.
#[test]
fn processes_are_made_under_fire() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut made = 0;
    for seed in 0..count(5, 100) {
        let words = [format!("seed={seed}"), "count=300000".to_string()];
        let mut machine = command("grow", &words);
        machine.args(["--cpus", "2", "--spaces", "40", "--timeout", TIMEOUT]);
        let child = machine
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let monitor = child.id();
        let done = AtomicBool::new(false);
        let (run, seen) = std::thread::scope(|scope| {
            let looker = scope.spawn(|| {
                let (mut young, mut seen) = (Vec::new(), Vec::new());
                while !done.load(Ordering::Relaxed) {
                    let spaces = tree::spaces(monitor);
                    for &pid in &spaces {
                        let status =
                            fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                        // One that was there at the look before, and has run for a while, is no longer being made.
                        if status.contains("Seccomp:\t0") && !status.contains("State:\tZ") {
                            assert!(
                                !young.contains(&(pid, LOOKS)),
                                "{pid} is not in a sandbox:\n{status}"
                            );
                            let times = (1..LOOKS)
                                .rev()
                                .find(|&n| young.contains(&(pid, n)))
                                .unwrap_or(0);
                            young.push((pid, times + 1));
                        }
                    }
                    seen.extend(spaces);
                    std::thread::sleep(LOOK);
                }
                seen.sort_unstable();
                seen.dedup();
                seen
            });
            let output = child.wait_with_output().unwrap();
            done.store(true, Ordering::Relaxed);
            (Run::of(&output), looker.join().unwrap())
        });
        check(&run, &format!("grow {seed}"));
        made = made.max(seen.len());
        tree::wait_gone(&seen).unwrap();
    }
    assert!(made > 5, "never more than {made} processes");
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
        assert!(
            used < 400_000_000,
            "{mode}: {} ms of CPU in 2 s",
            used / 1_000_000
        );
    }
}
