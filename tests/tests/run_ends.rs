// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine ends when it is asked to, whatever its devices do: work through a queue that feeds
//! itself, or wait for a file of the host. It ends whether or not a process reads its output.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::by_length;
use paravane_tests::lines::Lines;
use paravane_tests::{linux, program, source_root, tree, vm, wait};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The most time from the request to the end.
const END: Duration = Duration::from_secs(5);

/// How a machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// `--timeout`, in seconds.
    Timeout(u64),
    /// `paravane stop`.
    Stop,
    /// A signal to its monitor.
    Term,
    /// The guest ends it.
    Itself,
}

/// The files of a machine: its kernel, a disk, a state folder, a folder for temporary files.
struct Scene(TempDir);

impl Scene {
    fn new() -> Self {
        let scene = Scene(tempfile::tempdir().unwrap());
        fs::write(scene.path("guest"), paravane_blobs::CONFORMANCE_GUEST).unwrap();
        fs::write(scene.path("disk"), feed()).unwrap();
        for folder in ["tmp", "state"] {
            fs::create_dir(scene.path(folder)).unwrap();
        }
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self) -> Command {
        let mut command = program::command();
        command
            .env("XDG_STATE_HOME", self.path("state"))
            .env("TMPDIR", self.path("tmp"));
        command
    }

    /// A machine whose disk feeds itself. Returns when the disk does so.
    fn start(&self, way: Way) -> Machine {
        let mut command = self.program();
        command.args([
            "run",
            "--name",
            "m",
            "--verbose",
            "--append",
            "hostile=feed",
        ]);
        if way == Way::Itself {
            command.args(["--append", "leave=1"]);
        }
        let seconds = if let Way::Timeout(seconds) = way {
            seconds
        } else {
            120
        };
        command.arg("--timeout").arg(seconds.to_string());
        command.arg("--kernel").arg(self.path("guest"));
        command
            .arg("--disk")
            .arg(format!("{}:ro", self.path("disk").display()));
        command.args(["--", "true"]);
        let mut monitor = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = Lines::of(monitor.stderr.take());
        let monitor = program::Ends(monitor);
        let before: Vec<String> = said
            .each_within(program::LONGEST)
            .take_while(|line| !line.contains("the disk feeds itself"))
            .collect();
        Machine {
            pids: tree::everything(monitor.0.id()),
            monitor,
            before,
            rest: said,
        }
    }

    /// The records of machines.
    fn machines(&self) -> serde_json::Value {
        let run = program::finish(self.program().args(["ps", "--all", "--json"]));
        assert_eq!(run.code, 0, "{run:?}");
        serde_json::from_str(&run.stdout).unwrap()
    }
}

/// A machine that runs.
struct Machine {
    monitor: program::Ends,
    /// Its processes.
    pids: Vec<u32>,
    /// Its output until its disk fed itself, and after that.
    before: Vec<String>,
    rest: Lines,
}

/// The contents of the disk, described in `guest/conformance/tests/hostile_queue.c`.
fn feed() -> Vec<u8> {
    let mut disk = Vec::new();
    for sector in 0..256u64 {
        let index = u16::try_from((256 * (sector + 1) + 1) & 0xffff).unwrap();
        let mut bytes = vec![0; 2];
        bytes.extend(index.to_le_bytes());
        bytes.extend(((sector + 1) % 256).to_le_bytes());
        bytes.resize(512, 0);
        disk.extend(bytes);
    }
    disk
}

fn ends(way: Way) {
    let scene = Scene::new();
    // Build the program now, outside of the time limit.
    let _ = program::path();
    let begun = Instant::now();
    let Machine {
        mut monitor,
        pids,
        before,
        mut rest,
    } = scene.start(way);
    assert!(
        pids.len() > 2 || way == Way::Itself,
        "{way:?}: the disk has not fed itself: {before:?}"
    );
    let asked = match way {
        Way::Timeout(seconds) => begun + Duration::from_secs(seconds),
        _ => Instant::now(),
    };
    let expected = match way {
        Way::Timeout(_) => 124,
        Way::Stop => {
            let stop = program::finish(scene.program().args(["stop", "m"]));
            assert_eq!((stop.code, stop.stdout.as_str()), (0, "m\n"), "{stop:?}");
            143
        }
        Way::Term => {
            tree::signal(monitor.0.id(), Signal::TERM);
            143
        }
        // Its command has never run.
        Way::Itself => 1,
    };
    let deadline = asked.max(Instant::now()) + 2 * END;
    let status = loop {
        if let Some(status) = monitor.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "{way:?}: it has not ended");
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = asked.elapsed();
    let rest: Vec<String> = rest.each_within(program::PATIENCE).collect();
    assert_eq!(
        status.code(),
        Some(expected),
        "{way:?}: {before:?} {rest:?}"
    );
    assert!(took < END, "{way:?}: {took:?}");
    tree::wait_gone(&pids).unwrap();
    // A machine in the foreground is removed at its end.
    assert_eq!(scene.machines(), serde_json::json!([]), "{way:?}");
    assert_eq!(
        fs::read_dir(scene.path("tmp")).unwrap().count(),
        0,
        "{way:?}"
    );
}

/// Data of a disk that is read over its own ring gives the device endless work, even without a
/// guest.
#[test]
fn a_queue_that_feeds_itself_keeps_no_machine() {
    let rounds = by_length(1, 50);
    for _ in 0..rounds {
        for way in [Way::Timeout(20), Way::Stop, Way::Term, Way::Itself] {
            ends(way);
        }
    }
}

/// Holds a lease on a file, so that an open waits up to 45 s, until the host's kernel breaks the
/// lease.
struct Lease(Child);

impl Lease {
    fn new(holder: &Path, file: &Path) -> Self {
        let mut child = Command::new(holder)
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let held = program::first_line(&mut child);
        assert_eq!(held, "held\n");
        Lease(child)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A device that waits for the host cannot end. The monitor does not wait for it.
#[test]
fn a_file_that_does_not_come_keeps_no_machine() {
    let folder = tempfile::tempdir().unwrap();
    let (shared, holder) = (folder.path().join("shared"), folder.path().join("lease"));
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("slow"), "slow\n").unwrap();
    linux::compile(&source_root().join("tests/guest/lease"), &holder);
    let lease = Lease::new(&holder, &shared.join("slow"));
    let volume = format!("{}:/x", shared.display());
    // Not into the pipe of the first word: sendfile() would hold it until the file comes, and the
    // agent could not read the word.
    let script = "echo on; cat /x/slow >/dev/null & wait";
    let mut monitor = vm::command([
        "--volume",
        &volume,
        "--timeout",
        "60",
        "--",
        "sh",
        "-c",
        script,
    ])
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    let line = program::first_line(&mut monitor);
    assert_eq!(line, "on\n");
    // A thread waits for the file.
    let holder = lease.0.id().to_string();
    wait::until(
        "the request has reached the host",
        program::PATIENCE,
        || {
            let locks = fs::read_to_string("/proc/locks").unwrap();
            // 1: LEASE  BREAKING  READ  PID ...
            locks.lines().any(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words[1..3] == ["LEASE", "BREAKING"] && words[4] == holder
            })
        },
    );
    let pids = tree::everything(monitor.id());
    let asked = Instant::now();
    tree::signal(monitor.id(), Signal::TERM);
    let status = program::wait_within(&mut monitor, program::PATIENCE);
    let took = asked.elapsed();
    assert_eq!(status.code(), Some(143));
    assert!(took < END, "{took:?}");
    tree::wait_gone(&pids).unwrap();
}

/// Standard error may have no reader: the guest fills the pipe.
#[test]
fn a_reader_that_does_not_read_keeps_no_machine() {
    let kernel = "while :; do echo 0123456789012345678901234567890123456789 > /dev/kmsg; done";
    let ways: [(&[&str], Way); 3] = [
        (
            &["--timeout", "3", "--", "sh", "-c", "yes >&2"],
            Way::Timeout(3),
        ),
        (
            &["--verbose", "--timeout", "3", "--", "sh", "-c", kernel],
            Way::Timeout(3),
        ),
        (
            &["--verbose", "--timeout", "60", "--", "sh", "-c", kernel],
            Way::Term,
        ),
    ];
    let running = ways.map(|(args, way)| {
        let begun = Instant::now();
        let mut monitor = vm::command(args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Held open, but never read.
        let pipe = monitor.stderr.take().unwrap();
        (args, way, begun, program::Ends(monitor), pipe)
    });
    for (args, way, begun, mut monitor, pipe) in running {
        let pids = tree::everything(monitor.0.id());
        let asked = if let Way::Timeout(seconds) = way {
            begun + Duration::from_secs(seconds)
        } else {
            // Until the pipe is full.
            std::thread::sleep(
                (begun + Duration::from_secs(3)).saturating_duration_since(Instant::now()),
            );
            tree::signal(monitor.0.id(), Signal::TERM);
            Instant::now()
        };
        println!("{args:?}");
        must_end(
            &mut monitor,
            asked,
            &pids,
            if way == Way::Term { 143 } else { 124 },
        );
        drop(pipe);
    }
}

/// Waits until the pipe without a reader is full, or nearly so.
fn wait_full(pipe: &ChildStderr) {
    let begun = Instant::now();
    while rustix::io::ioctl_fionread(pipe).unwrap() < 60 << 10 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing comes");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Output that finds no room in it is written now.
    std::thread::sleep(Duration::from_millis(200));
}

/// Expects the end of a machine that was asked to end then.
fn must_end(monitor: &mut program::Ends, asked: Instant, pids: &[u32], expected: i32) {
    let status = loop {
        if let Some(status) = monitor.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < asked + 2 * END, "it has not ended");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(expected));
    assert!(asked.elapsed() < END, "{:?}", asked.elapsed());
    tree::wait_gone(pids).unwrap();
}

/// Asks a machine to end, and expects that it does.
fn ends_by_term(monitor: &mut program::Ends) {
    let pids = tree::everything(monitor.0.id());
    let asked = Instant::now();
    tree::signal(monitor.0.id(), Signal::TERM);
    must_end(monitor, asked, &pids, 143);
}

/// The monitor's own log goes to standard error, from the threads of the devices as well, and a
/// guest can cause lines without end.
#[test]
fn a_log_that_nobody_reads_keeps_no_machine() {
    let scene = Scene::new();
    let mut command = scene.program();
    command.args(["--log", "debug", "run", "--append", "hostile=break"]);
    command.args(["--timeout", "120", "--kernel"]);
    command.arg(scene.path("guest")).args(["--", "true"]);
    let mut monitor = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pipe = monitor.stderr.take().unwrap();
    let mut monitor = program::Ends(monitor);
    wait_full(&pipe);
    ends_by_term(&mut monitor);
}

/// A machine ends while its terminal takes no output, as when the window hangs or after Ctrl-S. A
/// terminal accepts less than it announces.
#[test]
fn a_terminal_that_nobody_reads_keeps_no_machine() {
    // Build it now, outside of the time limit.
    let mut command = vm::command(["--timeout", "20", "--", "sh", "-c", "yes & yes >&2"]);
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    let asked = Instant::now() + Duration::from_secs(20);
    let monitor = command
        .stdout(theirs.try_clone().unwrap())
        .stderr(theirs)
        .spawn()
        .unwrap();
    let mut monitor = program::Ends(monitor);
    while rustix::io::ioctl_fionread(&ours).unwrap() == 0 {
        assert!(Instant::now() < asked, "nothing comes");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pids = tree::everything(monitor.0.id());
    must_end(&mut monitor, asked, &pids, 124);
}
