// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine with a writable disk writes everything back before it ends. A guest that cannot do
//! that, or refuses to, delays neither the machine's end nor the command that requests it.
//!
//! In these tests, the host never completes the call that writes data to a disk. So the guest has
//! data that it cannot write back, and waits for that when it is asked to power off.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::user::User;
use paravane_tests::{program, tree, vm, wait};
use rustix::process::Signal;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// `pwritev`
const WRITE: &str = "296";
/// From the request to the end, and from the end of the time of `stop`.
const END: Duration = Duration::from_secs(5);
/// The time of a guest that nothing hurries.
const WRITE_BACK: Duration = Duration::from_secs(60);

/// How a machine that powers off is hurried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Not at all.
    Patience,
    /// `--timeout`, s.
    Timeout(u64),
    /// `paravane stop --time`, s.
    Stop(u64),
    /// `paravane kill`.
    Kill,
    /// A signal to its monitor.
    Term,
}

/// Data that does not get to the disk, then the word.
const STUCK: &str = "dd if=/dev/zero of=/dev/vda bs=4k count=1 2>/dev/null & sleep 1; echo stuck";
/// The command ends when it gets a line.
const UNTIL_TOLD: &str = "read line; exit 7";

struct Machine {
    monitor: program::Ends,
    begun: Instant,
    _disk: NamedTempFile,
}

impl Machine {
    /// Runs the script; comes back when it has said the word.
    fn start(user: &User, timeout: u64, script: &str) -> Self {
        let disk = NamedTempFile::new().unwrap();
        disk.as_file().set_len(1 << 20).unwrap();
        let run = vm::command(["--name", "m"]);
        let mut command = Command::new(program::tool("slow"));
        command
            .arg(WRITE)
            .arg(run.get_program())
            .args(run.get_args());
        command.arg("--disk").arg(disk.path());
        command.args(["--timeout", &timeout.to_string()]);
        command.args(["--", "sh", "-c", script]);
        command.env("XDG_STATE_HOME", user.folder());
        let begun = Instant::now();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let line = program::first_line(&mut child);
        assert_eq!(line, "stuck\n");
        Machine {
            monitor: program::Ends(child),
            begun,
            _disk: disk,
        }
    }

    /// Waits for the end; the exit code, and what was said.
    fn end(&mut self, within: Duration) -> (Option<i32>, String) {
        let deadline = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.monitor.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it has not ended");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut errors = Lines::of(self.monitor.0.stderr.take());
        (status.code(), errors.rest_within(program::PATIENCE))
    }
}

fn ends(way: Way) {
    let user = User::new();
    let timeout = match way {
        Way::Timeout(seconds) => seconds,
        _ => 100,
    };
    let mut machine = Machine::start(&user, timeout, &format!("{STUCK}; {UNTIL_TOLD}"));
    if let Way::Timeout(seconds) = way {
        // So late that the guest's own time to write back would be longer.
        let late = machine.begun + Duration::from_secs(seconds - 10);
        std::thread::sleep(late.saturating_duration_since(Instant::now()));
    }
    let told = Instant::now();
    let mut input = machine.monitor.0.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    let pids = tree::everything(machine.monitor.0.id());
    // The command's end is known.
    wait::until("the machine ends", program::PATIENCE, || {
        let exec = user.run(&["exec", "m", "--", "true"]);
        exec.code == 2 && exec.stderr.contains("ending")
    });
    let mut asked = Instant::now();
    let bound = match way {
        Way::Patience => WRITE_BACK + END,
        Way::Timeout(seconds) => {
            asked = asked.max(machine.begun + Duration::from_secs(seconds));
            END
        }
        Way::Stop(seconds) => {
            // Requests that do not concern the end are answered, too.
            let stat = user.run(&["stat", "m"]);
            assert_eq!(stat.code, 0, "{stat:?}");
            user.refused(&["exec", "m", "--", "true"], "ending");
            asked = Instant::now();
            let stop = user.ok(&["stop", "--time", &seconds.to_string(), "m"]);
            assert_eq!(stop, "m\n");
            Duration::from_secs(seconds) + END
        }
        Way::Kill => {
            assert_eq!(user.ok(&["kill", "m"]), "m\n");
            END
        }
        Way::Term => {
            tree::signal(machine.monitor.0.id(), Signal::TERM);
            END
        }
    };
    let left = (asked + 2 * bound).saturating_duration_since(Instant::now());
    let (code, said) = machine.end(left);
    let took = asked.elapsed();
    // The command had ended before. Without its data, that is no success.
    let (expected, line) = match way {
        Way::Patience => (
            1,
            "the guest has not written everything to its disks within 60 s",
        ),
        Way::Kill => (7, ""),
        _ => (7, "the guest had no time to write everything to its disks"),
    };
    assert_eq!(code, Some(expected), "{way:?}: {said}");
    let right = if line.is_empty() {
        said.is_empty()
    } else {
        said.contains(line)
    };
    assert!(right, "{way:?}: {said}");
    assert!(took < bound, "{way:?}: {took:?}");
    if way == Way::Patience {
        assert!(
            told.elapsed() > WRITE_BACK,
            "it did not wait: {:?}",
            told.elapsed()
        );
    }
    tree::wait_gone(&pids).unwrap();
}

#[test]
fn a_guest_that_cannot_write_back_has_its_time() {
    ends(Way::Patience);
}

#[test]
fn a_guest_that_powers_off_is_hurried() {
    for way in [Way::Timeout(40), Way::Stop(1), Way::Kill, Way::Term] {
        ends(way);
    }
}

/// A machine without a command powers off when it is asked to end.
#[test]
fn a_machine_without_a_command_is_hurried_too() {
    let user = User::new();
    let disk = NamedTempFile::new().unwrap();
    disk.as_file().set_len(1 << 20).unwrap();
    let run = vm::command(["--detach", "--name", "m", "--timeout", "100", "--disk"]);
    let mut command = Command::new(program::tool("slow"));
    command
        .arg(WRITE)
        .arg(run.get_program())
        .args(run.get_args());
    command
        .arg(disk.path())
        .env("XDG_STATE_HOME", user.folder());
    let run = program::finish(&mut command);
    assert_eq!((run.code, run.stdout.as_str()), (0, "m\n"), "{run:?}");
    assert_eq!(user.ok(&["exec", "m", "--", "sh", "-c", STUCK]), "stuck\n");
    let monitor = user.monitor("m");
    let pids = tree::everything(monitor);
    let asked = Instant::now();
    assert_eq!(user.ok(&["stop", "--time", "2", "m"]), "m\n");
    assert!(
        asked.elapsed() < Duration::from_secs(2) + END,
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(user.state("m"), "exited");
    tree::wait_gone(&pids).unwrap();
}
