// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options of the port: kernels that are configured otherwise are built, and work.

#![allow(clippy::unwrap_used)] // A failure to set up fails the test.

use paravane_tests::program;
use std::fs;

/// What a program sees of the port's rewriting of user text, and that processes work without it.
const LOOK: &str = "\
mount -t debugfs none /sys/kernel/debug 2>/dev/null
test -d /sys/kernel/debug || exit 3
test -e /sys/kernel/debug/vmi/sites && exit 4
test -e /sys/module/vmi/parameters/sites && exit 5
test -e /sys/module/vmi/parameters/populate || exit 6
n=0
while [ $n -lt 200 ]; do n=$((n + $(echo 1 | cat))); done
echo $n processes";

#[test]
#[ignore = "half an hour: make test-release"]
fn a_kernel_that_leaves_the_text_of_programs_alone() {
    let folder = tempfile::tempdir().unwrap();
    let option = folder.path().join("option.config");
    fs::write(&option, "# CONFIG_VMI_USER_TEXT is not set\n").unwrap();
    let built = program::finish_within(
        program::command()
            .args(["kernel", "build", "--config"])
            .arg(&option)
            .arg("--output")
            .arg(folder.path()),
        program::LONGEST_OF_ALL,
    );
    let built = built.unwrap();
    assert_eq!(built.code, 0, "{built:?}");
    let config = fs::read_to_string(folder.path().join("config")).unwrap();
    assert!(config.contains("# CONFIG_VMI_USER_TEXT is not set\n"));
    let run = program::finish(
        program::command()
            .args(["run", "--cpus", "2", "--kernel"])
            .arg(folder.path().join("vmlinux"))
            .args(["--", "sh", "-c", LOOK]),
    );
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "200 processes\n"),
        "{run:?}"
    );
}
