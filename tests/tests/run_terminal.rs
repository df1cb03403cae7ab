// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane run` at a terminal, which must have its old settings afterwards.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::screen::Screen;
use paravane_tests::{tree, vm, wait};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// The time that a command has to end when its machine is asked to.
const GRACE: Duration = Duration::from_secs(3);

fn start(options: &[&str]) -> Screen {
    Screen::start(vm::command(options))
}

#[test]
fn a_shell() {
    let mut screen = start(&[]);
    screen.has_a_shell();
    screen.enter("echo $TERM-$((6 * 7))\r");
    screen.until("vt100-42");
    screen.enter("exit 3\r");
    assert_eq!(screen.end(), 3);
}

/// Whenever the size of a terminal changes while a machine starts, its command gets the new one.
#[test]
fn a_terminal_that_is_resized_while_the_machine_starts() {
    let script = "for i in $(seq 100); do
            test \"$(stty size)\" = '50 120' && break; sleep .1
        done; stty size";
    for delay in (0..500).step_by(50) {
        let mut screen = start(&["--tty", "--", "sh", "-c", script]);
        thread::sleep(Duration::from_millis(delay));
        screen.resize(120, 50);
        screen.until("50 120");
        assert_eq!(screen.end(), 0, "after {delay} ms");
    }
}

/// Programs such as gpg-agent, wall and screen open their terminal by its name.
#[test]
fn a_terminal_is_opened_by_its_name() {
    let script = "echo by-name > $(tty) && echo $((6 * 7)) < $(tty)";
    let mut screen = start(&["--tty", "--", "sh", "-c", script]);
    screen.until("by-name");
    screen.until("42");
    assert_eq!(screen.end(), 0);
}

#[test]
fn left_with_its_key() {
    let mut screen = start(&["--tty", "--", "sh", "-c", "echo ready; cat"]);
    screen.until("ready");
    screen.enter("\x1d");
    assert_eq!(screen.end(), 0);
}

/// A machine whose command ignores the request to end.
fn deaf() -> Screen {
    let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let mut screen = start(&["--tty", "--", "sh", "-c", script]);
    screen.until("ready");
    screen
}

/// Whether a process has not yet taken a SIGTERM: two that it has not are one.
fn is_pending(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let pending = ["SigPnd:\t", "ShdPnd:\t"].map(|field| {
        let bits = status.lines().find_map(|line| line.strip_prefix(field));
        u64::from_str_radix(bits.unwrap(), 16).unwrap()
    });
    (pending[0] | pending[1]) >> (Signal::TERM.as_raw() - 1) & 1 == 1
}

#[test]
fn ended_from_outside() {
    let mut screen = deaf();
    let asked = Instant::now();
    screen.signal(Signal::TERM);
    assert_eq!(screen.end(), 128 + 15);
    assert!(asked.elapsed() >= GRACE, "{:?}", asked.elapsed());
    // The second signal ends it at once.
    let mut screen = deaf();
    let asked = Instant::now();
    screen.signal(Signal::TERM);
    let monitor = screen.id();
    wait::until("the monitor has the signal", GRACE, || !is_pending(monitor));
    screen.signal(Signal::TERM);
    assert_eq!(screen.end(), 128 + 15);
    assert!(asked.elapsed() < GRACE, "{:?}", asked.elapsed());
}

/// What a command does at SIGHUP, in a folder of the host.
const SAVE: &str = "trap 'sleep .5; echo saved >/v/f; exit 5' HUP; echo ready
    while :; do sleep .1; done";

/// A window that is closed, or a connection of ssh that breaks: the command gets SIGHUP and time.
#[test]
fn a_closed_terminal_is_a_signal() {
    for options in [&["--tty"][..], &[], &["--restart", "always"]] {
        let folder = tempfile::tempdir().unwrap();
        let volume = format!("{}:/v", folder.path().display());
        let words = ["--volume", &volume, "--", "sh", "-c", SAVE];
        let mut screen = start(&[options, &words].concat());
        screen.until("ready");
        assert_eq!(screen.close(), 5, "{options:?}");
        let saved = fs::read_to_string(folder.path().join("f"));
        assert_eq!(saved.unwrap(), "saved\n", "{options:?}");
    }
    // A command that does not end.
    let script = "trap '' HUP; echo ready; while :; do sleep 1; done";
    let mut screen = start(&["--tty", "--", "sh", "-c", script]);
    screen.until("ready");
    assert_eq!(screen.close(), 128 + 1);
}

#[test]
fn a_panic_leaves_the_terminal_in_order() {
    let mut screen = start(&[]);
    screen.until("root@paravane");
    screen.enter("echo c > /proc/sysrq-trigger\r");
    screen.until("the guest's kernel panicked");
    assert_eq!(screen.end(), 1);
}

/// Group, session and terminal of a process.
fn places(pid: u32) -> [i64; 3] {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    let numbers: Vec<&str> = rest.split(' ').skip(2).take(3).collect();
    [0, 1, 2].map(|number| numbers[number].parse().unwrap())
}

/// No process that runs a guest can read the monitor's terminal, or put input into it. All have the
/// monitor's session, since the host may share processors among sessions.
#[test]
fn processes_of_a_guest_have_no_terminal() {
    let mut screen = start(&["--tty", "--", "sh", "-c", "echo ready; cat"]);
    screen.until("ready");
    let monitor = screen.id();
    let [group, session, terminal] = places(monitor);
    assert_ne!(terminal, 0);
    // Another child puts the terminal in order if the monitor is killed.
    let parents = tree::children(monitor).into_iter();
    let zygotes: Vec<u32> = parents.filter(|&p| !tree::children(p).is_empty()).collect();
    let spaces = zygotes.iter().flat_map(|&zygote| tree::children(zygote));
    assert!(!zygotes.is_empty());
    let all = zygotes.iter().copied().chain(spaces);
    let seen: BTreeSet<[i64; 3]> = all.map(places).collect();
    for [theirs, of, terminal] in seen {
        assert!(
            theirs != group && of == session,
            "{theirs} in {of}, not {group} in {session}"
        );
        assert_eq!(terminal, 0);
    }
    screen.enter("\x1d");
    assert_eq!(screen.end(), 0);
}
