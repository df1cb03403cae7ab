// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clocks that the layers keep right without calls: the clock page, and the clock of a machine that
//! was idle.

// Alone: it measures time.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_abi::TIME_PAGE_KEPT;
use paravane_blobs::{KVM_ROM, NATIVE_ROM};
use paravane_tests::clocks::{RIGHT, SLEW_PPM, counter, now, slewed};
use paravane_tests::planted::{Planted, found_by};
use paravane_tests::program::{self, Run};
use paravane_tests::rom;
use rustix::time::ClockId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The layers of which some fault is in the list.
fn faulty(list: &str) -> Vec<Planted> {
    let faults = found_by(list).unwrap();
    assert!(!faults.is_empty());
    faults.iter().map(|f| Planted::build(f).unwrap()).collect()
}

fn run(words: &[&str], rom: Option<&Planted>) -> Run {
    let mut command = program::command_with_hooks();
    command.args(["conformance", "--hypervisor", "process", "--tap"]);
    command.args(words);
    if let Some(rom) = rom {
        command.arg("--rom").arg(rom.rom());
    }
    program::finish(&mut command)
}

/// A layer whose page is right without calls announces that: the process layer, where a program
/// reads the page for seconds, and the native layer, whose real time is the counter. On KVM the
/// page waits for the next call.
#[test]
fn a_layer_says_whether_it_keeps_the_page() {
    let test = "time.set_clock.without_calls";
    let reads = |rom: Option<&Planted>| {
        let run = run(&["--filter", test], rom);
        assert_eq!(run.code, 0, "{run:?}");
        !run.stdout.contains(&format!("- {test} # SKIP"))
    };
    assert!(reads(None));
    for layer in faulty("time_announced") {
        assert!(!reads(Some(&layer)));
    }
    let features = |image| rom::word(image, rom::section(image, "time") + rom::FEATURES);
    assert_eq!(
        features(NATIVE_ROM),
        usize::try_from(TIME_PAGE_KEPT).unwrap()
    );
    assert_eq!(features(KVM_ROM), 0);
}

/// Less than a turn, and no part of it, in seconds: idle times that begin and end anywhere in it.
const IDLE: u64 = 5;
/// A reading of a clock that took longer, in ns, says too little.
const WIDTH: i64 = 20_000;

/// The host's counter and `CLOCK_MONOTONIC` at many moments while `what` runs.
fn beside(what: impl FnOnce() -> Run) -> (Run, Vec<(i64, i64)>) {
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let samples = scope.spawn(|| {
            let mut all = Vec::new();
            loop {
                // The last sample is later than all that the machine has read.
                let last = ends.load(Ordering::SeqCst);
                let first = now(ClockId::Monotonic);
                let tsc = counter();
                let width = now(ClockId::Monotonic) - first;
                if width < WIDTH / 10 {
                    all.push((tsc, first + width / 2));
                    if last {
                        break;
                    }
                }
                thread::sleep(Duration::from_millis(20));
            }
            all
        });
        let run = what();
        ends.store(true, Ordering::SeqCst);
        (run, samples.join().unwrap())
    })
}

/// `CLOCK_MONOTONIC` at a value of the counter, by the samples around it.
fn monotonic(samples: &[(i64, i64)], tsc: i64) -> i64 {
    let after = samples.partition_point(|&(at, _)| at <= tsc);
    let [(t0, m0), (t1, m1)] = [samples[after - 1], samples[after]];
    m0 + i64::try_from(i128::from(m1 - m0) * i128::from(tsc - t0) / i128::from(t1 - t0)).unwrap()
}

/// The error of each reading of the machine's clock right after it was idle, apart from a constant,
/// and the uncertainty of this error, ns.
fn errors(rom: Option<&Planted>) -> Vec<(i64, i64)> {
    let (slew, idle) = (SLEW_PPM.to_string(), format!("asleep={IDLE}"));
    let words = ["--filter", "time.read.after_idle", "--slew-clock", &slew];
    let words = [&words[..], &["--append", &idle, "--timeout", "60"]].concat();
    let (run, samples) = beside(|| run(&words, rom));
    assert_eq!(run.code, 0, "{run:?}");
    let lines = run
        .stdout
        .lines()
        .filter_map(|l| l.strip_prefix("# clock "));
    let readings = lines.map(|line| {
        let words: Vec<i64> = line.split(' ').map(|w| w.parse().unwrap()).collect();
        let [before, real, after] = words[..] else {
            unreachable!("{line}");
        };
        let [first, last] = [before, after].map(|tsc| monotonic(&samples, tsc));
        let half = (last - first) / 2;
        let host = first + half;
        (real - host - slewed(host), half + WIDTH / 10)
    });
    let found: Vec<_> = readings.filter(|&(_, half)| half < WIDTH).collect();
    assert!(found.len() >= 4, "not measured: the host is busy: {run:?}");
    println!("{found:?}");
    found
}

/// How far apart the errors may be: of the clock, or for sure.
fn apart(errors: &[(i64, i64)]) -> (i64, i64) {
    let most = errors.iter().map(|(error, _)| error).max().unwrap();
    let least = errors.iter().map(|(error, _)| error).min().unwrap();
    let uncertain = errors.iter().map(|(_, half)| half).max().unwrap() * 2;
    (most - least + uncertain, most - least - uncertain)
}

/// The host's clock changes its rate while the machine is idle. The first reading is right.
#[test]
fn the_clock_is_right_when_an_idle_machine_wakes_up() {
    let (may, _) = apart(&errors(None));
    assert!(may <= RIGHT, "{may} ns");
    for layer in faulty("time_idle") {
        let (_, are) = apart(&errors(Some(&layer)));
        assert!(are > RIGHT, "{are} ns");
    }
}
