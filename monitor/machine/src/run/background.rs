// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A monitor in the background: the program that started it, and the input of its command.

use anyhow::Context;
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// The message to that program when the command runs.
pub const RUNNING: &[u8] = b"running";

/// What a monitor in the background has in place of a terminal.
#[derive(Debug)]
pub struct Background {
    /// The connection to the program that started this one.
    starter: Option<OwnedFd>,
    /// The write end of this program's standard input, for clients that attach. The input does not
    /// end while this is open.
    input: Option<OwnedFd>,
}

impl Background {
    /// Takes the connection to the starting program from standard input. Standard input then
    /// becomes a pipe for clients that attach, or is empty.
    pub fn take(interactive: bool) -> anyhow::Result<Self> {
        let complain = "cannot take the place of a terminal";
        let starter = rustix::stdio::stdin()
            .try_clone_to_owned()
            .context(complain)?;
        let input = if interactive {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).context(complain)?;
            rustix::stdio::dup2_stdin(&read).context(complain)?;
            Some(write)
        } else {
            let null = File::open("/dev/null").context("/dev/null")?;
            rustix::stdio::dup2_stdin(null.as_fd()).context(complain)?;
            None
        };
        Ok(Background {
            starter: Some(starter),
            input,
        })
    }

    /// Reports that the command runs. The starting program no longer waits.
    pub fn say_running(&mut self) {
        if let Some(starter) = self.starter.take() {
            // Fails if that program has ended, and then it does not matter.
            let _ = rustix::io::write(&starter, RUNNING);
        }
    }

    /// Closes the connection to the starting program: another process reports to it.
    pub fn forget_starter(&mut self) {
        self.starter = None;
    }

    /// The write end of the command's input, for a client that attaches.
    pub fn input(&self) -> Option<&OwnedFd> {
        self.input.as_ref()
    }
}
