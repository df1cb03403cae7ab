// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU on which a task is woken that slept on a vCPU which sleeps.

// Alone: it measures how soon programs run.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::has_two_cpus;
use paravane_tests::{linux, program, source_root, vm};

const WAKES: u32 = 2000;
/// Tries, of which one must be as on a host that other programs leave in peace.
const TRIES: usize = 5;

/// What one run counts.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Answers from the CPU of the waker.
    together: u32,
    /// Answers that came late.
    late: u32,
    /// Wakes beside the waker, as the kernel counts them.
    here: u32,
}

/// Wakes another program [`WAKES`] times. The waker computes each `long`th time; 0: never.
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
        late: next(),
        here: next(),
    };
    println!("{append} {long}: {run:?}");
    run
}

fn once(what: &str, append: &str, long: u32, right: impl Fn(Run) -> bool) {
    if has_two_cpus() {
        let found = (0..TRIES).any(|_| right(run(append, long)));
        assert!(found, "{what}: in none of {TRIES} runs");
    }
}

#[test]
fn a_program_that_answers_runs_where_its_waker_waits() {
    once("together", "", 0, |run| run.together > WAKES * 3 / 4);
    once("apart without it", "vmi.wake_here=0", 0, |run| {
        run.together < WAKES / 2 && run.here == 0
    });
}

/// A waker that goes on to compute keeps the other program waiting for less than one of 128 wakes,
/// after it has done so for the first times.
#[test]
fn a_waker_that_computes_rarely_keeps_others_waiting() {
    for long in [1, 4, 16, 50, 150] {
        once("not late", "", long, |run| run.late <= WAKES / 64);
    }
}
