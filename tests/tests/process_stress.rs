// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's stress tests on the process hypervisor, made as hard as possible: a layer that
//! pauses at every step where threads meet, and processes that are stopped and continued from
//! outside at random moments. Nothing may be lost, and nothing may accumulate.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::by_length;
use paravane_tests::lines::Lines;
use paravane_tests::program::{self, Ends};
use paravane_tests::source_root;
use paravane_tests::tree::{self, Figures};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The most mappings and KiB of page tables of a process in these tests.
const MOST_MAPS: usize = 2000;
const MOST_TABLES: u64 = 8 << 10;

/// One machine at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The layer with delays at every step.
fn layer() -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let made = Command::new("make")
            .arg("-C")
            .arg(source_root().join("layers/process"))
            .arg(format!("OUT={}", folder.path().display()))
            .arg("STEPS=1")
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        folder
    });
    folder.path().join("process.elf")
}

/// Pseudo-random numbers, the same in each run of a test.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Stops and continues processes until the monitor has ended. Returns the count, and the largest
/// figures of the first and of the second half of the time.
fn disturb(
    monitor: u32,
    half: Instant,
    ended: &mut dyn FnMut() -> bool,
) -> (u64, [BTreeMap<u32, Figures>; 2]) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut largest = [BTreeMap::new(), BTreeMap::new()];
    let mut stops = 0;
    while !ended() {
        let spaces = tree::spaces(monitor);
        tree::keep_largest(&mut largest[usize::from(Instant::now() > half)], &spaces);
        for _ in 0..200 {
            let Some(&pid) =
                spaces.get(usize::try_from(random.below(spaces.len().max(1) as u64)).unwrap())
            else {
                break;
            };
            tree::signal(pid, Signal::STOP);
            let pause = [0, 0, 50, 500, 5000, 20_000][usize::try_from(random.below(6)).unwrap()];
            std::thread::sleep(Duration::from_micros(random.below(pause + 1)));
            tree::signal(pid, Signal::CONT);
            std::thread::sleep(Duration::from_micros(random.below(3000)));
            stops += 1;
            if ended() {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    (stops, largest)
}

fn stress(cpus: u64, spaces: Option<u64>) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Two tests of the guest take this time, in four tests here.
    let seconds = by_length(7, 75);
    let mut command = program::command();
    command.args([
        "conformance",
        "--hypervisor",
        "process",
        "--tap",
        "--filter",
        "memory.st*",
    ]);
    command.args([
        "--cpus",
        &cpus.to_string(),
        "--timeout",
        &(seconds * 2 + 120).to_string(),
    ]);
    command
        .args(["--append", &format!("stress={seconds}"), "--rom"])
        .arg(layer());
    if let Some(spaces) = spaces {
        command.args(["--spaces", &spaces.to_string()]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut monitor = Ends(command.spawn().unwrap());
    let pid = monitor.0.id();
    let mut said = Lines::of(monitor.0.stdout.take());
    let mut errors = Lines::of(monitor.0.stderr.take());
    let begun = Instant::now();
    let half = begun + Duration::from_secs(seconds);
    let mut all = Vec::new();
    let (stops, [first, second]) = disturb(pid, half, &mut || {
        if all.len() < 3 {
            all = tree::everything(pid);
        }
        assert!(begun.elapsed() < program::LONGEST, "{}", said.so_far());
        monitor.0.try_wait().unwrap().is_some()
    });
    let status = program::wait_within(&mut monitor.0, program::PATIENCE);
    let said = said.rest_within(program::PATIENCE) + &errors.rest_within(program::PATIENCE);
    assert!(status.success(), "{status}, after {stops} stops:\n{said}");
    for test in ["memory.storm", "memory.stress"] {
        assert!(
            said.lines()
                .any(|l| l.starts_with("ok ") && l.ends_with(test)),
            "{test} did not run:\n{said}"
        );
    }
    assert!(stops > seconds * 20, "only {stops} stops");
    tree::wait_gone(&all).unwrap();
    all.extend(first.keys().chain(second.keys()));
    tree::wait_gone(&all).unwrap();
    // One more: the zygote tests in a child what a container may kill for.
    let limit = usize::try_from(spaces.unwrap_or(cpus * 4 + 12)).unwrap() + 1;
    assert!(
        first.len() <= limit && second.len() <= limit,
        "{} processes",
        first.len()
    );
    let most = |half: &BTreeMap<u32, Figures>, of: fn(&Figures) -> u64| {
        half.values().map(of).max().unwrap_or(0)
    };
    for (of, limit, slack) in [
        (
            (|f| f.maps as u64) as fn(&Figures) -> u64,
            MOST_MAPS as u64,
            300,
        ),
        (|f| f.page_tables, MOST_TABLES, 1 << 10),
        (|f| f.private, MOST_TABLES, 1 << 10),
        // One RAM slot and the register pages of devices, nothing else.
        (|f| f.files as u64, 2, 0),
    ] {
        let (early, late) = (most(&first, of), most(&second, of));
        assert!(
            late <= limit && late <= early * 3 / 2 + slack,
            "it grows: {first:?}\n{second:?}"
        );
    }
    println!(
        "{cpus} vCPUs: {stops} stops; at most {} mappings, {} KiB of page tables, {} KiB private\n\
        {said}",
        most(&second, |f| f.maps as u64),
        most(&second, |f| f.page_tables),
        most(&second, |f| f.private)
    );
}

#[test]
fn one_vcpu_in_the_least_spaces() {
    stress(1, Some(2));
}

#[test]
fn two_vcpus_in_the_least_spaces() {
    stress(2, Some(3));
}

#[test]
fn four_vcpus_in_the_least_spaces() {
    stress(4, Some(5));
}

#[test]
fn four_vcpus_in_many_spaces() {
    stress(4, None);
}
