// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine on the process hypervisor uses of the host besides its RAM.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{program, tree};
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

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
        .unwrap();
    let mut sums = Vec::new();
    while monitor.try_wait().unwrap().is_none() {
        let figures: Vec<_> = tree::spaces(monitor.id())
            .into_iter()
            .filter_map(tree::figures)
            .collect();
        // Before there are any, and just when they end, there is nothing to count.
        if figures.len() > 1 {
            sums.push(figures.iter().map(|f| f.maps).sum::<usize>());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut said = String::new();
    monitor
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    monitor
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(
        program::wait_within(&mut monitor, program::PATIENCE).success(),
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
