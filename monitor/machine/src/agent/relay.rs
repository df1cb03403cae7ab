// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries the streams between a command in a guest and this program.
//!
//! No call waits. The caller waits for [`Relay::waits`], so it can serve the machine and its own
//! signals at the same time, however slow a reader or writer is.

use super::link::Link;
use super::terminal::{LEAVE, Terminal};
use anyhow::{Context, bail};
use paravane_agent_protocol::{Failure, Frame, FromAgent, INPUT_WINDOW, Size, Stream, ToAgent};
use paravane_user_io::events::{PollFlags, Waits, is_ready};
use paravane_user_io::outlet::Outlet;
use paravane_user_io::stderr;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The most times that messages are received in a turn, each up to 64 KiB.
const BURST: usize = 4;
/// Bytes of output that may wait for their reader. Beyond that the guest waits.
const WAITING: usize = 256 << 10;
const INPUT_PIECE: usize = 32 << 10;
/// Within this time, output follows of which the connection had no room for all.
const FOLLOWS: Duration = Duration::from_millis(20);

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this exit code.
    Exited(u8),
    /// By this signal.
    Killed(u8),
    /// It could not be started.
    Failed(Failure),
    /// The user left it with Ctrl-].
    Left,
    /// This program's standard output or error has no reader.
    NoReader,
    /// Its output cannot be written, and why.
    NoRoom(String),
}

/// The streams of the command that was started on a link.
#[derive(Debug)]
pub struct Relay {
    link: Link,
    terminal: Option<Terminal>,
    /// This program's standard input may have more for it.
    input: bool,
    /// Bytes of input that the guest takes now.
    window: usize,
    output: Vec<u8>,
    error: Vec<u8>,
    /// Output is dropped when the disk is full.
    forgets: bool,
    /// A terminal of this program was closed.
    hung_up: bool,
    configured: bool,
    started: bool,
    ended: Option<Ended>,
}

impl Relay {
    /// For the command that was last started on the link. With a terminal, everything typed goes to
    /// the guest at once.
    pub fn new(link: Link, terminal: Option<Terminal>, input: bool) -> Self {
        Relay {
            link,
            terminal,
            input,
            window: INPUT_WINDOW as usize,
            output: Vec::new(),
            error: Vec::new(),
            forgets: false,
            hung_up: false,
            configured: false,
            started: false,
            ended: None,
        }
    }

    /// Whether a terminal of this program was closed. Nothing ends by that. The host sends SIGHUP
    /// only if it was the terminal that controls the program, and perhaps later than this is seen.
    pub fn hung_up(&self) -> bool {
        self.hung_up
    }

    /// Whether the guest is configured: its folders and its network are there.
    pub fn is_configured(&self) -> bool {
        self.configured
    }

    /// Whether the command runs.
    pub fn has_started(&self) -> bool {
        self.started
    }

    /// From now on output is dropped when the disk is full: a machine in the background outlives
    /// its log.
    pub fn forget(&mut self) {
        self.forgets = true;
    }

    /// Adds what [`Relay::work`] waits for.
    pub fn waits<'a>(&'a self, waits: &mut Waits<'a>) {
        if self.takes_output() {
            waits.to_read(self.link.file());
        }
        if self.link.has_unsent() {
            waits.to_write(self.link.file());
        }
        if self.takes_input() {
            waits.to_read(rustix::stdio::stdin());
        }
        for (bytes, file) in self.outputs() {
            if !bytes.is_empty() {
                waits.to_write(file);
            }
        }
        if let Some(terminal) = &self.terminal {
            waits.to_read(terminal.file());
        }
    }

    fn outputs(&self) -> [(&Vec<u8>, BorrowedFd<'static>); 2] {
        [
            (&self.output, Outlet::Output.file()),
            (&self.error, Outlet::Error.file()),
        ]
    }

    fn takes_output(&self) -> bool {
        self.ended.is_none() && self.output.len() < WAITING && self.error.len() < WAITING
    }

    fn takes_input(&self) -> bool {
        // The guest may claim to have taken what was not even sent.
        let room = self.window > 0 && self.link.unsent() < INPUT_WINDOW as usize;
        self.input && self.ended.is_none() && room
    }

    /// Sends a signal to the command.
    pub fn signal(&mut self, number: u8) -> anyhow::Result<()> {
        self.link.put(&ToAgent::Signal(number.into()))
    }

    /// Sets the size of the command's terminal, which belongs to another program.
    pub fn resize(&mut self, size: Size) -> anyhow::Result<()> {
        self.link.put(&ToAgent::Resize(size))
    }

    /// Does what can be done without waiting. Returns the end of the command when all of its output
    /// is written.
    ///
    /// # Errors
    /// The connection to the agent is lost, or standard input cannot be read.
    pub fn work(&mut self) -> anyhow::Result<Option<Ended>> {
        if self.terminal.as_ref().is_some_and(Terminal::was_resized) {
            self.link.put(&ToAgent::Resize(Terminal::size()))?;
        }
        // The command first: a shell may stop this program when it reads the terminal.
        self.send()?;
        if self.takes_input() && is_ready(rustix::stdio::stdin(), PollFlags::IN) {
            self.take_input()?;
            self.send()?;
        }
        self.listen()?;
        match self.write() {
            Ok(()) => {}
            Err(Errno::PIPE) => return Ok(Some(Ended::NoReader)),
            Err(error) => return Ok(Some(Ended::NoRoom(std::io::Error::from(error).to_string()))),
        }
        let written = self.output.is_empty() && self.error.is_empty();
        Ok(self
            .ended
            .clone()
            .filter(|ended| written || *ended == Ended::Left))
    }

    fn send(&mut self) -> anyhow::Result<()> {
        if self.ended.is_none() {
            self.link
                .flush()
                .context("the connection to the guest's agent broke")?;
        }
        Ok(())
    }

    /// Writes the output that has come from a machine or an agent that has ended. Waits for a slow
    /// reader as standard error does, and at most until `by`; the rest is lost.
    pub fn finish(&mut self, by: Option<Instant>) {
        let late = Instant::now() + stderr::PATIENCE;
        let until = by.map_or(late, |by| by.min(late));
        // Before anything has come, nothing else is waited for.
        let mut quiet = Instant::now();
        loop {
            let before = self.output.len() + self.error.len();
            // An error is the end of the connection. The messages before it have been taken.
            let open = self.listen().is_ok();
            if self.output.len() + self.error.len() > before {
                quiet = Instant::now() + FOLLOWS;
            }
            if self.write().is_err() {
                return;
            }
            let now = Instant::now();
            let more = open && self.takes_output() && now < quiet;
            let mut files = Waits::default();
            let mut unwritten = false;
            for (bytes, file) in self.outputs() {
                if !bytes.is_empty() {
                    unwritten = true;
                    files.to_write(file);
                }
            }
            if now >= until || !(more || unwritten) {
                return;
            }
            files.until(until);
            if more {
                files.to_read(self.link.file());
                files.until(quiet);
            }
            if files.wait().is_err() {
                return;
            }
        }
    }

    /// Takes one piece of this program's input.
    fn take_input(&mut self) -> anyhow::Result<()> {
        let mut piece = vec![0; self.window.min(INPUT_PIECE)];
        match rustix::io::read(rustix::stdio::stdin(), &mut piece) {
            // Another program with the same terminal was faster.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(0) | Err(Errno::IO) if self.terminal.is_some() => {
                (self.input, self.hung_up) = (false, true);
            }
            Ok(0) => {
                self.input = false;
                self.link.put(&ToAgent::EndOfInput)?;
            }
            Ok(n) => {
                piece.truncate(n);
                if self.terminal.is_some() && piece.contains(&LEAVE) {
                    self.ended = Some(Ended::Left);
                    return Ok(());
                }
                self.window -= n;
                self.link.put_input(&piece);
            }
            Err(error) => return Err(error).context("cannot read standard input"),
        }
        Ok(())
    }

    /// Takes messages from the guest, as long as there is room for output.
    fn listen(&mut self) -> anyhow::Result<()> {
        // A guest that sends messages without end must not block the rest of the loop.
        for _ in 0..BURST {
            if !(self.takes_output() && is_ready(self.link.file(), PollFlags::IN)) {
                break;
            }
            let open = self
                .link
                .receive()
                .context("the connection to the guest's agent broke")?;
            while let Some(frame) = self.link.next_frame()? {
                self.take(frame)?;
            }
            if !open && self.ended.is_none() {
                bail!("the guest's agent has left");
            }
        }
        Ok(())
    }

    fn take(&mut self, frame: Frame<FromAgent>) -> anyhow::Result<()> {
        match frame {
            Frame::Data(Stream::Output, bytes) => self.output.extend(bytes),
            Frame::Data(Stream::Error, bytes) => self.error.extend(bytes),
            Frame::Message(FromAgent::Taken(n)) => {
                // A guest that claims more than was sent gets its input earlier.
                self.window = self
                    .window
                    .saturating_add(n as usize)
                    .min(INPUT_WINDOW as usize);
            }
            Frame::Message(FromAgent::Exited(code)) => self.end(Ended::Exited(code)),
            Frame::Message(FromAgent::Killed(signal)) => self.end(Ended::Killed(signal)),
            Frame::Message(FromAgent::Failed(failure)) => self.end(Ended::Failed(failure)),
            Frame::Message(FromAgent::Started { pid }) => {
                tracing::debug!(pid, "the command runs");
                self.started = true;
            }
            Frame::Message(FromAgent::Done) => self.configured = true,
            Frame::Data(Stream::Input, _) | Frame::Message(FromAgent::Hello { .. }) => {
                bail!("the guest's agent does not keep to the protocol")
            }
        }
        Ok(())
    }

    fn end(&mut self, how: Ended) {
        self.ended.get_or_insert(how);
    }

    /// Writes as much output as possible without waiting.
    fn write(&mut self) -> Result<(), Errno> {
        for (bytes, outlet) in [
            (&mut self.output, Outlet::Output),
            (&mut self.error, Outlet::Error),
        ] {
            let mut done = 0;
            while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
                match outlet.write(rest) {
                    Ok(n) => done += n,
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(Errno::NOSPC | Errno::DQUOT) if self.forgets => done = bytes.len(),
                    Err(Errno::IO) if is_device(outlet.file()) => {
                        (done, self.hung_up) = (bytes.len(), true);
                    }
                    Err(error) => return Err(error),
                }
            }
            bytes.drain(..done);
        }
        Ok(())
    }
}

/// Whether a file is a device such as a terminal, whose error means that it was closed, and not
/// that a disk is damaged.
fn is_device(file: BorrowedFd<'_>) -> bool {
    let mode = rustix::fs::fstat(file).map(|stat| stat.st_mode);
    mode.is_ok_and(|mode| FileType::from_raw_mode(mode) == FileType::CharacterDevice)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A helper that fails is a failure of the test.
mod tests {
    use super::*;
    use paravane_agent_protocol::VERSION;
    use paravane_agent_protocol::frame::{MAX_FROM_AGENT, put_message};
    use rustix::net::sockopt::set_socket_send_buffer_size;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// A hostile guest's agent sends messages without end.
    #[test]
    fn a_turn_takes_some_messages() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        set_socket_send_buffer_size(&theirs, 1 << 20).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut said = Vec::new();
        let hello = FromAgent::Hello { version: VERSION };
        put_message(&mut said, &hello, MAX_FROM_AGENT).unwrap();
        for _ in 0..100_000 {
            put_message(&mut said, &FromAgent::Done, MAX_FROM_AGENT).unwrap();
        }
        let mut sent = 0;
        while sent < said.len()
            && let Ok(bytes) = (&theirs).write(&said[sent..])
        {
            sent += bytes;
        }
        assert!(sent > (BURST + 1) * (64 << 10), "{sent}");
        let mut relay = Relay::new(Link::new(ours).unwrap(), None, false);
        assert_eq!(relay.work().unwrap(), None);
        assert!(is_ready(relay.link.file(), PollFlags::IN));
        for _ in 0..=sent >> 16 {
            assert_eq!(relay.work().unwrap(), None);
        }
        assert!(!is_ready(relay.link.file(), PollFlags::IN));
    }

    /// A guest that claims to have taken input that it does not read.
    #[test]
    fn input_that_is_not_sent_is_bounded() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut relay = Relay::new(Link::new(ours).unwrap(), None, true);
        let piece = vec![0; INPUT_PIECE];
        let mut taken = 0;
        while relay.takes_input() {
            relay.link.put_input(&piece);
            relay.link.flush().unwrap();
            relay
                .take(Frame::Message(FromAgent::Taken(INPUT_WINDOW)))
                .unwrap();
            taken += piece.len();
            assert!(taken < 16 << 20);
        }
        assert!(relay.link.unsent() <= INPUT_WINDOW as usize + 2 * INPUT_PIECE);
        drop(theirs);
    }
}
