// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals of a machine's processes reach that machine only, whichever way the host offers:
//! Landlock, PID namespaces, or neither. Signals to the monitor still arrive, and machines end as
//! usual.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::host_without::{NOBODY, Programs};
use paravane_tests::lines::Lines;
use paravane_tests::program::{self, Ends, Run, finish};
use paravane_tests::{tree, vm};
use rustix::process::{Signal, geteuid};
use std::fs;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The way that confines signals, and what the host must lack for it to be chosen.
const WAYS: [(&str, &str); 3] = [
    ("landlock", "nothing"),
    ("pid-namespace", "landlock"),
    ("monitor", "namespaces,landlock"),
];
/// So far above the process ids of the victims are the attackers and their parents.
const NEAR: u32 = 200;
/// The most time for what takes no time.
const PATIENCE: Duration = Duration::from_secs(20);

static ALONE: Mutex<()> = Mutex::new(());

fn users() -> Vec<u32> {
    if geteuid().is_root() {
        vec![0, NOBODY]
    } else {
        vec![geteuid().as_raw()]
    }
}

/// Runs a test in each way, as each user.
fn each_way(test: impl Fn(&str, &Launcher)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = Programs::new(&[]);
    let mut failed = Vec::new();
    for user in users() {
        for (way, lacks) in WAYS {
            let launcher = Launcher {
                programs: &programs,
                lacks,
                user,
            };
            let told = finish(&mut launcher.command(&["doctor", "--json"]));
            let doctor: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
            let findings = doctor["findings"].as_array().unwrap();
            let signals = findings
                .iter()
                .find(|finding| finding["name"] == "signals")
                .unwrap();
            if signals["value"] != way {
                eprintln!("user {user}: this host has {signals}, not {way}");
                // Every host has the last way.
                assert!(way != "monitor", "{doctor}");
                continue;
            }
            // The others are still tried.
            if catch_unwind(AssertUnwindSafe(|| test(way, &launcher))).is_err() {
                failed.push((way, user));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

struct Launcher<'a> {
    programs: &'a Programs,
    lacks: &'static str,
    user: u32,
}

impl Launcher<'_> {
    /// The program on such a host.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.programs.path("without"));
        command.args([self.lacks, &self.user.to_string()]);
        command.arg(self.programs.path("paravane")).args(words);
        command.stdin(Stdio::null()).current_dir("/");
        command
    }

    fn conformance(&self, words: &[&str]) -> Command {
        let mut command = self.command(&["conformance", "--hypervisor", "process"]);
        command.args(words);
        command
    }

    /// A machine that is idle, and all of its processes.
    fn idle(&self) -> (Ends, Vec<u32>) {
        let mut command =
            self.conformance(&["--cpus", "2", "--timeout", "300", "--append", "idle=200"]);
        let mut monitor = Ends(
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        // Before the guest runs, the end of a process is a failed start.
        let mut said = Lines::of(monitor.0.stdout.take());
        let runs = said
            .each_within(program::PATIENCE)
            .any(|line| line.contains("vcpus: "));
        assert!(runs, "it does not start");
        said.drain();
        let deadline = Instant::now() + PATIENCE;
        while tree::spaces(monitor.0.id()).len() < 4 {
            assert!(Instant::now() < deadline, "it does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        let all = tree::everything(monitor.0.id());
        (monitor, all)
    }
}

/// Whether SIGURG is pending for a process. It is stopped, so it keeps what is sent to it.
fn has_signal(pid: u32) -> bool {
    const URG: u64 = 1 << 22;
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let statuses =
        tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap());
    statuses.into_iter().any(|status| {
        let sets = status.lines().filter_map(|line| {
            let set = line
                .strip_prefix("SigPnd:")
                .or_else(|| line.strip_prefix("ShdPnd:"))?;
            u64::from_str_radix(set.trim(), 16).ok()
        });
        sets.fold(0, |all, set| all | set) & URG != 0
    })
}

/// Stops them, the monitor first, so that no message is on its way between them.
fn stop(all: &[u32]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for &pid in all {
            tree::signal(pid, Signal::STOP);
        }
        let stopped = |pid: &u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            status.contains("State:\tT")
        };
        while !all.iter().all(stopped) {
            assert!(Instant::now() < deadline, "they do not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
        if !all.iter().any(|&pid| has_signal(pid)) {
            return;
        }
        resume(all);
        assert!(
            Instant::now() < deadline,
            "they signal each other all the time"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn resume(all: &[u32]) {
    for &pid in all.iter().rev() {
        tree::signal(pid, Signal::CONT);
    }
}

/// A program of that user that counts SIGURG.
fn listener(user: u32) -> Ends {
    let mut command = Command::new("sh");
    command.args(["-c", "trap : URG; echo; while :; do sleep 1; done"]);
    let mut child: Child = command
        .uid(user)
        .gid(user)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Lines::of(child.stdout.take());
    assert_eq!(said.next_within(PATIENCE), "\n");
    said.drain();
    Ends(child)
}

/// A hostile guest sends the vCPUs' signal to every process with a close id.
fn attack(launcher: &Launcher<'_>, first: u32, last: u32) -> Run {
    let words = [format!("first={first}"), format!("last={last}")];
    let machine = launcher.conformance(&[
        "--cpus",
        "2",
        "--timeout",
        "60",
        "--append",
        "hostile=signals",
        "--append",
        "count=3",
        "--append",
        &words[0],
        "--append",
        &words[1],
    ]);
    // Its ancestors are no way out either.
    let mut command = Command::new("sh");
    command.args(["-c", "trap 'echo a signal >&2' URG; \"$@\"; exit $?", "sh"]);
    command.arg(machine.get_program()).args(machine.get_args());
    command
        .uid(launcher.user)
        .gid(launcher.user)
        .stdin(Stdio::null())
        .current_dir("/");
    finish(&mut command)
}

/// Counts of signals that reached a process, were refused, or had no target: in each way.
fn counts(run: &Run) -> Option<[u64; 3]> {
    let line = run
        .stdout
        .lines()
        .find_map(|line| line.split_once("signals: "))?
        .1;
    let mut numbers = line.split(' ').filter_map(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

#[test]
fn no_signal_leaves_a_machine() {
    each_way(|way, launcher| {
        let what = format!("{way}, user {}", launcher.user);
        let other = listener(launcher.user);
        let (mut victim, all) = launcher.idle();
        let victims: Vec<u32> = all.iter().copied().chain([other.0.id()]).collect();
        std::thread::sleep(Duration::from_secs(1));
        stop(&victims);
        let (first, last) = (
            *victims.iter().min().unwrap(),
            *victims.iter().max().unwrap(),
        );
        let run = attack(launcher, first, last + NEAR);
        for &pid in &victims {
            assert!(
                !has_signal(pid),
                "{what}: process {pid} got a signal: {run:?}"
            );
        }
        assert!(!run.stderr.contains("a signal"), "{what}: {run:?}");
        match (way, counts(&run)) {
            // These exist: the victims, the attacker's monitor and its ancestors.
            ("landlock", Some([_, refused, _])) => assert!(refused > 10, "{what}: {run:?}"),
            ("pid-namespace", Some([_, refused, missing])) => {
                assert!(refused == 0 && missing > 1000, "{what}: {run:?}");
            }
            // SIGSYS, at the first signal.
            ("monitor", None) => assert!(
                run.stdout.contains("was killed by signal 31"),
                "{what}: {run:?}"
            ),
            (_, counts) => panic!("{what}: {counts:?} {run:?}"),
        }
        // The check can fail: it sees a signal that arrives.
        for &pid in [all.last().unwrap(), &other.0.id()] {
            tree::signal(pid, Signal::URG);
            assert!(has_signal(pid), "{what}: {pid}");
        }
        resume(&victims);
        tree::signal(victim.0.id(), Signal::TERM);
        assert_eq!(
            program::wait_within(&mut victim.0, PATIENCE).code(),
            Some(143),
            "{what}"
        );
        tree::wait_gone(&all).unwrap();
    });
}

#[test]
fn vcpus_interrupt_each_other() {
    each_way(|way, launcher| {
        for filter in ["apic.send_ipi*", "lock.*", "smp.*"] {
            let run = finish(&mut launcher.conformance(&[
                "--cpus",
                "4",
                "--timeout",
                "200",
                "--filter",
                filter,
            ]));
            let last = run.last_line().to_string();
            assert!(
                run.code == 0 && last.contains(" 0 failed") && !last.starts_with("0 "),
                "{way}, user {}, {filter}: {run:?}",
                launcher.user
            );
        }
    });
}

#[test]
fn linux_has_its_processors() {
    each_way(|way, launcher| {
        // The kernel that was built is in root's cache.
        if launcher.user != geteuid().as_raw() {
            return;
        }
        let machine = vm::command(["--cpus", "2", "--timeout", "120"]);
        let words: Vec<_> = machine
            .get_args()
            .map(|word| word.to_str().unwrap())
            .collect();
        let mut command = launcher.command(&words);
        let script = "grep -c ^processor /proc/cpuinfo; for n in 1 2 3; do (for i in 1 2 3 4 5; \
            do sleep 0.01; done) & done; wait";
        let run = finish(command.args(["--", "sh", "-c", script]));
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (0, "2\n"),
            "{way}: {run:?}"
        );
    });
}

#[test]
fn nothing_is_left_after_any_end_of_a_machine() {
    each_way(|way, launcher| {
        for (signal, of_monitor) in [
            (Signal::TERM, true),
            (Signal::KILL, true),
            (Signal::KILL, false),
        ] {
            let (mut monitor, all) = launcher.idle();
            let whom = if of_monitor { all[0] } else { all[1] };
            tree::signal(whom, signal);
            let deadline = Instant::now() + Duration::from_secs(5);
            while monitor.0.try_wait().unwrap().is_none() {
                assert!(Instant::now() < deadline, "{way}: {signal:?} {whom}");
                std::thread::sleep(Duration::from_millis(5));
            }
            tree::wait_gone(&all).unwrap();
        }
    });
}

#[test]
fn one_process_that_is_killed_ends_all() {
    each_way(|way, launcher| {
        let (mut monitor, all) = launcher.idle();
        tree::signal(*all.last().unwrap(), Signal::KILL);
        assert_eq!(
            program::wait_within(&mut monitor.0, PATIENCE).code(),
            Some(1),
            "{way}"
        );
        tree::wait_gone(&all).unwrap();
    });
}
