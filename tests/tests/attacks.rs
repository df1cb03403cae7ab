// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks by a guest whose kernel is hostile: on the host, on other machines of its user, and on
//! the end of its own machine. Each is tried on hosts with all features that the sandbox can use,
//! and on hosts that lack some. The guest's part is in `guest/conformance/tests/hostile_attack.c`.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::by_length;
use paravane_tests::host_without::{Host, Programs};
use paravane_tests::over::Over;
use paravane_tests::planted::{self, Planted};
use paravane_tests::program::{self, Run};
use paravane_tests::sandbox::{Seen, adopt_orphans};
use paravane_tests::tree;
use paravane_tests::victims::Victims;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For `make test-release`: the tries of every attack on each host.
const LONG_TRIES: u64 = 200;
/// Seconds until a machine that hangs is ended.
const TIMEOUT: &str = "20";
/// Processes that are created during the attack on their words.
const HELD: u64 = 32;
/// A planted fault is found within this many tries.
const PLANTED_TRIES: u32 = 10;
/// The end of a machine that makes a call which the filter does not admit.
const NOT_ADMITTED: &str = "was killed by signal 31";
/// The names of the kinds of host in reports.
const MOST: usize = 6;

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    adopt_orphans();
    guard
}

fn tries(short: u64) -> u64 {
    by_length(short, LONG_TRIES)
}

fn machine(programs: &Programs, host: Host, words: &[String]) -> Command {
    let mut command = programs.on(host, "paravane");
    command.args([
        "conformance",
        "--hypervisor",
        "process",
        "--cpus",
        "2",
        "--spaces",
        "40",
    ]);
    for word in words {
        command.args(["--append", word]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// Runs an attacking machine to its end, and samples it. Only these children of this
/// process may be left.
fn attack(programs: &Programs, host: Host, words: &[String], others: &[u32]) -> (Run, Seen) {
    watched(machine(programs, host, words), others)
}

/// Runs this machine to its end, and samples it. Only these children of this process may be left.
fn watched(mut machine: Command, others: &[u32]) -> (Run, Seen) {
    let child = machine.args(["--timeout", TIMEOUT]).spawn().unwrap();
    let (monitor, over) = (child.id(), AtomicBool::new(false));
    let (run, mut seen) = std::thread::scope(|scope| {
        let guard = Over(&over);
        let watcher = scope.spawn(|| Seen::watch(monitor, &over));
        let run = program::finish_child(child);
        drop(guard);
        (run, watcher.join().unwrap())
    });
    seen.nothing_is_left(others);
    let problems = run
        .stdout
        .lines()
        .filter(|l| l.contains("Problem: "))
        .count();
    if run.code != 1
        || problems != 1
        || run.stderr.contains("panicked")
        || run.stdout.contains("panicked")
    {
        seen.wrong
            .push(format!("it did not end with one problem: {run:?}"));
    }
    (run, seen)
}

/// The number that the guest printed after a word.
fn said(run: &Run, word: &str) -> Option<u64> {
    let rest = run
        .stdout
        .lines()
        .find_map(|l| l.trim().strip_prefix(word))?;
    rest.split([' ', ',']).find(|w| !w.is_empty())?.parse().ok()
}

/// The successes of an attack, over all hosts.
struct Verdict {
    what: &'static str,
    reports: Vec<String>,
}

impl Verdict {
    fn new(what: &'static str) -> Self {
        Verdict {
            what,
            reports: Vec::new(),
        }
    }

    /// Tries it on a host. Each try returns what was wrong.
    fn on(&mut self, host: Host, tries: u64, mut attempt: impl FnMut(u64) -> Vec<String>) {
        let (mut bad, mut reports) = (0, Vec::new());
        for number in 0..tries {
            let wrong = attempt(number);
            bad += u64::from(!wrong.is_empty());
            for what in &wrong {
                println!("{host:?}, try {number}: {what}");
            }
            reports.extend(
                wrong
                    .into_iter()
                    .map(|w| format!("{host:?}, try {number}: {w}")),
            );
        }
        println!("{}, {host:?}: {tries} tries, {bad} succeeded", self.what);
        reports.truncate(MOST);
        self.reports.extend(reports);
    }

    /// Checks that all tries have failed.
    fn give(self) {
        assert!(
            self.reports.is_empty(),
            "{}: {:#?}",
            self.what,
            self.reports
        );
    }
}

/// A storm of signals at the zygote while it creates processes: no process may stay without a
/// filter, or run code of the guest.
#[test]
fn a_burst_at_the_zygote_gives_no_process_without_a_filter() {
    let _alone = alone();
    let programs = Programs::new(&[]);
    let mut verdict = Verdict::new("burst at the zygote");
    for host in Host::all() {
        let (mut hits, mut made) = (0, 0);
        verdict.on(host, tries(4), |seed| {
            let folder = tempfile::tempdir().unwrap();
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
            let marker = format!("marker={}", folder.path().join("marker").display());
            let all = words(&["hostile=burst", &marker, &format!("seed={seed}")]);
            let (run, mut seen) = attack(&programs, host, &all, &[]);
            if fs::read_dir(folder.path()).unwrap().count() > 0 {
                seen.wrong
                    .push("the guest has made a file on the host".to_string());
            }
            made += seen.spaces.len();
            let zygote = seen.zygote_inside.map(u64::from);
            // If the filter refuses signals to the zygote, the first try ends the machine.
            let found = zygote.is_some() && said(&run, "zygote") == zygote;
            hits += u64::from(found || run.stdout.contains(NOT_ADMITTED));
            seen.wrong
        });
        println!("{host:?}: {made} processes, the zygote was found, or out of reach, {hits} times");
        assert!(hits > 0, "{host:?}: the attack never found the zygote");
    }
    verdict.give();
}

/// The words of processes that are not ready keep their values. Returns what was wrong after that.
fn hold(machine: Command) -> Vec<String> {
    let (run, mut seen) = watched(machine, &[]);
    if said(&run, "held:") != Some(HELD) {
        seen.wrong
            .push(format!("of {HELD} processes not all were made: {run:?}"));
    }
    if !run
        .stdout
        .contains("Problem: the process of an address space ended with exit code 7")
    {
        seen.wrong
            .push(format!("the end of a process was not noticed: {run:?}"));
    }
    seen.wrong
}

/// Signals to all threads of the machine itself: it must continue.
fn self_burst(machine: Command) -> Vec<String> {
    let (run, mut seen) = watched(machine, &[]);
    if !run.stdout.contains("stood: vCPU 0 took ") && !run.stdout.contains(NOT_ADMITTED) {
        seen.wrong.push(format!("the machine was ended: {run:?}"));
    }
    seen.wrong
}

/// With each fault that is planted for an attack, one of a few tries succeeds.
fn finds_planted_faults(test: &str, mode: &str, attempt: fn(Command) -> Vec<String>) {
    let _alone = alone();
    let programs = Programs::new(&[]);
    let host = Host::all()[0];
    let faults = planted::found_by(test).unwrap();
    assert!(!faults.is_empty(), "no fault is planted for {test}");
    for fault in faults {
        let layer = Planted::build(&fault).unwrap();
        let succeeds = (0..PLANTED_TRIES).any(|_| {
            let mut machine = machine(&programs, host, &words(&[mode]));
            machine.arg("--rom").arg(layer.rom());
            !attempt(machine).is_empty()
        });
        assert!(succeeds, "{fault}: {PLANTED_TRIES} tries have failed");
    }
}

#[test]
fn held_words_find_planted_faults() {
    finds_planted_faults("attack_hold", "hostile=hold", hold);
}

#[test]
fn a_burst_at_itself_finds_planted_faults() {
    finds_planted_faults("attack_self_burst", "hostile=self-burst", self_burst);
}

/// The word that reports a process as ready stays 0: the hypervisor must still create the others,
/// and notice the end of one.
#[test]
fn a_process_that_never_reports_ready_blocks_nothing() {
    let _alone = alone();
    let programs = Programs::new(&[]);
    let mut verdict = Verdict::new("held words");
    for host in Host::all() {
        verdict.on(host, tries(2), |_| {
            hold(machine(&programs, host, &words(&["hostile=hold"])))
        });
    }
    verdict.give();
}

/// Endless signals to all of its own threads exhaust no stack.
#[test]
fn a_machine_survives_a_burst_at_itself() {
    let _alone = alone();
    let programs = Programs::new(&[]);
    let mut verdict = Verdict::new("burst at itself");
    for host in Host::all() {
        verdict.on(host, tries(1), |_| {
            self_burst(machine(&programs, host, &words(&["hostile=self-burst"])))
        });
    }
    verdict.give();
}

/// Valid calls do not end the machine: interrupts of all vCPUs and alarms, as fast as possible.
#[test]
fn interrupts_without_end_exhaust_no_stack() {
    let _alone = alone();
    let programs = Programs::new(&[]);
    for host in Host::all() {
        let (run, seen) = attack(&programs, host, &words(&["hostile=interrupts"]), &[]);
        assert!(seen.wrong.is_empty(), "{host:?}: {:#?}", seen.wrong);
        assert!(
            run.stdout.contains("stood: vCPU 0 took "),
            "{host:?}: {run:?}"
        );
    }
}

/// Nothing outside the machine can be signalled: the processes of another machine, its monitor,
/// other processes of the same user.
#[test]
fn neighbours_are_out_of_reach() {
    let _alone = alone();
    let programs = Programs::new(&["victim"]);
    let mut verdict = Verdict::new("burst at a neighbour");
    for host in Host::all() {
        verdict.on(host, 1, |_| {
            let victims = Victims::start(&programs, host);
            let ids = victims.ids();
            let mut wrong = Vec::new();
            for number in 0..usize::try_from(tries(4)).unwrap() {
                let (name, pid) = ids[number % ids.len()];
                let all = words(&["hostile=neighbour", &format!("victim={pid}"), "ms=300"]);
                let (run, seen) = attack(&programs, host, &all, &victims.children());
                // If the filter refuses all signals, the machine ends at the first one and prints
                // nothing.
                let reached = said(&run, "neighbour: reached").unwrap_or(0);
                if reached > 0 {
                    wrong.push(format!("{name} was reached {reached} times"));
                }
                wrong.extend(seen.wrong);
            }
            wrong.extend(victims.end());
            wrong
        });
    }
    verdict.give();
}

/// The launcher takes from the host what it claims to take.
#[test]
fn hosts_lack_what_they_are_to_lack() {
    let _alone = alone();
    let programs = Programs::new(&[]);
    for host in Host::all() {
        let run = program::finish(programs.on(host, "paravane").arg("doctor"));
        let has = |check: &str| {
            run.stdout
                .lines()
                .any(|l| l.starts_with("ok ") && l.contains(check))
        };
        if matches!(host, Host::NoNamespaces | Host::Neither) {
            assert!(!has(" user_namespaces "), "{host:?}: {run:?}");
        }
        if matches!(host, Host::NoLandlock | Host::Neither) {
            assert!(!has(" landlock "), "{host:?}: {run:?}");
        }
        assert!(has(" seccomp_filter "), "{host:?}: {run:?}");
    }
}

/// A process without a filter is found, whether it waits or runs.
#[test]
fn a_process_without_a_filter_is_found() {
    // The other tests would take its children for leftovers.
    let _alone = alone();
    for script in ["sleep 60", "sh -c 'while :; do :; done'"] {
        // The first shell stands for the monitor, the second one for its zygote. The script is the
        // zygote's child and starts nothing, so `tree::everything` has all of them.
        let inner = format!("{script}; true");
        let shells = format!("sh -c \"{inner}\"; true");
        let shells = program::Ends(Command::new("sh").args(["-c", &shells]).spawn().unwrap());
        let mut seen = Seen::default();
        let deadline = Instant::now() + Duration::from_secs(20);
        while seen.wrong.is_empty() && Instant::now() < deadline {
            seen.look(shells.0.id());
            std::thread::sleep(Duration::from_millis(2));
        }
        let all = tree::everything(shells.0.id());
        for pid in all.into_iter().rev() {
            tree::signal(pid, Signal::KILL);
        }
        assert!(!seen.wrong.is_empty(), "{script}: {seen:?}");
        println!("{script}: {}", seen.wrong[0]);
    }
}
