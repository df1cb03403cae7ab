// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports about a Linux guest that panics or hangs.

// A helper that fails is a failure of the test.
#![allow(clippy::unwrap_used, clippy::panic)]

use paravane_tests::lines::Lines;
use paravane_tests::program::{self, Run};
use paravane_tests::{tree, vm};
use std::process::Stdio;
use std::time::Duration;

fn contains(run: &Run, parts: &[&str]) {
    for part in parts {
        assert!(
            run.stderr.contains(part),
            "{part} is not in: {}",
            run.stderr
        );
    }
}

/// The stack in a report: the lines after `  stack:`.
fn stack(report: &str) -> Vec<&str> {
    report
        .lines()
        .skip_while(|line| *line != "  stack:")
        .skip(1)
        .take_while(|line| line.starts_with("    "))
        .map(str::trim)
        .collect()
}

#[test]
fn a_panic() {
    let script = "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger";
    let run = program::finish(vm::command(["--cpus", "2"]).args(["--", "sh", "-c", script]));
    assert_eq!(run.code, 1, "{run:?}");
    // The kernel's messages, the registers, the layer's events, one line of the monitor.
    contains(
        &run,
        &[
            "Kernel panic - not syncing: sysrq triggered crash",
            "vCPU 0: ",
            "vCPU 1: ",
            "made the call that ended the machine",
            "  rip 0x7a",
            "last events of its layer",
            "system call 1 at ",
            "the guest's kernel panicked",
        ],
    );
    let frames = stack(&run.stderr);
    for name in [
        "panic+",
        "sysrq_handle_crash+",
        "ksys_write+",
        "entry_SYSCALL_64_after_hwframe+",
    ] {
        assert!(
            frames.iter().any(|frame| frame.starts_with(name)),
            "{name}: {frames:?}"
        );
    }
    assert!(frames.last().unwrap().ends_with("(user)"), "{frames:?}");
}

#[test]
fn a_hang() {
    // Nothing interrupts it, so only the report shows where it is.
    let mut child = vm::command(["--append", "unknown_nmi_panic=0 nmi_watchdog=0"])
        .args(["--", "sh", "-c", "echo ready; while :; do :; done"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let line = program::first_line(&mut child);
    assert_eq!(line, "ready\n");
    // Its clock interrupts it meanwhile.
    tree::wait_busy(&tree::everything(child.id()), Duration::from_millis(300));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::QUIT).unwrap();
    let stderr = Lines::of(child.stderr.take()).rest_within(program::PATIENCE);
    let code = program::wait_within(&mut child, program::PATIENCE)
        .code()
        .unwrap_or(-1);
    let run = Run {
        code,
        stdout: line,
        stderr,
    };
    assert_eq!(run.code, 1, "{run:?}");
    contains(
        &run,
        &["vCPU 0: ", "  rip ", "  stack:", "last events of its layer"],
    );
    assert!(run.stderr.contains("interrupt 0x"), "{}", run.stderr);
}
