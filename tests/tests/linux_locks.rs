// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spinlocks of VMI-Linux that wait in the layer, by their statistics.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{linux, program, source_root, vm};
use std::collections::BTreeMap;

const LOCKS: &str = "/sys/kernel/debug/vmi/locks";

/// Runs a script in a machine with the program that contends for a lock. Returns what it printed.
fn run(cpus: &str, append: &str, script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    linux::compile(
        &source_root().join("tests/guest/contend"),
        &folder.path().join("contend"),
    );
    let volume = format!("{}:/x:ro", folder.path().display());
    let mut command = vm::command(["--cpus", cpus, "--volume", &volume, "--append", append]);
    let script = format!("mount -t debugfs none /sys/kernel/debug; L={LOCKS}; {script}");
    let run = program::finish(command.args(["--", "sh", "-c", &script]));
    assert_eq!(run.code, 0, "{run:?}");
    run.stdout
}

fn figures(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name.to_string(), value.parse().unwrap()))
        .collect()
}

/// The sum of a histogram's buckets.
fn sum(figures: &BTreeMap<String, u64>, histogram: &str) -> u64 {
    figures
        .iter()
        .filter(|(name, _)| name.starts_with(&format!("{histogram}[")))
        .map(|(_, count)| count)
        .sum()
}

/// Four vCPUs on fewer processors: some wait for a holder that does not run. Another vCPU may take
/// a lock between two lines, so the sums are of a machine that does nothing else.
#[test]
fn contended_locks_wait_in_the_layer() {
    let text = run(
        "4",
        "",
        "for i in 1 2 3 4 5 6; do /x/contend 4 500 >/dev/null; done; cat $L; echo reset 0; \
         echo 0 > $L; cat $L",
    );
    let (before, after) = text.split_once("reset 0\n").unwrap();
    let (before, after) = (figures(before), figures(after));
    println!("{before:?}");
    assert!(before["taken_slow"] > 0, "{before:?}");
    assert!(before["waits"] > 0, "{before:?}");
    assert!(before["released_kicked"] > 0, "{before:?}");
    assert!(before["waits_spurious"] <= before["waits"], "{before:?}");
    assert!(
        before["taken_slow_pickup"] <= before["taken_slow"],
        "{before:?}"
    );
    for (histogram, count) in [
        ("histo_spinning_ns", "taken_slow"),
        ("histo_blocked_ns", "waits"),
    ] {
        let all = sum(&before, histogram);
        assert!(all.abs_diff(before[count]) <= 8, "{histogram}: {before:?}");
    }
    assert!(before["time_blocked_ns"] > 0, "{before:?}");
    assert!(
        after["taken_slow"] < before["taken_slow"] / 2 + 8,
        "{after:?}"
    );
}

/// What has no such locks has no statistics of them: `nopvspin`, and a single vCPU.
#[test]
fn locks_that_spin_have_no_statistics() {
    for (cpus, append) in [("2", "nopvspin"), ("1", "")] {
        let text = run(
            cpus,
            append,
            "/x/contend 2 200 >/dev/null; test -e $L || echo none",
        );
        assert_eq!(text, "none\n", "{cpus} {append}");
    }
}
