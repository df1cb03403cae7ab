// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane conformance` ends when its time is over or a signal asks it to, also while no process
//! reads the pipe that is its standard output.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program::{self, Ends};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The most time for the end of a run, and for its start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run of the suite that writes to a full pipe.
struct Run {
    monitor: Ends,
    /// The reading end of the pipe. It stays open, and the test does not read it.
    _reader: OwnedFd,
    errors: File,
}

impl Run {
    /// Starts the suite with this `--timeout`, in seconds.
    fn start(seconds: &str) -> Self {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let size = fcntl_setpipe_size(&writer, 4096).unwrap();
        // It takes as much without a wait.
        assert_eq!(rustix::io::write(&writer, &vec![0; size]), Ok(size));
        let errors = tempfile::tempfile().unwrap();
        let mut command = program::command();
        command.args([
            "conformance",
            "--hypervisor",
            "process",
            "--timeout",
            seconds,
        ]);
        command.stdout(writer).stderr(errors.try_clone().unwrap());
        Run {
            monitor: Ends(command.spawn().unwrap()),
            _reader: reader,
            errors,
        }
    }

    /// Waits until it handles SIGTERM.
    fn handles_signals(&self) {
        let begun = Instant::now();
        let path = format!("/proc/{}/status", self.monitor.0.id());
        loop {
            let status = fs::read_to_string(&path).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
            if caught >> (Signal::TERM.as_raw() - 1) & 1 == 1 {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "it handles no signal");
            sleep(Duration::from_millis(10));
        }
    }

    /// How it ends, and what it says.
    fn end(mut self) -> (ExitStatus, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.monitor.0.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it goes on");
            sleep(Duration::from_millis(10));
        };
        let mut text = String::new();
        // The program and this test share one position in the file.
        self.errors.rewind().unwrap();
        self.errors.read_to_string(&mut text).unwrap();
        (status, text)
    }
}

#[test]
fn its_time_is_over() {
    let (status, text) = Run::start("15").end();
    assert_eq!(status.code(), Some(2), "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(last.contains("nobody reads standard output"), "{text}");
}

#[test]
fn a_signal_comes() {
    let run = Run::start("600");
    run.handles_signals();
    // Until it writes.
    sleep(Duration::from_secs(2));
    kill_process(Pid::from_child(&run.monitor.0), Signal::TERM).unwrap();
    let (status, text) = run.end();
    assert_eq!(status.code(), Some(143), "{text}");
}
