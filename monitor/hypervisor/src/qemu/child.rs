// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A child process that does not outlive the monitor, and the lines that it prints.

use crate::Event;
use paravane_user_io::signals::Signals;
use paravane_user_io::text;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longer lines are truncated: a guest may print without end.
const MAX_LINE: u64 = 4096;
/// Lines that wait for a reader. When they are this many, the child waits.
const QUEUED_LINES: usize = 256;
/// How much of the child's standard error is kept.
const MAX_ERRORS: u64 = 4096;
/// How often signals are checked.
const SIGNAL_POLL: Duration = Duration::from_millis(50);

/// A running child process.
#[derive(Debug)]
pub struct Supervised {
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

/// What came from a child.
pub enum Output {
    Event(Event),
    /// It has ended, after this output on standard error.
    Exit(ExitStatus, String),
}

impl Supervised {
    /// Starts a program with closed input, whose output is read here.
    ///
    /// The caller must be the main thread: the kernel kills the child when the *thread* that
    /// started it ends.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        die_with_us(command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::other("the child has no pipe");
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let (sender, lines) = sync_channel(QUEUED_LINES);
        thread::spawn(move || read_lines(stdout, &sender));
        let errors = thread::spawn(move || {
            let mut kept = Vec::new();
            let mut stderr = BufReader::new(stderr);
            // The rest is read and dropped: a full pipe would stop the child.
            let _ = stderr.by_ref().take(MAX_ERRORS).read_to_end(&mut kept);
            let _ = io::copy(&mut stderr, &mut io::sink());
            text::one_line(&text::clean(
                &kept.split(|&b| b == b'\n').collect::<Vec<_>>().join(&b' '),
            ))
        });
        Ok(Supervised {
            child,
            lines,
            errors: Some(errors),
        })
    }

    /// The next line, or the end.
    pub fn next(&mut self, deadline: Instant, signals: &Signals) -> Output {
        loop {
            if let Some(signal) = signals.pending() {
                return Output::Event(Event::Interrupted(signal));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Output::Event(Event::TimedOut);
            }
            match self.lines.recv_timeout(left.min(SIGNAL_POLL)) {
                Ok(line) => return Output::Event(Event::Line(line)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Its output is closed, so it should end soon.
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    let errors = self.errors.take().and_then(|thread| thread.join().ok());
                    return Output::Exit(status, errors.unwrap_or_default());
                }
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
                Ok(None) | Err(_) => return Output::Event(Event::TimedOut),
            }
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // Both fail only when the child has already ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(stdout: ChildStdout, sender: &SyncSender<String>) {
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            // The reader has ended, so the guest is being ended.
            Ok(_) => {
                if sender.send(text::clean(&line)).is_err() {
                    return;
                }
            }
        }
    }
}

/// Makes the kernel kill the child when this process ends, however it ends.
fn die_with_us(command: &mut Command) {
    let parent = std::process::id();
    let in_child = move || {
        // SAFETY: prctl and getppid are system calls that touch no memory, so they are safe between
        // fork and exec.
        let (result, now) = unsafe {
            (
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL),
                libc::getppid(),
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // If the monitor ended before the call, the kernel would never kill the child.
        if u32::try_from(now) != Ok(parent) {
            return Err(io::Error::other("the monitor has ended"));
        }
        Ok(())
    };
    // SAFETY: the closure allocates only when it fails, takes no lock and makes only system calls.
    unsafe {
        command.pre_exec(in_child);
    }
}
