// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection to the monitor: sends and receives frames, nonblocking or not.

use paravane_agent_protocol::frame::{MAX_FROM_AGENT, MAX_TO_AGENT, put_message};
use paravane_agent_protocol::{Decoder, Frame, FromAgent, ToAgent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The size of one read.
pub const PIECE: usize = 32 << 10;

/// A connection to the monitor.
#[derive(Debug)]
pub struct Connection {
    pub file: OwnedFd,
    decoder: Decoder<ToAgent>,
    pub out: Vec<u8>,
}

impl Connection {
    pub fn new(file: OwnedFd) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Connection {
            file,
            decoder: Decoder::new(MAX_TO_AGENT),
            out: Vec::new(),
        })
    }

    /// Sends a message and waits until it is sent.
    pub fn say(&mut self, message: &FromAgent) -> io::Result<()> {
        self.put(message);
        self.send_all()
    }

    fn send_all(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            self.wait(PollFlags::OUT)?;
            self.flush()?;
        }
        Ok(())
    }

    /// Waits for a message. None if the monitor has closed the connection.
    pub fn request(&mut self) -> io::Result<Option<ToAgent>> {
        loop {
            match self.next()? {
                Some(Frame::Message(message)) => return Ok(Some(message)),
                // Input for a command that could not be started.
                Some(Frame::Data(..)) => continue,
                None => {}
            }
            self.wait(PollFlags::IN)?;
            if !self.receive()? {
                return Ok(None);
            }
        }
    }

    pub fn wait(&self, flags: PollFlags) -> io::Result<()> {
        self.wait_for(flags, None)
    }

    fn wait_for(&self, flags: PollFlags, time: Option<Duration>) -> io::Result<()> {
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut [PollFd::new(&self.file, flags)], time.as_ref()) {
            Err(rustix::io::Errno::INTR) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    /// Sends what waits, however long that takes. Then waits until the monitor has taken it and
    /// has closed the connection, but no longer than `time`.
    pub fn leave(&mut self, time: Duration) -> io::Result<()> {
        self.send_all()?;
        rustix::net::shutdown(&self.file, Shutdown::Write)?;
        let until = Instant::now() + time;
        let mut piece = [0; PIECE];
        loop {
            match read(&self.file, &mut piece)? {
                Read::End => return Ok(()),
                // It is for the command, which has ended.
                Read::Some(_) if Instant::now() < until => {}
                Read::Some(_) => return Ok(()),
                Read::Nothing => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(());
                    }
                    self.wait_for(PollFlags::IN, Some(left))?;
                }
            }
        }
    }

    pub fn put(&mut self, message: &FromAgent) {
        if put_message(&mut self.out, message, MAX_FROM_AGENT).is_err() {
            // Only a failure can be too long. Send it without its text.
            if let FromAgent::Failed(failure) = message {
                let mut short = failure.clone();
                short.why.clear();
                let _ = put_message(&mut self.out, &FromAgent::Failed(short), MAX_FROM_AGENT);
            }
        }
    }

    pub fn next(&mut self) -> io::Result<Option<Frame<ToAgent>>> {
        self.decoder.next().map_err(io::Error::other)
    }

    /// Reads what has arrived. False if the monitor has closed the connection.
    pub fn receive(&mut self) -> io::Result<bool> {
        let mut piece = [0; PIECE];
        match read(&self.file, &mut piece)? {
            Read::Some(n) => {
                self.decoder.add(piece.get(..n).unwrap_or_default());
                Ok(true)
            }
            Read::Nothing => Ok(true),
            Read::End => Ok(false),
        }
    }

    /// Sends as much as possible without waiting.
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match rustix::io::write(&self.file, &self.out) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

pub enum Read {
    Some(usize),
    Nothing,
    End,
}

pub fn read(file: &OwnedFd, into: &mut [u8]) -> io::Result<Read> {
    loop {
        match rustix::io::read(file, &mut *into) {
            Ok(0) => return Ok(Read::End),
            Ok(n) => return Ok(Read::Some(n)),
            Err(rustix::io::Errno::AGAIN) => return Ok(Read::Nothing),
            Err(rustix::io::Errno::INTR) => {}
            // A terminal reports this when no process has it open any more.
            Err(rustix::io::Errno::IO) => return Ok(Read::End),
            Err(error) => return Err(error.into()),
        }
    }
}
