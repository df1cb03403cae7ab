// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests that attack at random (`src/bin/sandbox_fuzz.rs`). The tracer that watches them is
//! tested, too: it must see which calls are refused, and which processes run without a filter.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::is_long;
use paravane_tests::host_without::{Host, Programs};
use paravane_tests::program;
use paravane_tests::witness::{self, Trace};
use std::process::{Command, Stdio};

const SECONDS: u64 = 20;
const LONG_SECONDS: u64 = 1800;
/// Guests that sooner or later make a call which the filter does not admit.
const GUESTS: u64 = 4;

#[test]
fn nothing_that_a_guest_does_at_random_reaches_outside() {
    let long = is_long();
    let seconds = if long { LONG_SECONDS } else { SECONDS };
    // Build the program now, outside of the time limit.
    let _ = program::path();
    let run = program::finish(
        Command::new(program::tool("sandbox_fuzz")).args(["--seconds", &seconds.to_string()]),
    );
    print!("{}", run.stdout);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
}

#[allow(clippy::zombie_processes)] // The tracer waits for it.
fn trace(command: &mut Command) -> Trace {
    witness::prepare(command);
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    witness::trace(child.id()).0
}

/// The tracer sees calls that the policy does not admit, and that they are refused.
#[test]
fn the_tracer_sees_what_is_refused() {
    let programs = Programs::new(&[]);
    let mut refused = 0;
    for seed in 0..GUESTS {
        let mut command = programs.on(Host::User, "paravane");
        command.args(["conformance", "--hypervisor", "process", "--timeout", "5"]);
        command.args([
            "--append",
            "hostile=calls",
            "--append",
            &format!("seed={seed}"),
        ]);
        let trace = trace(&mut command);
        assert!(trace.calls > 100 && trace.forks > 1, "{trace:#?}");
        assert!(trace.wrong.is_empty(), "{trace:#?}");
        refused += trace.refused;
    }
    assert!(refused > 0);
}

/// The tracer reports processes that play the layer's part without a filter.
#[test]
fn the_tracer_sees_a_process_without_a_filter() {
    let programs = Programs::new(&[]);
    // The shell is the monitor, the second one its zygote, the third a starting process.
    let script = "sh -c '(cat /dev/null; true); true'; true";
    let mut command = programs.on(Host::User, "without");
    command.args([
        "nothing",
        &Host::User.user().to_string(),
        "sh",
        "-c",
        script,
    ]);
    let trace = trace(&mut command);
    let says = |what: &str| trace.wrong.iter().any(|w| w.contains(what));
    assert!(
        says("Zygote ") && says("Space ") && says(" without a filter"),
        "{trace:#?}"
    );
}
