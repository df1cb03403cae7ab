// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A monitor in the background: who started it, and what its command reads.

use anyhow::Context;
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// What is said when the command runs.
pub const RUNNING: &[u8] = b"running";

/// What a monitor in the background has in place of a terminal and somebody at it.
#[derive(Debug)]
pub struct Background {
    /// Who started us hears there.
    starter: Option<OwnedFd>,
    /// The other end of our standard input, for who attaches. As long as it is here, that does not end.
    input: Option<OwnedFd>,
}

impl Background {
    /// Takes the socket to whoever started us from standard input, which is then a pipe for those who attach, or empty.
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

    /// Says that the command runs; nobody waits for us any more.
    pub fn say_running(&mut self) {
        if let Some(starter) = self.starter.take() {
            // Fails when whoever started us is gone, to whom it makes no difference.
            let _ = rustix::io::write(&starter, RUNNING);
        }
    }

    /// For who attaches.
    pub fn input(&self) -> Option<&OwnedFd> {
        self.input.as_ref()
    }
}
