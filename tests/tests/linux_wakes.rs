// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU on which a task is woken that slept on a vCPU which sleeps.

// Alone: it measures how soon programs run.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::has_two_cpus;
use paravane_tests::{linux, program, source_root, vm};

const WAKES: u32 = 2000;
/// The tries, and how many of them must be right. Other programs of the host can disturb some.
const TRIES: usize = 5;
const RIGHT: usize = 3;

/// What one run counts.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Answers from the CPU of the waker.
    together: u32,
    /// Turns in which both programs computed, one after the other.
    in_turn: u32,
    /// Wakes beside the waker, as the kernel counts them.
    here: u32,
}

/// Wakes another program [`WAKES`] times. Both compute each `long`th time; 0: never.
fn run(append: &str, long: u32) -> Run {
    let folder = tempfile::tempdir().unwrap();
    linux::compile(
        &source_root().join("tests/guest/wakes"),
        &folder.path().join("wakes"),
    );
    let volume = format!("{}:/x", folder.path().display());
    let mut command = vm::command(["--cpus", "2", "--volume", &volume, "--append", append]);
    let script = format!(
        "mount -t debugfs debug /sys/kernel/debug; cd /sys/kernel/debug/vmi
        count() {{ while read name value; do [ $name != here ] || echo $value; done <wakes; }}
        before=$(count); /x/wakes {WAKES} {long}; echo $(($(count) - before))"
    );
    let run = program::finish(command.args(["--", "sh", "-c", &script]));
    assert_eq!(run.code, 0, "{append}: {run:?}");
    let mut all = run
        .stdout
        .split_whitespace()
        .map(|word| word.parse().unwrap());
    let mut next = || all.next().unwrap();
    let run = Run {
        together: next(),
        in_turn: next(),
        here: next(),
    };
    println!("{append} {long}: {run:?}");
    run
}

fn mostly(what: &str, append: &str, long: u32, right: impl Fn(Run) -> bool) {
    if !has_two_cpus() {
        return;
    }
    let tries = (0..TRIES).map(|_| right(run(append, long)));
    let found = tries.filter(|right| *right).take(RIGHT).count();
    assert_eq!(found, RIGHT, "{what}: right runs of {TRIES}");
}

#[test]
fn a_program_that_answers_runs_where_its_waker_waits() {
    mostly("together", "", 0, |run| run.together > WAKES * 3 / 4);
    mostly("apart without it", "vmi.wake_here=0", 0, |run| {
        run.together < WAKES / 2 && run.here == 0
    });
}

/// Two programs that could compute at the same time do so, although the waker mostly sleeps soon:
/// fewer than one wake of 128 makes one of them wait for the other.
#[test]
fn a_waker_that_sometimes_computes_rarely_keeps_others_waiting() {
    for long in [4, 16, 50] {
        mostly("at the same time", "", long, |run| {
            run.in_turn < WAKES / 128
        });
    }
}
