// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of the host that a machine on the process hypervisor uses besides its RAM.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::program::{self, Ends};
use paravane_tests::tree;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A guest that uses spaces with thousands of translations each and frees them: the host frees
/// them, too.
#[test]
fn what_a_guest_gives_back_is_given_back() {
    let mut monitor = program::command()
        .args(["conformance", "--hypervisor", "process", "--tap"])
        .args(["--filter", "mmu.many.released", "--append", "hold"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map(Ends)
        .unwrap();
    let mut said = Lines::of(monitor.0.stdout.take());
    let mut errors = Lines::of(monitor.0.stderr.take());
    let begun = Instant::now();
    let mut sums = Vec::new();
    while monitor.0.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < program::LONGEST, "{}", said.so_far());
        let figures: Vec<_> = tree::spaces(monitor.0.id())
            .into_iter()
            .filter_map(tree::figures)
            .collect();
        // Before there are any, and just when they end, there is nothing to count.
        if figures.len() > 1 {
            sums.push(figures.iter().map(|f| f.maps).sum::<usize>());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = said.rest_within(program::PATIENCE) + &errors.rest_within(program::PATIENCE);
    assert!(
        program::wait_within(&mut monitor.0, program::PATIENCE).success(),
        "{said}"
    );
    assert!(said.contains("ok 1 - mmu.many.released\n"), "{said}");
    let most = sums.iter().max().copied().unwrap_or(0);
    assert!(most > 3000, "{sums:?}");
    // The guest is idle for a second at its end.
    let late = sums.iter().rev().take(10).max().copied().unwrap_or(0);
    assert!(sums.len() > 20 && late < 2000, "{sums:?}");
}

/// Each GiB of guest memory is a file of its own: no mapping may continue from one file into the
/// next.
#[test]
fn neighbours_in_two_files_are_mapped_apart() {
    let run = program::run([
        "conformance",
        "--hypervisor",
        "process",
        "--tap",
        "--memory",
        "1200M",
        "--filter",
        "memory.large.around_gib",
    ]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        run.stdout.contains("ok 1 - memory.large.around_gib\n"),
        "{run:?}"
    );
}
