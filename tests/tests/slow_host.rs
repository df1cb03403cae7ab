// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host that takes long to make a machine: for its namespaces, its processes, its network. The
//! machine still ends when it is asked to, and nothing of it stays.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::user::User;
use paravane_tests::{program, tree, vm};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// From the request to the end.
const END: Duration = Duration::from_secs(5);
/// The time in which a monitor reaches the step at which its host is slow.
const THERE: Duration = Duration::from_secs(60);

/// Calls of a start, by their numbers: the monitor's own, those of the parent of the machine's
/// processes before it is the layer's program, and the one by which it becomes that.
const CALLS: [(&str, u32); 4] = [
    ("memfd_create", 319),
    ("pidfd_open", 434),
    ("unshare", 272),
    ("execveat", 322),
];
const EXECVEAT: u32 = 322;

/// How a machine is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// `--timeout`, s.
    Timeout(u64),
    /// `paravane stop`.
    Stop,
    /// `paravane kill`.
    Kill,
    /// A signal to its monitor.
    Term,
}

/// A program on a host that does not come back from this call.
fn on_slow_host(call: u32, command: &Command) -> Command {
    let mut slow = Command::new(program::tool("slow"));
    slow.arg(call.to_string()).arg(command.get_program());
    slow.args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        slow.env(name, value.unwrap());
    }
    slow
}

/// Whether a thread of these processes is in this call.
fn is_in_call(pids: &[u32], call: u32) -> bool {
    let tasks = pids
        .iter()
        .filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    let mut calls = tasks
        .flatten()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("syscall")).ok());
    calls.any(|line| line.split(' ').next() == Some(&call.to_string()))
}

/// Runs a machine of the user that does not get further than `stuck` says, and has it end. What it
/// said.
fn ends(user: &User, mut command: Command, way: Way, stuck: impl Fn(&[u32]) -> bool) {
    let begun = Instant::now();
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut monitor = program::Ends(child);
    let pids = loop {
        let pids = tree::everything(monitor.0.id());
        if stuck(&pids) {
            break pids;
        }
        assert!(begun.elapsed() < THERE, "{way:?}: it is not stuck");
        assert!(monitor.0.try_wait().unwrap().is_none(), "{way:?}: it ends");
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut asked = Instant::now();
    let expected = match way {
        Way::Timeout(seconds) => {
            asked = asked.max(begun + Duration::from_secs(seconds));
            124
        }
        Way::Stop => {
            assert_eq!(user.ok(&["stop", "m"]), "m\n");
            143
        }
        Way::Kill => {
            assert_eq!(user.ok(&["kill", "m"]), "m\n");
            137
        }
        Way::Term => {
            tree::signal(monitor.0.id(), Signal::TERM);
            143
        }
    };
    let status = loop {
        if let Some(status) = monitor.0.try_wait().unwrap() {
            break status;
        }
        assert!(
            Instant::now() < asked + 2 * END,
            "{way:?}: it has not ended"
        );
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = asked.elapsed();
    let said = Lines::of(monitor.0.stderr.take()).rest_within(program::PATIENCE);
    assert_eq!(status.code(), Some(expected), "{way:?}: {said}");
    assert!(took < END, "{way:?}: {took:?}");
    tree::wait_gone(&pids).unwrap();
    // A machine in the foreground is forgotten with its end.
    assert_eq!(user.ok(&["ps", "--all", "--json"]).trim(), "[]", "{way:?}");
    let lines = if matches!(way, Way::Timeout(_)) { 1 } else { 0 };
    assert_eq!(said.lines().count(), lines, "{way:?}: {said}");
}

fn machine(user: &User, options: &[&str]) -> Command {
    let mut command = vm::command(["--name", "m"]);
    command.args(options).args(["--", "true"]);
    let state = user.command(&[]);
    for (name, value) in state.get_envs() {
        command.env(name, value.unwrap());
    }
    command
}

#[test]
fn a_machine_that_is_being_made_ends_when_it_is_asked_to() {
    for (name, call) in CALLS {
        for way in [Way::Timeout(5), Way::Stop, Way::Kill, Way::Term] {
            let user = User::new();
            eprintln!("{name}, {way:?}");
            let seconds = match way {
                Way::Timeout(seconds) => seconds,
                _ => 100,
            };
            let timeout = ["--timeout", &seconds.to_string()];
            let command = on_slow_host(call, &machine(&user, &timeout));
            ends(&user, command, way, |pids| is_in_call(pids, call));
        }
    }
}

/// A program in place of passt starts slowly.
#[test]
fn a_network_that_does_not_start_keeps_no_machine() {
    for way in [Way::Timeout(5), Way::Stop, Way::Term] {
        let user = User::new();
        let folder = tempfile::tempdir().unwrap();
        let passt = folder.path().join("passt");
        fs::write(&passt, "#!/bin/sh\nexec sleep 1000\n").unwrap();
        fs::set_permissions(&passt, fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var_os("PATH").unwrap();
        let path = std::iter::once(folder.path().to_path_buf()).chain(std::env::split_paths(&path));
        let seconds = match way {
            Way::Timeout(seconds) => seconds,
            _ => 100,
        };
        let timeout = seconds.to_string();
        let mut command = machine(&user, &["--net", "passt", "--timeout", &timeout]);
        command.env("PATH", std::env::join_paths(path).unwrap());
        ends(&user, command, way, |pids| {
            let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm"));
            pids.iter()
                .any(|pid| name(pid).is_ok_and(|name| name == "sleep\n"))
        });
    }
}

/// Tests the other commands that start a guest.
#[test]
fn a_guest_that_is_being_made_ends_when_it_is_asked_to() {
    let mut command = program::command();
    command.args(["conformance", "--hypervisor", "process"]);
    for signal in [Signal::TERM, Signal::INT] {
        let mut child = program::Ends(on_slow_host(EXECVEAT, &command).spawn().unwrap());
        let begun = Instant::now();
        let pids = loop {
            let pids = tree::everything(child.0.id());
            if is_in_call(&pids, EXECVEAT) {
                break pids;
            }
            assert!(begun.elapsed() < THERE, "it is not stuck");
            std::thread::sleep(Duration::from_millis(5));
        };
        let asked = Instant::now();
        tree::signal(child.0.id(), signal);
        let status = program::wait_within(&mut child.0, program::PATIENCE);
        assert!(asked.elapsed() < END, "{:?}", asked.elapsed());
        assert_eq!(status.code(), Some(128 + signal.as_raw()));
        tree::wait_gone(&pids).unwrap();
    }
}

#[test]
fn a_guest_that_is_not_made_in_time_is_given_up() {
    let mut command = program::command();
    command.args(["conformance", "--hypervisor", "process", "--timeout", "2"]);
    let begun = Instant::now();
    let run = program::finish(&mut on_slow_host(EXECVEAT, &command));
    assert!(begun.elapsed() < Duration::from_secs(2) + END);
    assert_eq!(run.code, 2, "{run:?}");
    // What was left of the time.
    assert!(
        ["not done after 2 s", "not done after 1 s"]
            .iter()
            .any(|why| run.stderr.contains(why)),
        "{run:?}"
    );
}

/// Each try of `doctor` has a time limit, and `doctor` reports a slow host as bad.
#[test]
fn a_trial_that_does_not_start_is_given_up() {
    let mut command = program::command();
    command.args(["doctor", "--json"]);
    let begun = Instant::now();
    let run = program::finish(&mut on_slow_host(EXECVEAT, &command));
    assert!(
        begun.elapsed() < Duration::from_secs(20) + 2 * END,
        "{run:?}"
    );
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let guest = findings.iter().find(|f| f["name"] == "guest").unwrap();
    assert_eq!(guest["status"], "bad", "{guest}");
    let text = guest["text"].as_str().unwrap();
    // Both the trial and the start of the layer have this limit.
    assert!(
        ["not done after 20 s", "did not start in 20 s"]
            .iter()
            .any(|why| text.contains(why)),
        "{text}"
    );
    assert_eq!(
        (run.code, &report["can_run"]),
        (1, &false.into()),
        "{run:?}"
    );
}
