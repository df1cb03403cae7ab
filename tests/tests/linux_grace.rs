// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Grace periods of RCU that interrupt the CPUs and do not wait for ticks: their number, and the
//! time that they take from a program that gains nothing from them.

// Alone: it counts what happens in a time.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{linux, program, source_root, vm};

const MS: u64 = 2000;
/// Runs of a kernel without the bound, one of which must have the numbers that it has on a host
/// that other programs leave in peace.
const TRIES: usize = 3;

/// Grace periods, and calls of functions on the CPU that computes, in [`MS`].
fn grace(append: &str) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    linux::compile(
        &source_root().join("tests/guest/grace"),
        &folder.path().join("grace"),
    );
    let volume = format!("{}:/x", folder.path().display());
    let mut command = vm::command(["--cpus", "2", "--volume", &volume, "--append", append]);
    command.args(["--", "/x/grace", &MS.to_string()]);
    let run = program::finish(&mut command);
    assert_eq!(run.code, 0, "{append}: {run:?}");
    let said: Vec<u64> = run
        .stdout
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    println!("{append}: {said:?}");
    (said[0], said[1])
}

#[test]
fn grace_periods_are_expedited_within_a_bound() {
    // 32 in more than one tick of 10 ms, and normal ones in between.
    const MOST: u64 = 32 * MS / 20 * 5 / 4;
    let (periods, calls) = grace("");
    let (normal, _) = grace("vmi.rcu_expedite=0");
    let (asked, _) = grace("rcupdate.rcu_normal=1");
    assert!(periods > 5 * normal, "{periods} beside {normal}");
    assert!(periods > 5 * asked, "{periods} beside {asked}");
    assert!(periods <= MOST, "{periods}");
    // Each interrupts the other CPU at most twice.
    assert!(calls <= 2 * MOST, "{calls}");
    // There would be this many without the bound.
    let found = (0..TRIES).any(|_| {
        let (unbounded, more_calls) = grace("rcupdate.rcu_expedited=1");
        unbounded > MOST && more_calls > 2 * calls
    });
    assert!(found, "in none of {TRIES} runs, {calls} calls");
}
