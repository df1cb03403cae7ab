// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session: a connection that belongs to a command.

use crate::command::{self, Running};
use crate::connection::{Connection, PIECE, Read, read};
use crate::discard;
use crate::reap::{self, Status};
use paravane_agent_protocol::frame::put_data;
use paravane_agent_protocol::{Frame, FromAgent, INPUT_WINDOW, Stream, ToAgent};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetwinsize};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Output in bytes that may wait for the connection. Beyond it, no output is read, and the command
/// blocks.
const OUTPUT_WAITING: usize = 256 << 10;
/// Output in bytes that is read after the command has exited: the size of the largest pipe. More
/// can only come from other processes that have the stream open.
const LAST_OUTPUT: usize = 1 << 20;
/// Time in which the monitor should take the last output and close the connection. Linux resets a
/// closed connection after 8 s, also when its last bytes were not taken.
const LEAVE: Duration = Duration::from_secs(60);

/// A running command and its connection.
struct Session {
    connection: Connection,
    running: Running,
    /// Input that the command has not read yet.
    input: Vec<u8>,
    /// The monitor has sent all input.
    input_ends: bool,
    status: Option<Status>,
    /// Output in bytes that was read since the command exited.
    last: usize,
}

/// Serves a command until it has exited and all its output has been sent.
pub fn run(mut connection: Connection, running: Running) -> io::Result<()> {
    connection.put(&FromAgent::Started { pid: running.pid });
    let mut session = Session {
        connection,
        running,
        input: Vec::new(),
        input_ends: false,
        status: None,
        last: 0,
    };
    let result = session.work();
    if session.status.is_none() {
        // The monitor has closed the connection. This hangs up like a closed terminal; processes
        // that ignore SIGHUP continue.
        session.signal(Signal::HUP);
    }
    // Closes the agent's ends of the streams, except for output that other processes still have
    // open. A terminal hangs up.
    let Running {
        output,
        error,
        input,
        terminal,
        ..
    } = session.running;
    drop((input, terminal));
    [output, error]
        .into_iter()
        .flatten()
        .for_each(discard::until_its_end);
    result?;
    session.connection.leave(LEAVE)
}

impl Session {
    /// Works until the command has exited, and the connection's last bytes wait to be sent.
    fn work(&mut self) -> io::Result<()> {
        loop {
            // Frames may have arrived together with the request.
            while let Some(frame) = self.connection.next()? {
                self.take(frame)?;
            }
            self.feed()?;
            if let (Some(status), true) = (self.status, self.has_room()) {
                self.take_output()?;
                if self.is_drained() {
                    self.connection.put(&match status {
                        Status::Exited(code) => FromAgent::Exited(code),
                        Status::Killed(signal) => FromAgent::Killed(signal),
                    });
                    return Ok(());
                }
            }
            self.connection.flush()?;
            // After the command, only what is there already is read. A process that holds the
            // streams open and prints nothing would be waited for.
            if self.status.is_none() || !self.has_room() {
                self.wait()?;
            }
        }
    }

    /// Whether more output may be read.
    fn has_room(&self) -> bool {
        self.connection.out.len() < OUTPUT_WAITING
    }

    /// Waits for an event and reads what is ready.
    fn wait(&mut self) -> io::Result<()> {
        let mut files = Vec::with_capacity(5);
        let mut flags = PollFlags::IN;
        if !self.connection.out.is_empty() {
            flags |= PollFlags::OUT;
        }
        files.push(PollFd::new(&self.connection.file, flags));
        if self.status.is_none() {
            files.push(PollFd::new(&self.running.ended, PollFlags::IN));
        }
        let outputs = files.len();
        let room = self.has_room();
        let running = &self.running;
        for file in [&running.output, &running.error, &running.terminal]
            .into_iter()
            .flatten()
        {
            if room {
                files.push(PollFd::new(file, PollFlags::IN));
            }
        }
        let inputs = files.len();
        if let (Some(file), false) = (self.input_file(), self.input.is_empty()) {
            files.push(PollFd::new(file, PollFlags::OUT));
        }
        match poll(&mut files, None) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            other => other?,
        };
        let came = |at: usize| files.get(at).is_some_and(|file| !file.revents().is_empty());
        let heard = files.first().is_some_and(|file| {
            file.revents()
                .intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
        });
        let ended = self.status.is_none() && came(1);
        let printed = (outputs..inputs).any(came);
        if heard && !self.connection.receive()? {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if ended {
            self.status = Some(Status::read(&self.running.ended)?);
        }
        if printed {
            self.take_output()?;
        }
        Ok(())
    }

    fn input_file(&self) -> Option<&OwnedFd> {
        self.running
            .terminal
            .as_ref()
            .or(self.running.input.as_ref())
    }

    /// Reads at most one piece of each stream, so that none delays the others.
    fn take_output(&mut self) -> io::Result<()> {
        let mut piece = [0; PIECE];
        let running = &mut self.running;
        let streams = [
            (&mut running.output, Stream::Output, true),
            (&mut running.error, Stream::Error, true),
            // A terminal hangs up when the session ends.
            (&mut running.terminal, Stream::Output, false),
        ];
        for (file, stream, stays_open) in streams {
            let Some(open) = file else { continue };
            let leave = match read(open, &mut piece)? {
                Read::Some(_) if self.last > LAST_OUTPUT => true,
                Read::Some(n) => {
                    put_data(
                        &mut self.connection.out,
                        stream,
                        piece.get(..n).unwrap_or_default(),
                    );
                    if self.status.is_some() {
                        self.last += n;
                    }
                    false
                }
                // If the command has exited, other processes may have the stream open. The session
                // does not wait for them.
                Read::Nothing => self.status.is_some(),
                Read::End => {
                    *file = None;
                    false
                }
            };
            if let Some(open) = file.take_if(|_| leave).filter(|_| stays_open) {
                discard::until_its_end(open);
            }
        }
        Ok(())
    }

    /// Whether all output was read.
    fn is_drained(&self) -> bool {
        self.running.output.is_none()
            && self.running.error.is_none()
            && self.running.terminal.is_none()
    }

    /// Handles a frame of the monitor's.
    fn take(&mut self, frame: Frame<ToAgent>) -> io::Result<()> {
        match frame {
            Frame::Data(Stream::Input, bytes) => {
                if self.input.len() + bytes.len() > INPUT_WINDOW as usize {
                    return Err(io::Error::other("more input than the window allows"));
                }
                self.input.extend(bytes);
            }
            Frame::Message(ToAgent::EndOfInput) => self.input_ends = true,
            Frame::Message(ToAgent::Resize(size)) => {
                if let Some(terminal) = &self.running.terminal {
                    // The kernel sends SIGWINCH to the programs in the foreground.
                    tcsetwinsize(terminal, command::window(size))?;
                }
            }
            Frame::Message(ToAgent::Signal(number)) => {
                let signal = Signal::from_named_raw(number)
                    .ok_or_else(|| io::Error::other("unknown signal"))?;
                self.signal(signal);
            }
            Frame::Data(..) | Frame::Message(_) => {
                return Err(io::Error::other(
                    "this message is not allowed during a command",
                ));
            }
        }
        Ok(())
    }

    /// Writes input to the command as far as it reads.
    fn feed(&mut self) -> io::Result<()> {
        let mut taken = 0;
        while !self.input.is_empty() {
            let written = match self.input_file() {
                Some(file) => rustix::io::write(file, &self.input),
                None => Err(rustix::io::Errno::PIPE),
            };
            match written {
                Ok(n) => {
                    self.input.drain(..n);
                    taken += n;
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                // The command does not read any more. Further input is discarded.
                Err(rustix::io::Errno::PIPE | rustix::io::Errno::IO) => {
                    taken += self.input.len();
                    self.input.clear();
                    self.running.input = None;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if taken > 0 {
            self.connection
                .put(&FromAgent::Taken(u32::try_from(taken).unwrap_or(u32::MAX)));
        }
        if self.input_ends && self.input.is_empty() {
            self.running.input = None;
        }
        Ok(())
    }

    /// Signals the command's process group; with a terminal, its foreground process group.
    fn signal(&self, signal: Signal) {
        let own = i32::try_from(self.running.pid).ok().and_then(Pid::from_raw);
        let foreground = self
            .running
            .terminal
            .as_ref()
            .and_then(|terminal| tcgetpgrp(terminal).ok());
        reap::while_it_runs(self.running.pid, || {
            if let Some(group) = foreground.or(own) {
                // Fails if all processes of the group have just exited.
                let _ = kill_process_group(group, signal);
            }
        });
    }
}
