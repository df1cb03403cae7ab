// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The socket on which a machine's monitor can be asked for things: one line of JSON each way.
//!
//! Whoever asks for the agent gets a connection to it, and speaks with it from then on without the monitor in between. The
//! socket's folder belongs to the user alone.

use crate::store::Machine;
use anyhow::{Context, bail};
use paravane_user_io::events::Waits;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::task::Poll;
use std::time::{Duration, Instant};

/// A line is never longer.
const MAX_LINE: usize = 4096;
/// Who asks and then says nothing is forgotten when so many others have come.
const MAX_CLIENTS: usize = 64;
/// For an answer, which a monitor gives at once, or when the guest has started.
const PATIENCE: Duration = Duration::from_secs(70);

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Request {
    /// A connection to the agent.
    Agent,
    /// A signal to the command, and the machine's end if that has not ended it after some time.
    Stop {
        /// That time.
        seconds: u64,
    },
    /// A signal to the command.
    Signal {
        /// Linux's number.
        number: u8,
    },
    /// The machine's end, now.
    Kill,
    /// What the command reads: the writing end of a pipe.
    Input,
    /// The command's terminal has another size.
    Resize {
        /// Characters in a line.
        columns: u16,
        /// Lines.
        rows: u16,
    },
    /// Its figures: a file with [`crate::stats::Stats`] in JSON.
    Stat,
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    error: Option<String>,
}

/// A monitor's side.
#[derive(Debug)]
pub struct Server {
    machine: Machine,
    listener: UnixListener,
    clients: Vec<Client>,
}

/// Somebody who asks.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    line: Vec<u8>,
}

impl Server {
    /// Begins to listen. The machine is held.
    pub fn start(machine: &Machine) -> anyhow::Result<Self> {
        let (_folder, path) = short_path(machine)?;
        let listener =
            UnixListener::bind(path).context("cannot make the machine's control socket")?;
        listener.set_nonblocking(true)?;
        Ok(Server {
            machine: machine.clone(),
            listener,
            clients: Vec::new(),
        })
    }

    /// Whose it is.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Adds what [`Server::requests`] waits for.
    pub fn waits<'a>(&'a self, waits: &mut Waits<'a>) {
        waits.to_read(self.listener.as_fd());
        for client in &self.clients {
            waits.to_read(client.stream.as_fd());
        }
    }

    /// What has been asked for, and by whom.
    pub fn requests(&mut self) -> Vec<(Request, Client)> {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() == MAX_CLIENTS {
                self.clients.remove(0);
            }
            if stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client {
                    stream,
                    line: Vec::new(),
                });
            }
        }
        let mut requests = Vec::new();
        for mut client in std::mem::take(&mut self.clients) {
            match client.read() {
                Ok(None) => self.clients.push(client),
                Ok(Some(request)) => requests.push((request, client)),
                Err(error) => client.answer(Err(error.to_string())),
            }
        }
        requests
    }
}

impl Client {
    fn read(&mut self) -> io::Result<Option<Request>> {
        let mut piece = [0; 512];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.line.extend(piece.iter().take(n)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
            if let Some(line) = self.line.strip_suffix(b"\n") {
                return Ok(Some(serde_json::from_slice(line)?));
            }
            if self.line.len() > MAX_LINE {
                return Err(io::Error::other("too long a line"));
            }
        }
    }

    /// Says how it went.
    pub fn answer(self, result: Result<(), String>) {
        // Fails when nobody wants to know any more.
        let _ = send(&self.stream, result.err(), None);
    }

    /// Gives a connection.
    pub fn give(self, file: &OwnedFd) {
        let _ = send(&self.stream, None, Some(file));
    }
}

fn send(stream: &UnixStream, error: Option<String>, file: Option<&OwnedFd>) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(&Answer { error })?;
    line.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    if !files.is_empty() {
        attached.push(SendAncillaryMessage::ScmRights(&files));
    }
    sendmsg(
        stream,
        &[IoSlice::new(&line)],
        &mut attached,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// A request to a machine's monitor that is not answered yet.
#[derive(Debug)]
pub struct Asked {
    stream: UnixStream,
    /// The machine's.
    name: String,
    until: Instant,
}

impl Asked {
    /// Sends the request.
    ///
    /// # Errors
    /// The machine has no monitor that listens.
    pub fn new(machine: &Machine, request: &Request) -> anyhow::Result<Self> {
        let (_folder, path) = short_path(machine)?;
        let connected = UnixStream::connect(path);
        let mut stream = connected.with_context(|| unreachable(&machine.name))?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        // It fits into the socket's buffer.
        stream
            .write_all(&line)
            .with_context(|| unreachable(&machine.name))?;
        stream.set_nonblocking(true)?;
        Ok(Asked {
            stream,
            name: machine.name.clone(),
            until: Instant::now() + PATIENCE,
        })
    }

    /// The machine's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds what [`Asked::answer`] waits for.
    pub fn waits<'a>(&'a self, waits: &mut Waits<'a>) {
        waits.to_read(self.stream.as_fd());
        waits.until(self.until);
    }

    /// The answer, if it is there: the descriptor that came with it, if any.
    ///
    /// # Errors
    /// The monitor refuses the request, does not answer in time, or has ended.
    pub fn answer(&self) -> anyhow::Result<Poll<Option<OwnedFd>>> {
        let mut bytes = vec![0; MAX_LINE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut attached = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            &self.stream,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut attached,
            RecvFlags::CMSG_CLOEXEC,
        );
        let received = match received {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) if Instant::now() < self.until => {
                return Ok(Poll::Pending);
            }
            Err(error) => {
                return Err(io::Error::from(error)).with_context(|| unreachable(&self.name));
            }
        };
        let mut file = None;
        for message in attached.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                file = files.last().or(file);
            }
        }
        let answer: Answer =
            serde_json::from_slice(bytes.get(..received.bytes).unwrap_or_default())
                .with_context(|| format!("{}: no answer", unreachable(&self.name)))?;
        match answer.error {
            None => Ok(Poll::Ready(file)),
            Some(error) => bail!("machine {}: {error}", self.name),
        }
    }
}

fn unreachable(name: &str) -> String {
    format!("cannot reach the monitor of machine {name}")
}

/// Asks a machine's monitor, and waits for the answer: the descriptor that came with it, if any.
///
/// # Errors
/// As [`Asked`] says.
pub fn ask(machine: &Machine, request: &Request) -> anyhow::Result<Option<OwnedFd>> {
    let asked = Asked::new(machine, request)?;
    loop {
        if let Poll::Ready(file) = asked.answer()? {
            return Ok(file);
        }
        let mut waits = Waits::default();
        asked.waits(&mut waits);
        waits.wait()?;
    }
}

/// The socket by a name that is short enough, whatever the folder's; valid while the first one lives.
fn short_path(machine: &Machine) -> anyhow::Result<(OwnedFd, PathBuf)> {
    let folder = rustix::fs::open(
        machine.folder(),
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .with_context(|| machine.folder().display().to_string())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/control", folder.as_raw_fd()));
    Ok((folder, path))
}
