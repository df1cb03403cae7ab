// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The socket on which a machine's monitor can be asked for things: one line of JSON each way.
//!
//! Whoever asks for the agent gets a connection to it, and speaks with it from then on without the monitor in between. The
//! socket's folder belongs to the user alone.

use crate::store::Machine;
use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
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
use std::time::Duration;

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

    /// Adds what has to be waited for.
    pub fn files<'a>(&'a self, files: &mut Vec<PollFd<'a>>) {
        files.push(PollFd::new(&self.listener, PollFlags::IN));
        for client in &self.clients {
            files.push(PollFd::new(&client.stream, PollFlags::IN));
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

/// Asks a machine's monitor; what comes with the answer, if anything.
pub fn ask(machine: &Machine, request: &Request) -> anyhow::Result<Option<OwnedFd>> {
    let complain = || format!("cannot reach the monitor of machine {}", machine.name);
    let (_folder, path) = short_path(machine)?;
    let mut stream = UnixStream::connect(path).with_context(complain)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).with_context(complain)?;

    let mut bytes = vec![0; MAX_LINE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        &stream,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut attached,
        RecvFlags::CMSG_CLOEXEC,
    );
    let received = received.map_err(io::Error::from).with_context(complain)?;
    let mut file = None;
    for message in attached.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last().or(file);
        }
    }
    let answer: Answer = serde_json::from_slice(bytes.get(..received.bytes).unwrap_or_default())
        .with_context(|| format!("{}: no answer", complain()))?;
    match answer.error {
        None => Ok(file),
        Some(error) => bail!("machine {}: {error}", machine.name),
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
