// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the agent's program in a running machine for its other jobs, such as packing files. `exec`
//! starts it, under the name by which each process finds its own program.

use anyhow::{Context, bail};
use paravane_machine::store::Store;
use paravane_user_io::events::{PollFlags, Waits, is_ready};
use paravane_user_io::signals::Signals;
use paravane_user_io::text;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// How much of the guest's error messages is shown, in bytes.
const COMPLAINTS: u64 = 16 << 10;

/// The stream by which it is used. The other one is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Its standard input.
    Input,
    /// Its standard output.
    Output,
}

/// The agent's program that runs in a guest.
#[derive(Debug)]
pub struct Far {
    pub child: Child,
    complaints: Option<JoinHandle<String>>,
}

impl Far {
    /// Starts it with two arguments, once the machine is known to run.
    pub fn start<'a>(
        name: &str,
        stream: Stream,
        arguments: impl FnOnce() -> anyhow::Result<[&'a str; 2]>,
    ) -> anyhow::Result<Self> {
        // Reports here if the machine does not run.
        super::machines::running(&Store::open()?, name)?;
        let arguments = arguments()?;
        let mut command =
            Command::new(std::env::current_exe().context("cannot find this program")?);
        // The machine's own command may have another user, and copies belong to root.
        command.args([
            "exec",
            name,
            "--user",
            "0",
            "--workdir",
            "/",
            "--",
            "/proc/self/exe",
        ]);
        command.args(arguments);
        let (input, output) = match stream {
            Stream::Output => (Stdio::null(), Stdio::piped()),
            Stream::Input => (Stdio::piped(), Stdio::null()),
        };
        command.stdin(input).stdout(output).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start this program again")?;
        let complaints = child.stderr.take().map(|pipe| {
            std::thread::spawn(move || {
                let mut said = Vec::new();
                // Discard further messages, so that the writer does not block.
                let mut pipe = pipe;
                let _ = pipe.by_ref().take(COMPLAINTS).read_to_end(&mut said);
                let _ = std::io::copy(&mut pipe, &mut std::io::sink());
                text::clean(
                    &said
                        .into_iter()
                        .map(|b| if b == b'\n' { b' ' } else { b })
                        .collect::<Vec<_>>(),
                )
            })
        });
        Ok(Far { child, complaints })
    }

    /// Ends the program as soon as a signal asks this one to end. Its streams then end, and so do
    /// the threads that wait for them.
    pub fn ends_with(&self, signals: &Signals) -> anyhow::Result<()> {
        let pid = Pid::from_child(&self.child);
        let program = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch a process")?;
        let signals = signals.clone();
        let watch = std::thread::Builder::new().name("signals".to_string());
        watch.spawn(move || end_with(&program, &signals))?;
        Ok(())
    }

    /// Waits for the program. Messages that are no error are passed on to the user.
    pub fn finish(mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        let said = self
            .complaints
            .take()
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default();
        let said = text::one_line(said.trim_start_matches("paravane: "));
        if !status.success() {
            bail!(
                "{}",
                if said.is_empty() {
                    "the machine ended".to_string()
                } else {
                    said
                }
            );
        }
        if !said.is_empty() {
            eprintln!("paravane: {said}");
        }
        Ok(())
    }

    /// Ends it.
    pub fn give_up(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a signal, and ends the program then. Returns when the program has ended.
fn end_with(program: &OwnedFd, signals: &Signals) {
    while !is_ready(program.as_fd(), PollFlags::IN) {
        if signals.pending().is_some() {
            // Fails if it has just ended.
            let _ = pidfd_send_signal(program, Signal::KILL);
            return;
        }
        let mut waits = Waits::default();
        waits.to_read(program.as_fd());
        waits.to_read(signals.wake());
        if waits.wait().is_err() {
            return;
        }
    }
}
