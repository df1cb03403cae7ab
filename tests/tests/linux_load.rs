// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMI-Linux with more vCPUs than the host has processors, and more tasks than vCPUs.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{linux, program, source_root, vm};
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

/// Builds the smallest configuration of the Linux in `$0`, with four jobs, into the folder `$1`.
const BUILD: &str = "export LC_ALL=C KBUILD_BUILD_TIMESTAMP=1970-01-01 KBUILD_BUILD_USER=u \
    KBUILD_BUILD_HOST=h KBUILD_BUILD_VERSION=1 && \
    make -s -C \"$0\" O=\"$1\" tinyconfig >/dev/null && \
    make -s -C \"$0\" O=\"$1\" -j4 vmlinux >/dev/null && sha256sum <\"$1/vmlinux\"";

/// Four compilers at once on four vCPUs make the kernel that the host makes, byte for byte. The
/// guest has the host's root, and the folder of the objects has the same name. The source is the
/// patched one: it compiles in another configuration than ours, too, without a warning.
#[test]
#[ignore = "long: make test-release"]
fn a_kernel_is_compiled() {
    let source = linux::source();
    let out = tempfile::tempdir().unwrap();
    let (source, to) = (source.to_str().unwrap(), out.path().to_str().unwrap());
    let host = Command::new("sh")
        .args(["-c", BUILD, source, to])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&host.stderr).into_owned();
    let host = String::from_utf8_lossy(&host.stdout).into_owned();
    assert_eq!((host.len(), said.as_str()), (68, ""), "{host}");
    let script = format!("mount -t tmpfs none \"$1\" && {BUILD}");
    let volume = format!("{source}:{source}:ro");
    let mut command = vm::command(["--rootfs", "/", "--cpus", "4", "--memory", "2G"]);
    command.args(["--volume", &volume]);
    let run = program::finish(command.args(["--", "sh", "-c", &script, source, to]));
    assert_eq!((run.code, run.stdout), (0, host), "{}", run.stderr);
}
