// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMI-Linux with more vCPUs than the host has processors, and more tasks than vCPUs.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::by_length;
use paravane_tests::{compat, linux, program, source_root, vm};
use std::process::Command;
use std::time::Duration;

/// hackbench with 40 and with 200 tasks: groups of ten senders and ten receivers, each of which
/// says at its end how long a message took.
#[test]
fn many_tasks_send_messages() {
    let (counts, rounds): (&[u32], u32) = by_length((&[4, 16], 1), (&[2, 4, 16], 20));
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
                 dmesg | grep -ciE 'stall|bug:|oops'"
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
/// patched one, so this also shows that it compiles without a warning in another configuration.
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
    command.args(["--", "sh", "-c", &script, source, to]);
    let run = program::finish_within(&mut command, program::LONGEST_OF_ALL).unwrap();
    assert_eq!((run.code, run.stdout), (0, host), "{}", run.stderr);
}

/// How long the stressors run together in place of [`STRESS_TIME`], in seconds. At least a second
/// each, which makes two minutes.
const STRESS: &str = "PARAVANE_TEST_STRESS";
const STRESS_TIME: u32 = 600;
/// Of the 67 stressors of both classes two refuse root. Others may come and go with Debian.
const STRESSORS: u32 = 60;

/// Runs the stressors one after the other, four of each, and prints how many there were, how
/// stress-ng ended, and what the kernel complains of. `$0` is the time for all, in seconds. The
/// output of stress-ng is on standard error.
const STRESSED: &str = "cd /tmp || exit 10
    cat /dev/kmsg >said & reader=$!
    count=$(for class in scheduler interrupt; do stress-ng --class $class? 2>&1; done |
        sed 's/.*stressors: //' | tr ' ' '\\n' | sort -u | wc -l)
    each=$(($0 / count)); [ $each -gt 0 ] || each=1
    stress-ng --class scheduler,interrupt --sequential 4 --timeout ${each}s --oomable \
        --temp-path /tmp >stressed 2>&1; code=$?
    echo $(grep 'dispatching hogs' stressed | tr ',' '\\n' | wc -l) $code
    cat stressed >&2
    sleep 0.5; kill $reader
    grep -E 'stall|BUG|WARNING' said";

/// stress-ng's stressors of the scheduler and of interrupts on four vCPUs for ten minutes: the
/// guest's log has no line of a stall, a bug or a warning. No such line is known to be harmless, so
/// none is allowed. The host must not stop the machine. compatibility.rs compares the verdicts of
/// the stressors with those of the host.
#[test]
#[ignore = "ten minutes, and a package mirror: make test-release"]
fn schedulers_and_interrupts_are_stressed() {
    let seconds = std::env::var(STRESS).map_or(STRESS_TIME, |text| text.parse().unwrap());
    let image = compat::prepared().join("root.ext4");
    let image = format!("{}:snapshot", image.display());
    let mut command = vm::command(["--rootfs", &image, "--cpus", "4", "--memory", "2G"]);
    command.args(["--", "sh", "-c", STRESSED, &seconds.to_string()]);
    // It takes as long again to begin and to end.
    let longest = program::LONGEST + Duration::from_secs(2 * u64::from(seconds));
    let run = program::finish_within(&mut command, longest).unwrap();
    println!("{}\n{}", run.stdout, run.stderr);
    let (ended, log) = run.stdout.split_once('\n').unwrap();
    let (count, code) = ended.split_once(' ').unwrap();
    assert_eq!(code, "0", "{run:?}");
    assert!(count.parse::<u32>().unwrap() >= STRESSORS, "{run:?}");
    // grep finds nothing.
    assert_eq!((run.code, log), (1, ""), "{run:?}");
}
