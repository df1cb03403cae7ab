// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands in machines: many of them, with slow readers, with clients that stop or end.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::user::User;
use paravane_tests::{program, vm};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process};
use std::io::Read;
use std::process::{Child, ChildStdout, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A machine that stays.
const STAYS: &str = "sleep 1000";

/// Starts a command whose output is read later.
fn start(user: &User, script: &str) -> Child {
    let mut command = user.command(&["exec", "m", "--", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// Reads pieces of at most `piece` bytes, with a pause after each piece.
fn read_slowly(mut output: ChildStdout, piece: usize, pause: Duration) -> usize {
    let (mut total, mut bytes) = (0, vec![0; piece]);
    loop {
        match output.read(&mut bytes).unwrap() {
            0 => return total,
            count => total += count,
        }
        thread::sleep(pause);
    }
}

#[test]
fn two_hundred_at_once() {
    // An eighth of the monitor's files are for connections to its guest.
    let most = getrlimit(Resource::Nofile).maximum;
    if most.is_some_and(|most| most < 4096) {
        eprintln!("NOT TESTED: this user may open {most:?} files");
        return;
    }
    let user = User::new();
    user.detach(&["--name", "m"], STAYS);
    let mut all: Vec<program::Ends> = (0..200)
        .map(|_| start(&user, "echo x; exec sleep 1000"))
        .map(program::Ends)
        .map(|mut ends| {
            // It runs in the machine.
            assert_eq!(program::first_line(&mut ends.0), "x\n");
            ends
        })
        .collect();
    assert_eq!(
        user.ok(&["exec", "m", "--", "echo", "one more"]),
        "one more\n"
    );
    let limit = user.ok(&["exec", "m", "--", "sh", "-c", "ulimit -n"]);
    assert_eq!(limit, "1024\n");
    all.clear();
    assert_eq!(user.ok(&["exec", "m", "--", "echo", "after"]), "after\n");
    assert_eq!(user.state("m"), "running");
}

/// After 8 s Linux resets a connection that it has closed.
#[test]
fn a_slow_reader_gets_everything() {
    let user = User::new();
    user.detach(&["--name", "m"], STAYS);
    let mut child = start(&user, "head -c 600000 /dev/zero; exit 7");
    let output = child.stdout.take().unwrap();
    thread::sleep(Duration::from_secs(11));
    assert_eq!(read_slowly(output, 1 << 16, Duration::ZERO), 600_000);
    let status = program::wait_within(&mut child, program::PATIENCE);
    assert_eq!(status.code(), Some(7));
}

#[test]
fn a_process_that_stays_keeps_no_command() {
    let user = User::new();
    user.detach(&["--name", "m"], STAYS);
    let begun = Instant::now();
    for size in [20_000, 50_000, 60_000, 300_000] {
        let script = format!("sleep 300 & head -c {size} /dev/zero; exit 3");
        let run = user.run(&["exec", "m", "--", "sh", "-c", &script]);
        assert_eq!((run.code, run.stdout.len()), (3, size), "{}", run.stderr);
    }
    assert!(begun.elapsed() < Duration::from_secs(200));
}

#[test]
fn clients_that_stop_or_end_keep_no_other() {
    let user = User::new();
    user.detach(&["--name", "m"], STAYS);
    let mut children = Vec::new();
    for _ in 0..40 {
        let child = program::Ends(start(&user, "exec sleep 1000"));
        // Some have asked for a connection by then, and some have it.
        thread::sleep(Duration::from_millis(children.len() as u64 / 4));
        let signal = [Signal::STOP, Signal::KILL][children.len() % 2];
        kill_process(Pid::from_child(&child.0), signal).unwrap();
        children.push(child);
    }
    let begun = Instant::now();
    assert_eq!(user.ok(&["exec", "m", "--", "echo", "yes"]), "yes\n");
    // One that waited for another would have waited for more than a minute.
    assert!(begun.elapsed() < Duration::from_secs(50));
    assert_eq!(user.ok(&["stop", "m"]), "m\n");
}

#[test]
fn what_has_left_the_machine_is_printed_at_its_end() {
    let script = "head -c 300000 /dev/zero; sleep 2; poweroff -f";
    let mut command = vm::command(["--", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let output = child.stdout.take().unwrap();
    let total = read_slowly(output, 1 << 16, Duration::from_millis(10));
    assert_eq!(total, 300_000);
    program::wait_within(&mut child, program::PATIENCE);
}

/// For example, a command has started a server that prints messages later.
#[test]
fn a_process_that_stays_can_print() {
    let user = User::new();
    user.detach(&["--name", "m"], STAYS);
    let script = "(sleep 1; head -c 300000 /dev/zero && echo x > /done) & exit 3";
    let run = user.run(&["exec", "m", "--", "sh", "-c", script]);
    assert_eq!((run.code, run.stderr.as_str()), (3, ""), "{run:?}");
    let begun = Instant::now();
    while user.run(&["exec", "m", "--", "test", "-s", "/done"]).code != 0 {
        assert!(begun.elapsed() < program::PATIENCE, "it cannot print");
        thread::sleep(Duration::from_millis(100));
    }
}
