// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which layers keep the clock page right without being called.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_abi::TIME_PAGE_KEPT;
use paravane_blobs::{KVM_ROM, NATIVE_ROM};
use paravane_tests::planted::{Planted, found_by};
use paravane_tests::program::{self, Run};
use paravane_tests::rom;

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

/// A layer whose page is right without calls says so: that of processes, where a program reads it
/// for seconds, and the native one, whose real time is the counter. On KVM the page waits for the
/// next call.
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
