// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control socket of a machine's monitor: one line of JSON in each direction.
//!
//! A client that asks for the agent gets a connection to it. The monitor then only carries the
//! bytes, in its vsock device. The socket's folder belongs to the user alone.

use crate::store::Machine;
use anyhow::{Context, bail};
use paravane_user_io::events::Waits;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Largest length of a line, in bytes.
const MAX_LINE: usize = 4096;
/// Largest number of clients that have not sent their request yet. One more drops the oldest.
const MAX_CLIENTS: usize = 256;
/// Largest size of an answer in JSON, in bytes. The figures of 64 vCPUs and 32 devices, and the ids
/// of 1024 processes, are far smaller.
const MAX_JSON: u64 = 1 << 20;
/// The time to the next try to take a client, after one could not be taken.
const PAUSE: Duration = Duration::from_millis(50);
/// Timeout for an answer. A monitor answers at once, or when the guest has started.
const PATIENCE: Duration = Duration::from_secs(70);

/// A request to a machine's monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Request {
    /// A connection to the agent.
    Agent,
    /// Sends a signal to the command, and ends the machine if the command does not end in time.
    Stop {
        /// The time for the command, in seconds.
        seconds: u64,
    },
    /// Sends a signal to the command.
    Signal {
        /// Linux' number of the signal.
        number: u8,
    },
    /// Ends the machine at once.
    Kill,
    /// The command's input: the writing end of a pipe.
    Input,
    /// Sets the size of the command's terminal.
    Resize {
        /// Characters in a line.
        columns: u16,
        /// Lines.
        rows: u16,
    },
    /// The machine's figures: a file with [`crate::stats::Stats`] in JSON.
    Stat,
    /// Sets an attribute of the machine's cards on a virtual bus.
    Card {
        /// Its name.
        attribute: String,
        /// Microseconds.
        value: u32,
    },
    /// Where its code is: a file with [`crate::layout::Layout`] in JSON.
    Layout,
    /// The kernel's file, for its symbols. The monitor reads it too, so a client must not move its
    /// position.
    Kernel,
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    error: Option<String>,
}

/// The monitor's side.
#[derive(Debug)]
pub struct Server {
    machine: Machine,
    listener: UnixListener,
    clients: Vec<Client>,
    /// A descriptor for a client that comes when the process has no other left.
    spare: Option<OwnedFd>,
    /// No client can be taken before this time. Until then, the listener would be reported over and
    /// over.
    refused: Option<Instant>,
}

/// A client.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    line: Vec<u8>,
}

impl Server {
    /// Starts to listen. The caller holds the machine.
    pub fn start(machine: &Machine) -> anyhow::Result<Self> {
        let (_folder, path) = short_path(machine)?;
        let listener =
            UnixListener::bind(path).context("cannot make the machine's control socket")?;
        listener.set_nonblocking(true)?;
        let spare = Some(listener.as_fd().try_clone_to_owned()?);
        Ok(Server {
            machine: machine.clone(),
            listener,
            clients: Vec::new(),
            spare,
            refused: None,
        })
    }

    /// The machine that this server belongs to.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Adds what [`Server::requests`] waits for.
    pub fn waits<'a>(&'a self, waits: &mut Waits<'a>) {
        match self.refused {
            Some(until) => waits.until(until),
            None => waits.to_read(self.listener.as_fd()),
        }
        for client in &self.clients {
            waits.to_read(client.stream.as_fd());
        }
    }

    /// New requests, each with its client.
    pub fn requests(&mut self) -> Vec<(Request, Client)> {
        self.accept();
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

    fn accept(&mut self) {
        if self.refused.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.refused = None;
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Another thread may be faster than this one.
                Err(error) if is_full(&error) && self.spare.take().is_some() => continue,
                Err(error) => {
                    tracing::warn!("cannot take a client of the machine: {error}");
                    self.refused = Some(Instant::now() + PAUSE);
                    break;
                }
            };
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
        if self.spare.is_none() {
            self.spare = self.listener.as_fd().try_clone_to_owned().ok();
        }
    }
}

/// Whether an error says that no descriptor is left, in this process or on the host.
fn is_full(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    number == Some(Errno::MFILE.raw_os_error()) || number == Some(Errno::NFILE.raw_os_error())
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

    /// Answers with the result.
    pub fn answer(self, result: Result<(), String>) {
        // Fails if the client has gone.
        let _ = send(&self.stream, result.err(), None);
    }

    /// Answers with a descriptor.
    pub fn give(self, file: &impl AsFd) {
        let _ = send(&self.stream, None, Some(file.as_fd()));
    }
}

fn send(
    stream: &UnixStream,
    error: Option<String>,
    file: Option<BorrowedFd<'_>>,
) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(&Answer { error })?;
    line.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = file.into_iter().collect();
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

/// A request that has not been answered yet.
#[derive(Debug)]
pub struct Asked {
    stream: UnixStream,
    /// The machine's name.
    name: String,
    patience: Duration,
    until: Instant,
}

impl Asked {
    /// Sends the request.
    ///
    /// # Errors
    /// The machine has no monitor that listens.
    pub fn new(machine: &Machine, request: &Request) -> anyhow::Result<Self> {
        let (_folder, path) = short_path(machine)?;
        let gone = |error| unreachable(&machine.name, error);
        let mut stream = UnixStream::connect(path).map_err(gone)?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        // The request fits into the socket's buffer.
        stream.write_all(&line).map_err(gone)?;
        stream.set_nonblocking(true)?;
        Ok(Asked {
            stream,
            name: machine.name.clone(),
            patience: PATIENCE,
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

    /// The answer, if it has arrived, with its descriptor, if any.
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
            Err(Errno::AGAIN | Errno::INTR) => bail!(
                "machine {}: its monitor has not answered for {} s",
                self.name,
                self.patience.as_secs()
            ),
            Err(error) => return Err(unreachable(&self.name, error).into()),
        };
        if received.bytes == 0 {
            return Err(unreachable(&self.name, "it has ended").into());
        }
        let mut file = None;
        for message in attached.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                file = files.last().or(file);
            }
        }
        let answer: Answer = serde_json::from_slice(
            bytes.get(..received.bytes).unwrap_or_default(),
        )
        .with_context(|| format!("machine {}: its monitor's answer is damaged", self.name))?;
        match answer.error {
            None => Ok(Poll::Ready(file)),
            Some(error) => bail!("machine {}: {error}", self.name),
        }
    }
}

/// A machine has no monitor that listens, or has lost it before the answer: it is ending, or is
/// about to start again. The error of the socket is words only: the caller's own output has no part
/// in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot reach the monitor of machine {name}: {why}")]
pub struct Unreachable {
    name: String,
    why: String,
}

fn unreachable(name: &str, why: impl ToString) -> Unreachable {
    Unreachable {
        name: name.to_string(),
        why: why.to_string(),
    }
}

/// Sends a request to a machine's monitor and waits for the answer, with its descriptor, if any.
///
/// # Errors
/// As those of [`Asked`].
pub fn ask(machine: &Machine, request: &Request) -> anyhow::Result<Option<OwnedFd>> {
    ask_within(machine, request, PATIENCE)
}

/// Sends a request and waits for the answer within this limit: a stopped monitor gives none.
///
/// # Errors
/// The machine has no monitor that listens, it refuses the request, or it does not answer in time.
pub fn ask_within(
    machine: &Machine,
    request: &Request,
    patience: Duration,
) -> anyhow::Result<Option<OwnedFd>> {
    let mut asked = Asked::new(machine, request)?;
    asked.patience = patience;
    asked.until = Instant::now() + patience;
    loop {
        if let Poll::Ready(file) = asked.answer()? {
            return Ok(file);
        }
        let mut waits = Waits::default();
        asked.waits(&mut waits);
        waits.wait()?;
    }
}

/// A file that can be given to another program: its content is JSON.
///
/// # Errors
/// The host gives no pair of sockets.
pub fn json_file(what: &impl Serialize) -> anyhow::Result<OwnedFd> {
    let (theirs, mut ours) = UnixStream::pair().context("cannot make a pair of sockets")?;
    // A client that does not read must not keep the monitor: a socket holds far more than this.
    ours.set_nonblocking(true)?;
    ours.write_all(&serde_json::to_vec(what)?)?;
    Ok(theirs.into())
}

/// Asks for a file whose content is JSON, and reads it.
///
/// # Errors
/// As those of [`Asked`], or the content is not what was asked for.
pub fn ask_json<T: DeserializeOwned>(machine: &Machine, request: &Request) -> anyhow::Result<T> {
    let Some(file) = ask(machine, request)? else {
        bail!("machine {}: its monitor gave no figures", machine.name);
    };
    let mut text = Vec::new();
    File::from(file).take(MAX_JSON).read_to_end(&mut text)?;
    serde_json::from_slice(&text).with_context(|| {
        format!(
            "machine {}: its monitor's figures are damaged",
            machine.name
        )
    })
}

/// The socket under a name that is short enough for any folder. It is valid while the descriptor is
/// open.
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
