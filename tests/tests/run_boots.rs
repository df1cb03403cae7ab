// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One machine after the other, from launch to exit. None fails, whatever else the host does.

use paravane_tests::conditions::by_length;
use paravane_tests::{debian, program, vm};
use std::time::{Duration, Instant};

/// After this many failures there is nothing new to learn.
const ENOUGH: usize = 10;
/// Seconds in which a machine must end, on a busy host, too. One that hangs reports where before
/// that.
const TIMEOUT: &str = "120";
/// The median time of `run -- true` on a Debian root over this number of runs. A debug build takes
/// two and a half times as long.
const BAR: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1750 } else { 700 });
const RUNS: usize = 15;

/// Boots `count` machines. Returns the output of each that failed.
fn boots(count: usize, cpus: &str, times: &mut Vec<Duration>) -> Vec<String> {
    let mut failures = Vec::new();
    for n in 0..count {
        let word = format!("boot-{n}");
        // The first one may build the program.
        let mut command = vm::command(["--cpus", cpus, "--timeout", TIMEOUT]);
        let start = Instant::now();
        let run = program::finish(command.args(["--", "echo", &word]));
        times.push(start.elapsed());
        if (run.code, run.stdout.trim_end(), run.stderr.as_str()) == (0, word.as_str(), "") {
            continue;
        }
        let failure = format!(
            "boot {n} of {count}, {cpus} vCPUs: exit code {}\n{}{}",
            run.code, run.stdout, run.stderr
        );
        // At once: a thousand boots take long.
        eprintln!("{failure}");
        failures.push(failure);
        if failures.len() == ENOUGH {
            break;
        }
    }
    failures
}

#[test]
fn one_boot_after_the_other() {
    let count = by_length(25, 500);
    let mut failures = Vec::new();
    for cpus in ["1", "2"] {
        let mut times = Vec::new();
        failures.extend(boots(count, cpus, &mut times));
        times.sort();
        println!(
            "{} boots, {cpus} vCPUs: median {:?}, longest {:?}",
            times.len(),
            times[times.len() / 2],
            times[times.len() - 1]
        );
    }
    assert!(
        failures.is_empty(),
        "{} of {} failed:\n{}",
        failures.len(),
        2 * count,
        failures.join("\n")
    );
}

#[test]
#[ignore = "takes an image of a Debian: make test-release"]
fn a_debian_root_takes_no_time() {
    let image = debian::image("bookworm", &[]);
    // The disk discards the guest's writes, is read-only, or is kept and written back at the end.
    for mode in [":snapshot", ":ro", ""] {
        let root = format!("{}{mode}", image.display());
        let mut times = Vec::new();
        for _ in 0..RUNS {
            let mut command = vm::command(["--rootfs", &root, "--", "true"]);
            let begun = Instant::now();
            let run = program::finish(&mut command);
            times.push(begun.elapsed());
            assert_eq!(
                (run.code, run.stdout.as_str(), run.stderr.as_str()),
                (0, "", ""),
                "{run:?}"
            );
        }
        times.sort();
        let (median, longest) = (times[RUNS / 2], times[RUNS - 1]);
        println!("a Debian root{mode}: median {median:?}, longest {longest:?}");
        assert!(
            median <= BAR,
            "a Debian root{mode}: median {median:?}, at most {BAR:?}"
        );
    }
}
