// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMI-Linux with more vCPUs than the host has processors, and more tasks than vCPUs.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{program, source_root, vm};
use std::process::Command;

/// The lengths for `make test-release`.
const LONG: &str = "PARAVANE_TEST_LONG";

/// hackbench with 40 and with 200 tasks: groups of ten senders and ten receivers, each of which
/// says at its end how long a message took.
#[test]
fn many_tasks_send_messages() {
    let (counts, rounds): (&[u32], u32) = if std::env::var_os(LONG).is_some() {
        (&[2, 4, 16], 20)
    } else {
        (&[4, 16], 1)
    };
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("make")
        .arg("-C")
        .arg(source_root().join("bench/micro"))
        .arg(format!("OUT={}", folder.path().display()))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let volume = format!("{}:/x:ro", folder.path().display());
    for &cpus in counts {
        for groups in [2, 10] {
            let script = format!(
                "for round in $(seq {rounds}); do \
                   for group in $(seq {groups}); do /x/micro hackbench >>/tmp/said & done; wait; \
                 done; grep -c '^micro hackbench [0-9.]*$' /tmp/said; \
                 dmesg | grep -ciE 'stall|lockup|bug:|oops'"
            );
            let cpus = cpus.to_string();
            let mut command = vm::command(["--cpus", &cpus, "--memory", "512M"]);
            let run = program::finish(
                command
                    .args(["--volume", &volume])
                    .args(["--", "sh", "-c", &script]),
            );
            // grep finds nothing of the last.
            assert_eq!(
                (run.code, run.stdout.as_str()),
                (1, format!("{}\n0\n", groups * rounds).as_str()),
                "{cpus} vCPUs: {run:?}"
            );
        }
    }
}
