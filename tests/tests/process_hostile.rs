// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests whose kernel attacks the process hypervisor: host calls through the layer's instruction,
//! writes to the shared area, page tables with random contents, storms of events. The monitor
//! survives and reports what happened. Nothing is left after the machine, and nothing outside it
//! changes. Floods of memory are in `process_floods.rs`.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::by_length;
use paravane_tests::hostile::{check, command};
use paravane_tests::lines::Lines;
use paravane_tests::over::Over;
use paravane_tests::{program, tree, wait};
use rustix::process::Signal;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest time for a guest that hangs, in s.
const TIMEOUT: &str = "3";
/// From a request, or the end of the time, to the end of a machine that would run for a minute.
const END: Duration = Duration::from_secs(5);

static ALONE: Mutex<()> = Mutex::new(());

/// A file and a process that no guest may change.
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
    // Build the program now, so that the time limit does not include it.
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
    machines("calls", by_length(20, 1000), &["others"]);
}

#[test]
fn a_scribbled_shared_area() {
    machines("scribble", by_length(10, 200), &["others", "count=20000"]);
}

#[test]
fn wild_tables() {
    machines("cr3", by_length(10, 200), &["others", "count=20000"]);
}

/// A guest that has damaged itself may hang. Its monitor still ends the machine on request.
#[test]
fn a_machine_ends_on_request_after_any_scribbling() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for seed in 0..by_length(6, 100) {
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
        // It must not wait for a reader of what the damaged guest makes it say.
        Lines::of(monitor.stdout.take()).drain();
        Lines::of(monitor.stderr.take()).drain();
        // It may have damaged itself to the end already.
        wait::until("it runs", program::PATIENCE, || {
            !tree::spaces(monitor.id()).is_empty() || tree::state(monitor.id()) == Some('Z')
        });
        std::thread::sleep(Duration::from_millis(100 + seed % 7 * 100));
        let all = tree::everything(monitor.id());
        let start = Instant::now();
        tree::signal(monitor.id(), Signal::TERM);
        let status = program::wait_within(&mut monitor, program::PATIENCE);
        // 143: ended on request. 1: the monitor found the damage first.
        assert!(
            matches!(status.code(), Some(143 | 1)),
            "seed {seed}: {status}"
        );
        assert!(start.elapsed() < END, "seed {seed}: {:?}", start.elapsed());
        tree::wait_gone(&all).unwrap();
    }
}

/// A vCPU that sleeps is not woken if the guest marks it as polling. That harms the guest alone:
/// neither a request to end nor a time limit needs its vCPUs.
#[test]
fn a_machine_whose_vcpus_hear_nothing_ends_on_request() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (limit, signal, code) in [("60", true, 143), ("5", false, 1)] {
        let mut machine = command("deaf", &[]);
        machine.args(["--cpus", "2", "--timeout", limit]);
        let mut monitor = machine.stdout(Stdio::piped()).spawn().unwrap();
        let started = Instant::now();
        let mut lines = Lines::of(monitor.stdout.take());
        let said = lines
            .each_within(program::PATIENCE)
            .find_map(|line| line.trim().strip_prefix("vCPU 1 ").map(str::to_string));
        assert_eq!(said.as_deref(), Some("hears nothing"));
        let all = tree::everything(monitor.id());
        let wanted = if signal {
            tree::signal(monitor.id(), Signal::TERM);
            Instant::now()
        } else {
            started + Duration::from_secs(5)
        };
        lines.rest_within(program::PATIENCE);
        assert_eq!(
            program::wait_within(&mut monitor, program::PATIENCE).code(),
            Some(code)
        );
        let late = wanted.elapsed();
        assert!(Instant::now() >= wanted, "{:?}", started.elapsed());
        assert!(late < END, "{late:?}");
        tree::wait_gone(&all).unwrap();
    }
}

/// Interval between two samples. Some machines end within a tenth of a second.
const SAMPLE: Duration = Duration::from_millis(5);
/// A process that has no filter after this number of samples never gets one.
const SAMPLES: u32 = 400;

/// The hypervisor creates processes while the guest overwrites all data that such a process could
/// act on before it has its filter.
#[test]
fn processes_are_created_under_attack() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut made, mut seed) = (0, 0);
    // On a slow host few machines get far enough within their time.
    while seed < by_length(5, 100) || (made <= 5 && seed < by_length(40, 200)) {
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
            let guard = Over(&done);
            let looker = scope.spawn(|| {
                let (mut young, mut seen) = (Vec::new(), Vec::new());
                let mut zygote = None;
                while !done.load(Ordering::Relaxed) {
                    let spaces = zygote.map(tree::listed_children).unwrap_or_default();
                    if spaces.is_empty() {
                        zygote = tree::children(monitor).first().copied();
                    }
                    for &pid in &spaces {
                        let status =
                            fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                        // A process without a filter in many samples is no longer starting.
                        if status.contains("Seccomp:\t0") && !status.contains("State:\tZ") {
                            assert!(
                                !young.contains(&(pid, SAMPLES)),
                                "process {pid} has no filter:\n{status}"
                            );
                            let times = (1..SAMPLES)
                                .rev()
                                .find(|&n| young.contains(&(pid, n)))
                                .unwrap_or(0);
                            young.push((pid, times + 1));
                        }
                    }
                    seen.extend(spaces);
                    std::thread::sleep(SAMPLE);
                }
                seen.sort_unstable();
                seen.dedup();
                seen
            });
            let run = program::finish_child(child);
            drop(guard);
            (run, looker.join().unwrap())
        });
        check(&run, &format!("grow {seed}"));
        made = made.max(seen.len());
        tree::wait_gone(&seen).unwrap();
        seed += 1;
    }
    assert!(made > 5, "never more than {made} processes");
}

/// Events that are cheap for a guest must not cost the monitor much CPU time.
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
        program::wait_within(&mut monitor, program::PATIENCE);
        println!("{mode}: {} ms of CPU in 2 s", used / 1_000_000);
        assert!(
            used < 400_000_000,
            "{mode}: {} ms of CPU in 2 s",
            used / 1_000_000
        );
    }
}
