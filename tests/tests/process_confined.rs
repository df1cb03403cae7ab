// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The whole suite on the process hypervisor with few rights: as an ordinary user, and in a
//! container. The tests also measure the cost of an idle machine.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::by_length;
use paravane_tests::control_group::ControlGroup;
use paravane_tests::host_without::{NOBODY, Programs};
use paravane_tests::{program, tree};
use rustix::process::{Signal, geteuid};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A suite has at least this many tests.
const FEWEST_TESTS: u32 = 300;
/// CPU time of an idle machine, all processes together: 5 ms in 60 s. A debug build needs twice the
/// instructions for the same; the release test judges the product.
const IDLE_SHARE: u64 = 5_000_000 / 60 * if cfg!(debug_assertions) { 2 } else { 1 };
/// The longest time between two looks at an idle machine, in seconds: it wakes up once in that
/// time.
const IDLE_LOOK: u64 = 4;
/// Wake-ups of an idle machine in addition to one for each [`IDLE_LOOK`]: the looks become rarer
/// step by step, and each thread may be woken once by what happened before.
const MORE_RUNS: u64 = 8;
/// A look reads more memory that is in no cache than a bare wake-up does, and a debug build much
/// more. Its cost is at most this many times the cost of a bare one.
const LOOK_COST: u64 = if cfg!(debug_assertions) { 8 } else { 4 };
/// One of this number of idle machines must be within the limits. Other programs of the host can
/// make one of them more expensive; a fault shows in each.
const IDLE_TRIES: usize = 5;

static ALONE: Mutex<()> = Mutex::new(());

fn suite(command: &mut Command, cpus: u32) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    command.args([
        "conformance",
        "--hypervisor",
        "process",
        "--tap",
        "--timeout",
        "300",
    ]);
    command
        .args(["--cpus", &cpus.to_string()])
        .stdin(Stdio::null());
    let run = program::finish(command.env_clear().current_dir("/"));
    let passed = run
        .last_line()
        .split(' ')
        .next()
        .and_then(|n| n.parse::<u32>().ok());
    assert!(
        run.code == 0 && run.last_line().contains(" 0 failed") && passed > Some(FEWEST_TESTS),
        "{}{}",
        run.stdout,
        run.stderr
    );
}

/// Root tries both; other users can only be themselves.
fn users() -> Vec<u32> {
    if geteuid().is_root() {
        vec![0, NOBODY]
    } else {
        vec![geteuid().as_raw()]
    }
}

#[test]
fn with_an_empty_environment() {
    for user in users() {
        let copy = Programs::new(&["confine"]);
        suite(Command::new(copy.path("paravane")).uid(user).gid(user), 2);
    }
}

#[test]
fn in_a_container() {
    for user in users() {
        let copy = Programs::new(&["confine"]);
        let mut command = Command::new(copy.path("confine"));
        command.arg(user.to_string()).arg(copy.path("paravane"));
        suite(&mut command, 2);
    }
}

#[test]
fn in_a_container_with_sixteen_vcpus() {
    let copy = Programs::new(&["confine"]);
    let mut command = Command::new(copy.path("confine"));
    let user = users().pop().unwrap_or(NOBODY);
    command.arg(user.to_string()).arg(copy.path("paravane"));
    // With 512 tasks, if this user can make a group.
    let tasks = ("pids.max", "pids.max");
    let group = ControlGroup::new("pids", tasks);
    if let Some(group) = &group {
        group.set(tasks, 512);
        command = group.with(&command);
    }
    suite(&mut command, 16);
}

#[test]
fn an_idle_machine_costs_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let tries = (0..IDLE_TRIES).map(|_| idle());
    let wrong: Vec<_> = tries.map_while(Result::err).collect();
    assert!(wrong.len() < IDLE_TRIES, "{wrong:#?}");
}

/// Measures an idle machine. An error says what costs too much.
fn idle() -> Result<(), String> {
    let seconds: u64 = by_length(10, 60);
    let mut command = program::command();
    command.args([
        "conformance",
        "--hypervisor",
        "process",
        "--cpus",
        "2",
        "--tap",
    ]);
    command.args(["--append", &format!("idle={}", seconds + 5)]);
    let mut monitor = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while tree::spaces(monitor.id()).is_empty() {
        assert!(Instant::now() < deadline, "it does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Wait until it is idle, and the start is finished, such as the first corrections of the clock.
    std::thread::sleep(Duration::from_secs(3));
    let pids = tree::everything(monitor.id());
    let before = (tree::cpu_time(&pids), tree::runs(&pids));
    let host = tree::bare_wake_up(Duration::from_secs(seconds), Duration::from_secs(IDLE_LOOK));
    let used = tree::cpu_time(&pids) - before.0;
    let runs = tree::runs(&pids) - before.1;
    let each: Vec<_> = pids
        .iter()
        .map(|&pid| (pid, tree::cpu_time(&[pid])))
        .collect();
    tree::signal(monitor.id(), Signal::TERM);
    program::wait_within(&mut monitor, program::PATIENCE);
    tree::wait_gone(&pids).unwrap();
    assert!(pids.len() > 3, "{pids:?}");
    let seen = format!(
        "{} us of CPU in {seconds} s, {runs} wake-ups; a bare one costs {} us",
        used / 1000,
        host / 1000
    );
    println!("idle: {seen}");
    let few = runs <= seconds / IDLE_LOOK + MORE_RUNS;
    let cheap = used <= IDLE_SHARE * seconds + runs * LOOK_COST * host;
    if few && cheap {
        Ok(())
    } else {
        Err(format!("{seen}: {each:?}"))
    }
}
