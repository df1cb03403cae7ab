// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests that crash, hang, lie or print nonsense: the run has failed, the monitor says why, and
//! nothing is left.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::guest::{self, End};
use paravane_tests::program::{self, Run};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const TWO_PASS: &str = "TAP version 14\n1..2\nok 1 - cpu.one\nok 2 - mmu.two\n";

/// A folder with a guest. It is also the program's folder for temporary files.
struct Scene(TempDir);

impl Scene {
    fn new(text: &str, end: End) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("odd, guest ")
            .tempdir()
            .unwrap();
        fs::write(folder.path().join("guest"), guest::build(text, end)).unwrap();
        fs::create_dir(folder.path().join("tmp")).unwrap();
        Scene(folder)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = program::command();
        command
            .args([
                "conformance",
                "--hypervisor",
                "qemu",
                "--layer",
                "none",
                "--guest",
            ])
            .arg(self.path("guest"));
        command.args(more).env("TMPDIR", self.path("tmp"));
        command
    }

    fn run(&self, more: &[&str]) -> Run {
        let run = program::finish(&mut self.command(more));
        self.is_clean();
        run
    }

    fn is_clean(&self) {
        assert_eq!(
            fs::read_dir(self.path("tmp")).unwrap().count(),
            0,
            "temporary files were left"
        );
    }
}

fn fails(text: &str, end: End, last_line: &str, parts: &[&str]) {
    let run = Scene::new(text, end).run(&["--timeout", "60"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(run.last_line(), last_line, "{run:?}");
    for part in parts {
        assert!(
            run.stdout.contains(part),
            "`{part}` is not in:\n{}",
            run.stdout
        );
    }
}

#[test]
fn a_good_run_passes() {
    let run = Scene::new(TWO_PASS, End::Exit(0x10)).run(&[]);
    assert_eq!(
        (run.code, run.last_line()),
        (0, "2 passed, 0 failed"),
        "{run:?}"
    );
    for section in ["cpu", "mmu"] {
        assert!(
            run.stdout.lines().any(|l| l.trim().starts_with(section)),
            "{}",
            run.stdout
        );
    }
}

#[test]
fn carriage_returns_and_escapes_do_not_matter() {
    let text = format!(
        "\u{1b}c\u{1b}[?7l\u{1b}[2J{}",
        TWO_PASS.replace('\n', "\r\n")
    );
    let run = Scene::new(&text, End::Exit(0x10)).run(&["--tap"]);
    assert_eq!(run.stdout, format!("{TWO_PASS}2 passed, 0 failed\n"));
}

#[test]
fn skipped_tests_are_counted() {
    let run = Scene::new(
        "TAP version 14\n1..2\nok 1 - a.b\nok 2 - a.c # SKIP one vCPU\n",
        End::Exit(0x10),
    )
    .run(&[]);
    assert_eq!(
        (run.code, run.last_line()),
        (0, "1 passed, 0 failed, 1 skipped"),
        "{run:?}"
    );
}

#[test]
fn a_failure_is_shown_with_its_comments() {
    let text =
        "# layer: none\nTAP version 14\n1..2\nok 1 - a.b\nnot ok 2 - a.c\n# expected 1, got 2\n";
    fails(
        text,
        End::Exit(0x11),
        "1 passed, 1 failed",
        &[
            "layer: none\n",
            "FAILED  a.c\n            expected 1, got 2\n",
        ],
    );
}

#[test]
fn a_crash_fails_what_did_not_run() {
    let text = "TAP version 14\n1..5\nok 1 - a.b\n";
    fails(
        text,
        End::TripleFault,
        "1 passed, 4 failed",
        &[
            "Problem: the machine was reset or switched off; 4 of 5 tests did not run\n",
            "ok 1 - a.b",
        ],
    );
}

#[test]
fn a_crash_at_once_is_a_failure() {
    fails(
        "",
        End::TripleFault,
        "0 passed, 1 failed",
        &["Problem: the machine was reset"],
    );
}

#[test]
fn words_and_exit_must_agree() {
    fails(
        TWO_PASS,
        End::Exit(0x11),
        "2 passed, 1 failed",
        &["says that a test failed"],
    );
    let lie = "TAP version 14\n1..1\nnot ok 1 - a.b\n";
    fails(
        lie,
        End::Exit(0x10),
        "0 passed, 1 failed",
        &["says that all passed"],
    );
    fails(
        TWO_PASS,
        End::Exit(0x7),
        "2 passed, 1 failed",
        &["ended with the value 0x7"],
    );
}

#[test]
fn broken_tap_is_a_failure() {
    fails(
        "TAP version 14\n1..1\nok 1 - a\nok 2 - b\n",
        End::Exit(0x10),
        "2 passed, 1 failed",
        &["more tests than"],
    );
    fails(
        "TAP version 14\n1..0\n",
        End::Exit(0x10),
        "0 passed, 1 failed",
        &["ran no test"],
    );
    fails(
        "TAP version 14\n1..1\nBail out! no memory\n",
        End::Exit(0x11),
        "0 passed, 1 failed",
        &["no memory"],
    );
}

#[test]
fn a_filter_that_matches_nothing_is_bad_input() {
    let run = Scene::new("TAP version 14\n1..0\n", End::Exit(0x10)).run(&["--filter", "nothing"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1);
    assert!(
        run.stderr.contains("`nothing`") && run.stderr.contains("--list"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_guest_that_hangs_is_ended() {
    let start = Instant::now();
    let run = Scene::new("TAP version 14\n1..2\nok 1 - a.b\n", End::Hang).run(&["--timeout", "5"]);
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!(
        (run.code, run.last_line()),
        (1, "1 passed, 1 failed"),
        "{run:?}"
    );
    assert!(
        run.stdout.contains("not ended after 5 s") && run.stdout.contains("| ok 1 - a.b"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_guest_that_never_stops_talking_is_ended() {
    let run = Scene::new("blah blah\n", End::Chatter).run(&["--timeout", "3"]);
    assert_eq!((run.code, run.last_line()), (1, "0 passed, 1 failed"));
    assert!(run.stdout.len() < 10_000, "{} bytes", run.stdout.len());
    // One line without end.
    let run = Scene::new("blah blah", End::Chatter).run(&["--timeout", "3"]);
    assert_eq!((run.code, run.last_line()), (1, "0 passed, 1 failed"));
}

#[test]
fn a_terminal_is_safe_from_the_guest() {
    let text = "TAP version 14\n1..1\nnot ok 1 - a\u{8}.b\n# \u{1b}]0;title\u{7}\u{1b}[31mred\n";
    let run = Scene::new(text, End::Exit(0x11)).run(&["--verbose"]);
    assert!(
        run.stdout.chars().all(|c| c == '\n' || !c.is_control()),
        "{:?}",
        run.stdout
    );
}

/// Starts a guest that hangs and waits until it runs. Returns the monitor and its QEMU.
fn hanging(scene: &Scene) -> (std::process::Child, u32) {
    let mut child = scene
        .command(&["--tap"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.stdout.as_mut().unwrap();
    let patience = Timespec {
        tv_sec: 120,
        tv_nsec: 0,
    };
    let mut pipes = [PollFd::new(&*output, PollFlags::IN)];
    let ready = poll(&mut pipes, Some(&patience)).unwrap();
    assert!(ready > 0, "the guest says nothing");
    output.read_exact(&mut [0]).unwrap();
    let id = child.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    (child, children.trim().parse().unwrap())
}

fn signal(process: u32, name: &str) {
    assert!(
        Command::new("sh")
            .args(["-c", &format!("kill -{name} {process}")])
            .status()
            .unwrap()
            .success()
    );
}

fn gone(process: u32) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    let path = format!("/proc/{process}");
    while Path::new(&path).exists() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

#[test]
fn the_machine_ends_with_the_monitor() {
    let scene = Scene::new("TAP version 14\n1..1\n", End::Hang);
    for (name, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let (mut child, qemu) = hanging(&scene);
        signal(child.id(), name);
        assert_eq!(
            program::wait_within(&mut child, program::PATIENCE).code(),
            Some(code),
            "{name}"
        );
        assert!(gone(qemu), "{name}: QEMU goes on");
        scene.is_clean();
    }
    // A killed monitor cannot clean up, but its machine must end.
    let (mut child, qemu) = hanging(&scene);
    signal(child.id(), "KILL");
    program::wait_within(&mut child, program::PATIENCE);
    assert!(gone(qemu), "KILL: QEMU goes on");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let scene = Scene::new(
        &"# talk\n"
            .repeat(5000)
            .replacen("# talk", "TAP version 14", 1),
        End::Chatter,
    );
    let (mut child, qemu) = hanging(&scene);
    drop(child.stdout.take());
    program::wait_within(&mut child, program::PATIENCE);
    assert!(gone(qemu));
    scene.is_clean();
}
