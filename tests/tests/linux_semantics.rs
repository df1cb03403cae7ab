// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Linux promises to programs (tests/linux/): the same verdict in a virtual machine as on the host.

#![allow(clippy::unwrap_used)] // What cannot be set up has failed.

use paravane_tests::program::{self, Run};
use paravane_tests::{linux, source_root};
use std::fs;
use std::path::Path;
use std::process::Command;

fn tests_that_ran(output: &str) -> Vec<&str> {
    output
        .lines()
        .filter(|line| line.starts_with("ok ") || line.starts_with("not ok "))
        .filter_map(|line| line.split(" - ").nth(1)?.split(" #").next())
        .collect()
}

fn in_machine(kernel: &Path, root: &Path, vcpus: &str) -> Run {
    let mut command = program::command();
    command.args([
        "boot",
        "--memory",
        "512",
        "--timeout",
        "300",
        "--append",
        "console=hvc0 quiet panic=0",
    ]);
    command
        .args(["--cpus", vcpus, "--kernel"])
        .arg(kernel)
        .arg("--initrd")
        .arg(root);
    program::finish(&mut command)
}

#[test]
fn programs_see_what_they_see_on_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let (program, root) = (folder.path().join("init"), folder.path().join("root"));
    linux::compile(&source_root().join("tests/linux"), &program);
    let host = Command::new(&program).output().unwrap();
    let host = String::from_utf8_lossy(&host.stdout).into_owned();
    assert!(host.ends_with(", 0 failed\n"), "the reference is wrong: {host}");
    fs::write(&root, linux::initial_root(&fs::read(&program).unwrap())).unwrap();
    let kernel = linux::kernel();
    for vcpus in ["1", "2"] {
        let run = in_machine(&kernel, &root, vcpus);
        assert_eq!(run.code, 0, "{vcpus} vCPUs: {run:?}");
        let ran = tests_that_ran(&run.stdout);
        for test in tests_that_ran(&host) {
            assert!(ran.contains(&test), "{vcpus} vCPUs: {test} did not run: {run:?}");
        }
        assert!(ran.contains(&"hole.pointers"), "{vcpus} vCPUs: {run:?}");
        // It is where the machine is told apart from the host; a kernel message about any of it would be a bug there.
        for word in ["WARNING:", "BUG:", "Oops", "Call Trace"] {
            assert!(!run.stdout.contains(word), "{vcpus} vCPUs: {word}: {run:?}");
        }
    }
}
