// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux's guarantees to programs (tests/linux/): the verdict in a virtual machine is that on the
//! host.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

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
    assert!(
        host.ends_with(", 0 failed\n"),
        "the reference is wrong: {host}"
    );
    fs::write(&root, linux::initial_root(&fs::read(&program).unwrap())).unwrap();
    let kernel = linux::kernel();
    for vcpus in ["1", "2"] {
        let run = in_machine(&kernel, &root, vcpus);
        assert_eq!(run.code, 0, "{vcpus} vCPUs: {run:?}");
        let ran = tests_that_ran(&run.stdout);
        for test in tests_that_ran(&host) {
            assert!(
                ran.contains(&test),
                "{vcpus} vCPUs: {test} did not run: {run:?}"
            );
        }
        for test in [
            "hole.below",
            "hole.pointers",
            "feature.file-systems",
            "feature.vsock",
        ] {
            assert!(ran.contains(&test), "{vcpus} vCPUs: {test}: {run:?}");
        }
        // This distinguishes the guest's output from the host's. A kernel message about a test
        // would be a bug.
        for word in ["WARNING:", "BUG:", "Oops", "Call Trace"] {
            assert!(!run.stdout.contains(word), "{vcpus} vCPUs: {word}: {run:?}");
        }
    }
}

/// Runs the program of the semantics tests on bare metal (QEMU's software emulation), which has
/// further features of the kernel.
#[test]
fn the_configuration_has_what_is_promised_on_bare_metal() {
    let folder = tempfile::tempdir().unwrap();
    let (program, root) = (folder.path().join("init"), folder.path().join("root"));
    linux::compile(&source_root().join("tests/linux"), &program);
    fs::write(&root, linux::initial_root(&fs::read(&program).unwrap())).unwrap();
    let image = linux::kernel().with_file_name("bzImage");
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args([
        "-machine",
        "q35",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max",
        "-m",
        "512",
    ]);
    qemu.args([
        "-smp", "2", "-display", "none", "-vga", "none", "-serial", "stdio",
    ]);
    qemu.args(["-nodefaults", "-no-user-config", "-no-reboot"]);
    qemu.args([
        "-append",
        "console=ttyS0 quiet panic=-1 BARE=1 FILTER=feature.",
    ]);
    let run = program::finish(qemu.arg("-kernel").arg(image).arg("-initrd").arg(root));
    let text = run.stdout.replace('\r', "");
    let ran = tests_that_ran(&text);
    for test in ["feature.ports", "feature.32-bit", "feature.nftables"] {
        assert!(ran.contains(&test), "{test}: {run:?}");
    }
    assert!(text.contains(" passed, 0 failed\n"), "{run:?}");
}
