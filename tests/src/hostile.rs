// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines with a guest that attacks its hypervisor.

use crate::program::{self, Run};
use std::process::Command;

/// A conformance guest on the process hypervisor in the mode `hostile=mode`, with further words on
/// its command line.
#[must_use]
pub fn command(mode: &str, words: &[String]) -> Command {
    let mut command = program::command();
    command.args([
        "conformance",
        "--hypervisor",
        "process",
        "--append",
        &format!("hostile={mode}"),
    ]);
    for word in words {
        command.args(["--append", word]);
    }
    command
}

/// Checks the end of a machine: one line says why it ended, and the monitor did not panic.
///
/// # Panics
/// When the machine ended in another way.
pub fn check(run: &Run, what: &str) {
    assert_eq!(run.code, 1, "{what}: {run:?}");
    let problems = run
        .stdout
        .lines()
        .filter(|l| l.contains("Problem: "))
        .count();
    assert_eq!(problems, 1, "{what}: {run:?}");
    assert!(
        !run.stderr.contains("panicked") && !run.stdout.contains("panicked"),
        "{what}: {run:?}"
    );
}
