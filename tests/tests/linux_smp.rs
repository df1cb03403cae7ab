// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMI-Linux with many vCPUs: their number, CPU hotplug, and ends with vCPUs in every state.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::busy::Busy;
use paravane_tests::program::{self, Ends, Run};
use paravane_tests::{linux, source_root, tree, vm};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The lengths for `make test-release`.
const LONG: &str = "PARAVANE_TEST_LONG";
/// The longest time from a signal to the end of the last process (SPECIFICATION.md).
const END: Duration = Duration::from_secs(5);

fn long() -> bool {
    std::env::var_os(LONG).is_some()
}

/// `paravane run` with the program that contends for a spinlock in `/x`.
fn machine(folder: &Path, cpus: u32) -> Command {
    linux::compile(
        &source_root().join("tests/guest/contend"),
        &folder.join("contend"),
    );
    let volume = format!("{}:/x:ro", folder.display());
    vm::command(["--cpus", &cpus.to_string(), "--volume", &volume])
}

fn shell(cpus: u32, script: &str) -> Run {
    let folder = tempfile::tempdir().unwrap();
    program::finish(machine(folder.path(), cpus).args(["--", "sh", "-c", script]))
}

/// Every vCPU is online and runs work.
#[test]
fn each_vcpu_is_a_cpu() {
    let counts = [1, 2, 4, 8, 16, 64];
    // A process on each CPU says which one it is on.
    let script = "nproc; for i in $(seq 0 $(($(nproc) - 1))); do \
                  taskset -c $i sh -c 'cut -d\" \" -f39 /proc/self/stat'; done | \
                  sort -n | uniq | wc -l";
    for count in counts {
        let run = shell(count, script);
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (0, format!("{count}\n{count}\n").as_str()),
            "{run:?}"
        );
    }
}

/// CPUs go and come while the others contend for a lock.
#[test]
fn cpus_go_and_come() {
    let rounds = if long() { 30 } else { 3 };
    let script = format!(
        "cd /sys/devices/system/cpu; /x/contend 4 {} >/tmp/count & \
         for i in $(seq {rounds}); do \
           for c in 1 2 3; do echo 0 >cpu$c/online || exit 1; done; \
           [ \"$(cat online)\" = 0 ] || exit 2; \
           for c in 3 1 2; do echo 1 >cpu$c/online || exit 3; done; \
           [ \"$(nproc)\" = 4 ] || exit 4; \
         done; wait; [ \"$(cat /tmp/count)\" -gt 0 ] && dmesg | grep -ciE 'stall|bug:|oops'",
        rounds * 400
    );
    let run = shell(4, &script);
    // grep finds nothing.
    assert_eq!((run.code, run.stdout.as_str()), (1, "0\n"), "{run:?}");
}

/// What the vCPUs of a machine of four do when it ends.
const STATES: [(&str, &str); 5] = [
    ("halted", "true"),
    (
        "in programs",
        "for i in 1 2 3; do (while :; do :; done) & done",
    ),
    ("contending", "/x/contend 4 100000 &"),
    ("offline", "echo 0 >/sys/devices/system/cpu/cpu2/online"),
    (
        "all of it",
        "echo 0 >/sys/devices/system/cpu/cpu3/online; (while :; do :; done) & \
         /x/contend 4 100000 &",
    ),
];

/// How a machine of four ends by itself, its exit status, and what the program says then.
const ENDS: [(&str, i32, &str); 4] = [
    ("exit 7", 7, ""),
    ("echo o >/proc/sysrq-trigger; sleep 100", 0, ""),
    (
        "echo b >/proc/sysrq-trigger; sleep 100",
        1,
        "paravane: the guest restarted, which is an end here",
    ),
    (
        "echo c >/proc/sysrq-trigger; sleep 100",
        1,
        "paravane: the guest's kernel panicked",
    ),
];

/// A machine in this state ends with its command, by a power-off, a restart, a panic, and by a
/// signal.
fn ends(name: &str, state: &str) {
    for (end, code, says) in ENDS {
        let run = shell(4, &format!("{state}\nsleep 0.2; {end}"));
        assert_eq!(run.code, code, "{name}, {end}: {run:?}");
        let last = run.stderr.lines().last().unwrap_or_default();
        assert_eq!(last, says, "{name}, {end}: {run:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{state}\necho ready; sleep 1000");
    let mut child = machine(folder.path(), 4)
        .args(["--", "sh", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = program::first_line(&mut child);
    assert_eq!(line, "ready\n", "{name}");
    let all = tree::everything(child.id());
    let machine = Ends(child);
    let begun = Instant::now();
    tree::signal(machine.0.id(), Signal::TERM);
    tree::wait_gone(&all).unwrap();
    assert!(begun.elapsed() < END, "{name}: {:?}", begun.elapsed());
}

/// A machine ends whatever its vCPUs do.
#[test]
fn vcpus_in_any_state_end() {
    for (name, state) in STATES {
        ends(name, state);
    }
}

/// A machine ends while two other programs run on each of the host's processors.
#[test]
fn vcpus_that_wait_for_processors_end() {
    let _busy = Busy::start(2);
    let (name, state) = STATES[STATES.len() - 1];
    ends(name, state);
}

/// Four vCPUs on one processor: each knows the run state of the others.
#[test]
fn cpus_know_each_other() {
    let run = shell(
        4,
        "mount -t debugfs none /sys/kernel/debug; echo 0 >/sys/devices/system/cpu/cpu3/online; \
         taskset -c 1 sh -c 'while :; do :; done' & sleep 0.5; \
         for try in $(seq 40); do taskset -c 0 cat /sys/kernel/debug/vmi/vcpus > /tmp/vcpus; \
         grep -q 'cpu2 halted' /tmp/vcpus && break; sleep 0.05; done; cat /tmp/vcpus",
    );
    let lines: Vec<&str> = run.stdout.lines().collect();
    let begins = |line: usize, with: &str| lines.get(line).is_some_and(|l| l.starts_with(with));
    assert_eq!(lines.len(), 4, "{run:?}");
    // CPU 2 does nothing. It is woken now and then, and then waits for the processor. The last
    // answer may be of a moment at which another program had the processor.
    let cpu0 = ["0", "1"].map(|last| format!("cpu0 running preempted {last} stolen_ns "));
    assert!(cpu0.iter().any(|with| begins(0, with)), "{run:?}");
    assert!(begins(1, "cpu1 running "), "{run:?}");
    assert!(begins(2, "cpu2 halted "), "{run:?}");
    assert!(begins(3, "cpu3 off "), "{run:?}");
}
