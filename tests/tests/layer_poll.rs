// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a vCPU that halts polls for an interrupt, and when it stops polling: `vcpu/poll.c` of the
//! layer alone, with a clock and a host that the test controls (`tests/layer/poll`). Most bounds
//! have a planted fault (`layers/faults.txt`) that its test must find.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{planted, source_root};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// The program, with a fault or without.
fn program(folder: &TempDir, fault: Option<&str>) -> PathBuf {
    let (root, program) = (source_root(), folder.path().join(fault.unwrap_or("sound")));
    let include = |path: &str| format!("-I{}", root.join(path).display());
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"])
        .args(["-fno-strict-aliasing", "-o"])
        .arg(&program)
        .args(["layers/process", "layers", "abi/include"].map(include))
        .args(fault.map(|fault| format!("-DVMI_FAULT_{fault}=1")))
        .arg(root.join("tests/layer/poll/poll.c"))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cc: {error}");
    program
}

/// Passes, and fails with each fault that the list gives to it.
fn run(test: &str) {
    let folder = tempfile::tempdir().unwrap();
    let run = |fault: Option<&str>| {
        let output = Command::new(program(&folder, fault)).arg(test).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said)
    };
    assert_eq!(run(None), (Some(0), String::new()));
    let faults = planted::found_by(&format!("poll_{test}")).unwrap();
    assert!(!faults.is_empty());
    for fault in faults {
        assert_eq!(run(Some(&fault)).0, Some(1), "{fault} is not found");
    }
}

#[test]
fn a_device_is_looked_for_as_long_as_it_looks() {
    run("device");
}

#[test]
fn a_program_that_answers_may_have_the_processor() {
    run("answer");
}

#[test]
fn an_interrupt_that_waits_makes_looks_rare() {
    run("late");
}

#[test]
fn time_slices_of_others_make_looks_rare() {
    run("slices");
}

#[test]
fn nothing_is_looked_for_that_cannot_come() {
    run("conditions");
}

#[test]
fn a_gap_in_looks_for_vcpus_makes_them_rare() {
    run("vcpus");
}
