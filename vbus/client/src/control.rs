// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The socket to vbusd: a request, its reply, and events between them.

use paravane_vbus::{BusInfo, DeviceInfo, Event, Name};
use paravane_vbus_protocol as protocol;
use protocol::{MAX, Reply, Request, decode, encode, receive, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
    socket_with,
};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time for an answer. vbusd answers when the host has done what was asked. A tap of a busy
/// host waits for other changes of its networks, and that has taken more than ten seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most events that are kept until they are asked for. vbusd bounds them, too, and says what was
/// lost.
const EVENTS: usize = 256;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// vbusd refuses the request.
    #[error(transparent)]
    Refused(#[from] paravane_vbus::Error),
    /// vbusd, or the connection, has ended. A client can reconnect.
    #[error("the connection has ended: {0}")]
    Lost(String),
    /// The device broke the protocol of a queue.
    #[error("the device broke the protocol: {0}")]
    Breach(paravane_vbus_shm::Breach),
    /// No vbusd listens.
    #[error("cannot reach vbusd at {0}: {1}: `paravane vbus daemon` starts it")]
    Unreachable(String, Errno),
    /// The disk could not do it.
    #[error("the disk could not do it")]
    Failed,
    /// The host refuses something.
    #[error("{0}: {1}")]
    Host(&'static str, Errno),
    /// vbusd says something unexpected.
    #[error("vbusd: {0}")]
    Protocol(String),
    /// The caller passed something that is not possible.
    #[error("{0}")]
    Invalid(String),
}

impl From<protocol::Error> for Error {
    fn from(error: protocol::Error) -> Self {
        match error {
            protocol::Error::Closed => Error::Lost("vbusd has ended".to_string()),
            error => Error::Protocol(error.to_string()),
        }
    }
}

/// A connection to vbusd.
#[derive(Debug)]
pub struct Control {
    socket: OwnedFd,
    events: VecDeque<Event>,
    packet: Vec<u8>,
}

impl Control {
    /// Connects to vbusd.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    pub fn connect(path: &Path) -> Result<Self, Error> {
        let unreachable = |error| Error::Unreachable(path.display().to_string(), error);
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None);
        let socket = socket.map_err(unreachable)?;
        let address = SocketAddrUnix::new(path).map_err(unreachable)?;
        connect(&socket, &address).map_err(unreachable)?;
        Ok(Control {
            socket,
            events: VecDeque::new(),
            packet: vec![0; MAX],
        })
    }

    /// Sends a request and waits for its reply. Errors of vbusd are [`Error::Refused`].
    ///
    /// # Errors
    /// Any.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, Error> {
        self.ask_with(request, &[]).map(|(reply, _)| reply)
    }

    /// The same with files in both directions.
    ///
    /// # Errors
    /// Any.
    pub fn ask_with(
        &mut self,
        request: &Request,
        files: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), Error> {
        send(
            self.socket.as_fd(),
            &encode(request)?,
            files,
            SendFlags::empty(),
        )?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if !readable(self.socket.as_fd(), Some(left))? {
                // What it answers later would be taken for the answer to another request.
                return Err(Error::Lost("vbusd does not answer".to_string()));
            }
            match self.next()? {
                Some((Reply::Event(event), _)) => self.keep(event),
                Some((Reply::Error(error), _)) => return Err(error.into()),
                Some(answer) => return Ok(answer),
                None => {}
            }
        }
    }

    fn next(&mut self) -> Result<Option<(Reply, Vec<OwnedFd>)>, Error> {
        match receive(self.socket.as_fd(), &mut self.packet, RecvFlags::DONTWAIT) {
            Ok((len, files)) => Ok(Some((decode(&self.packet[..len])?, files))),
            Err(protocol::Error::Full) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn keep(&mut self, event: Event) {
        if self.events.len() == EVENTS {
            self.events.clear();
            self.events.push_back(Event::Lost);
        }
        self.events.push_back(event);
    }

    /// The next event, if one has come.
    ///
    /// # Errors
    /// vbusd has ended.
    pub fn event(&mut self) -> Result<Option<Event>, Error> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        match self.next()? {
            Some((Reply::Event(event), _)) => Ok(Some(event)),
            Some((reply, _)) => Err(unexpected(&reply)),
            None => Ok(None),
        }
    }

    /// Whether an event came with an earlier reply.
    #[must_use]
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// The socket, to wait for events.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// All buses.
    ///
    /// # Errors
    /// Any.
    pub fn buses(&mut self) -> Result<Vec<BusInfo>, Error> {
        let mut all: Vec<BusInfo> = Vec::new();
        loop {
            let after = all.last().and_then(|bus| Name::new(&bus.name).ok());
            match self.ask(&Request::Buses { after })? {
                Reply::Buses(page) if page.is_empty() => return Ok(all),
                Reply::Buses(page) => all.extend(page),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// All devices.
    ///
    /// # Errors
    /// Any.
    pub fn devices(&mut self) -> Result<Vec<DeviceInfo>, Error> {
        let mut all: Vec<DeviceInfo> = Vec::new();
        loop {
            let after = all.last().and_then(|device| Name::new(&device.name).ok());
            match self.ask(&Request::Devices { after })? {
                Reply::Devices(page) if page.is_empty() => return Ok(all),
                Reply::Devices(page) => all.extend(page),
                other => return Err(unexpected(&other)),
            }
        }
    }
}

/// The error of a reply that does not belong to its request.
pub fn unexpected(reply: &Reply) -> Error {
    let text = format!("{reply:?}");
    Error::Protocol(format!("an unexpected answer: {text:.80}"))
}

/// Waits until a file is readable or has ended. False: the time is over.
pub fn readable(file: BorrowedFd<'_>, time: Option<Duration>) -> Result<bool, Error> {
    let mut files = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
    wait(&mut files, time)
}

/// Waits for one of these files. False: the time is over, or a signal came.
pub fn wait(files: &mut [PollFd<'_>], time: Option<Duration>) -> Result<bool, Error> {
    let time = time.and_then(|time| Timespec::try_from(time).ok());
    match poll(files, time.as_ref()) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(Error::Host("cannot wait", error)),
    }
}
