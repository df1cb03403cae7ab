// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernels' reader of ROMs (`guest/common`) refuses damaged ROMs, and accepts valid ones.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{program, source_root};
use std::process::Command;

#[test]
fn its_own_tests_pass() {
    let folder = tempfile::tempdir().unwrap();
    let mut make = Command::new("make");
    make.arg("-C").arg(source_root().join("guest/common"));
    make.arg(format!("OUT={}", folder.path().display()));
    // Do not use the job server of a make that runs this test.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    let run = program::finish(make.arg("test"));
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        run.stdout.contains("\n1..") && run.stdout.contains("ok 1 - "),
        "{run:?}"
    );
    assert!(!run.stdout.contains("not ok"), "{run:?}");
}
