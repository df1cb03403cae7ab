// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs that poll for an interrupt of another one before they sleep (`vcpu/poll.c` of the layer):
//! polls win where two programs answer each other, and stop where they win nothing.

// Alone: it measures time.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::has_two_cpus;
use paravane_tests::one_cpu::OneCpu;
use paravane_tests::quiet::{self, Try, Watch};
use paravane_tests::worker::{Worker, sum};
use paravane_tests::{linux, source_root};
use std::sync::{Mutex, PoisonError};

/// Machines beside one another take the CPUs that a look would need.
static ALONE: Mutex<()> = Mutex::new(());

/// A machine of two vCPUs, in which each line is the arguments of `answers`.
fn machine(options: &[&str]) -> Worker {
    let script =
        "while read times; do if [ \"$times\" ]; then /x/answers $times; else echo; fi; done";
    Worker::start(None, script, |folder| {
        linux::compile(
            &source_root().join("tests/guest/answers"),
            &folder.join("answers"),
        );
        let volume = format!("{}:/x:ro", folder.display());
        let options = [&["--cpus", "2", "--volume", &volume], options].concat();
        options.into_iter().map(String::from).collect()
    })
}

/// What a piece of work costs: halts, polls that won, and polls that were lost.
fn costs(machine: &mut Worker, line: &str) -> [u64; 3] {
    costs_watched(machine, line).0
}

/// What a piece of work costs, and whether the host was quiet meanwhile.
fn costs_watched(machine: &mut Worker, line: &str) -> ([u64; 3], bool) {
    let figures = |machine: &Worker| {
        let stat = machine.stat();
        ["halts", "polls_won", "polls_lost"].map(|field| sum(&stat, field))
    };
    let before = figures(machine);
    let watch = Watch::begin(machine);
    assert_eq!(machine.tell(line), "done\n");
    let quiet = watch.was_quiet(machine);
    let after = figures(machine);
    ([0, 1, 2].map(|i| after[i] - before[i]), quiet)
}

/// On a busy host other programs may have a CPU for long, so that polls win nothing.
#[test]
fn halts_end_without_a_sleep_and_long_ones_are_left_alone() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_two_cpus() {
        return;
    }
    let mut machine = machine(&[]);
    // So long that the host's ticks show what other programs do meanwhile.
    quiet::mostly("looks that win", || {
        let ([halts, won, lost], quiet) = costs_watched(&mut machine, "5000 10");
        println!("{halts} halts, {won} looks won, {lost} in vain, quiet: {quiet}");
        let right = won >= 500;
        Try { quiet, right }
    });
    // Each byte takes longer than the longest look.
    let [halts, _, lost] = costs(&mut machine, "200 1000");
    assert!(lost * 5 < halts, "{lost} looks in vain of {halts} halts");
    machine.end();
}

#[test]
fn without_the_heuristic_nobody_looks() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut machine = machine(&["--without", "halt-polls"]);
    let [_, won, lost] = costs(&mut machine, "1000 10");
    assert_eq!((won, lost), (0, 0));
    machine.end();
}

/// Both vCPUs have the same CPU: a vCPU that polls keeps the other from answering.
#[test]
fn on_one_cpu_nobody_looks() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _one = OneCpu::take();
    let mut machine = machine(&[]);
    let [_, won, lost] = costs(&mut machine, "1000 10");
    assert_eq!((won, lost), (0, 0));
    machine.end();
}
