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
/// Pause between two attempts to connect to a vbusd that has too many waiting.
const PAUSE: Duration = Duration::from_millis(10);
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
    events: VecDeque<(Event, Option<OwnedFd>)>,
    packet: Vec<u8>,
}

impl Control {
    /// Connects to vbusd. The socket does not block.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    pub fn connect(path: &Path) -> Result<Self, Error> {
        let unreachable = |error| Error::Unreachable(path.display().to_string(), error);
        let address = SocketAddrUnix::new(path).map_err(unreachable)?;
        let deadline = Instant::now() + PATIENCE;
        Ok(Control {
            socket: connect_until(&address, deadline).map_err(unreachable)?,
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

    /// Sends a request with files, and returns the reply with its files.
    ///
    /// # Errors
    /// Any.
    pub fn ask_with(
        &mut self,
        request: &Request,
        files: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), Error> {
        let deadline = Instant::now() + PATIENCE;
        send_until(self.socket.as_fd(), &encode(request)?, files, deadline)?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // It is not readable after a signal either.
            if !readable(self.socket.as_fd(), Some(left))? && left.is_zero() {
                // A late answer would be taken for the answer to another request.
                return Err(no_answer());
            }
            match self.next()? {
                Some((Reply::Event(_), _)) if left.is_zero() => return Err(no_answer()),
                Some((Reply::Event(event), files)) => self.keep(event, files)?,
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

    /// Keeps an event for later. Of too many, those are lost that the client can ask for: not the
    /// ends of connections, and not announcements, of which vbusd has one for each connection.
    fn keep(&mut self, event: Event, files: Vec<OwnedFd>) -> Result<(), Error> {
        if self.events.len() == EVENTS {
            let listed = |event: &Event| {
                matches!(
                    event,
                    Event::Added { .. } | Event::Dropped { .. } | Event::Lost
                )
            };
            self.events.retain(|(event, _)| !listed(event));
            if self.events.len() >= EVENTS - 1 {
                let text = format!("more than {EVENTS} events that no list replaces");
                return Err(Error::Protocol(text));
            }
            self.events.push_front((Event::Lost, None));
        }
        self.events.push_back((event, files.into_iter().next()));
        Ok(())
    }

    /// The next event, if one has come.
    ///
    /// # Errors
    /// vbusd has ended.
    pub fn event(&mut self) -> Result<Option<Event>, Error> {
        Ok(self.event_with()?.map(|(event, _)| event))
    }

    /// The next event, if one has come, with the file that came beside it.
    ///
    /// # Errors
    /// vbusd has ended.
    pub fn event_with(&mut self) -> Result<Option<(Event, Option<OwnedFd>)>, Error> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        match self.next()? {
            Some((Reply::Event(event), files)) => Ok(Some((event, files.into_iter().next()))),
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

/// A socket that is connected to this address. A vbusd that is stopped takes no connection from its
/// queue. A full queue makes a blocking `connect` wait without a limit.
///
/// `SO_SNDTIMEO` would limit that wait and those of `sendmsg`. A machine's thread may not set
/// options of sockets (`vbus-join` in `monitor/policies`), so the socket does not block.
fn connect_until(address: &SocketAddrUnix, deadline: Instant) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    loop {
        match connect(&socket, address) {
            // The queue is full, and poll does not report when it has room.
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
            done => return done.map(|()| socket),
        }
    }
}

/// Sends a packet, for which vbusd may have to make room first.
fn send_until(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    files: &[BorrowedFd<'_>],
    deadline: Instant,
) -> Result<(), Error> {
    loop {
        match send(socket, packet, files, SendFlags::DONTWAIT) {
            Err(protocol::Error::Full) => {}
            done => return Ok(done?),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(no_answer());
        }
        let mut sockets = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
        wait(&mut sockets, Some(left))?;
    }
}

fn no_answer() -> Error {
    Error::Lost("vbusd does not answer".to_string())
}

/// The error of a reply that does not belong to its request.
pub fn unexpected(reply: &Reply) -> Error {
    let text = format!("{reply:?}");
    Error::Protocol(format!("an unexpected answer: {text:.80}"))
}

/// Waits until a file is readable or has ended. False: the time is over, or a signal came.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use paravane_vbus::ConnectionId;
    use rustix::net::{accept, bind, listen, socketpair};

    const SOON: Duration = Duration::from_millis(100);
    const FAR: Duration = Duration::from_secs(60);

    #[test]
    fn a_full_backlog_is_waited_for_until_the_time_is_over() {
        let name = format!("paravane-vbus-client-{}", std::process::id());
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let listener = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        bind(&listener, &address).unwrap();
        listen(&listener, 0).unwrap();
        // Even such a queue has room for one.
        let _first = connect_until(&address, Instant::now() + FAR).unwrap();
        let (begun, late) = (Instant::now(), Instant::now() + SOON);
        assert_eq!(connect_until(&address, late).unwrap_err(), Errno::TIMEDOUT);
        assert!(begun.elapsed() >= SOON);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(SOON);
                accept(&listener).unwrap()
            });
            connect_until(&address, Instant::now() + FAR).unwrap();
        });
        drop(listener);
        let gone = connect_until(&address, Instant::now() + FAR);
        assert_eq!(gone.unwrap_err(), Errno::CONNREFUSED);
    }

    /// When there are too many events, those that a client cannot ask for again are kept, in a
    /// bounded number.
    #[test]
    fn announcements_and_ends_outlast_the_loss_of_events() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (socket, _theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let mut control = Control {
            socket,
            events: VecDeque::new(),
            packet: Vec::new(),
        };
        let announcement = Event::Withdrawn {
            connection: ConnectionId(1),
            place: 2,
        };
        control.keep(announcement.clone(), Vec::new()).unwrap();
        for id in 0..1000 {
            control.keep(Event::Dropped { id }, Vec::new()).unwrap();
            assert!(control.events.len() <= EVENTS);
        }
        assert_eq!(control.event(), Ok(Some(Event::Lost)));
        assert_eq!(control.event(), Ok(Some(announcement.clone())));
        let kept = (0..1000).map(|_| control.keep(announcement.clone(), Vec::new()));
        let refused = kept.filter(Result::is_err).count();
        assert!(refused > 0 && control.events.len() <= EVENTS);
    }

    #[test]
    fn room_for_a_packet_is_waited_for_until_the_time_is_over() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(family, kind, flags, None).unwrap();
        let packet = vec![7; MAX];
        let send_in = |time| send_until(ours.as_fd(), &packet, &[], Instant::now() + time);
        let full = (0..10_000).find_map(|_| send_in(Duration::ZERO).err());
        assert_eq!(full, Some(no_answer()));
        assert_eq!(send_in(SOON), Err(no_answer()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(SOON);
                let mut taken = vec![0; MAX];
                while receive(theirs.as_fd(), &mut taken, RecvFlags::DONTWAIT).is_ok() {}
            });
            assert_eq!(send_in(FAR), Ok(()));
        });
        drop(theirs);
        assert!(matches!(send_in(FAR), Err(Error::Lost(_))));
    }
}
