// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's socket of a connection.

use super::events::EventFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt,
};
use smoltcp::socket::tcp;
use std::net::SocketAddr;
use std::time::Duration;

/// The keep-alive of a connection: the time of silence before the first probe, the time between two
/// probes, and the number of probes. A peer that has vanished loses its connection after two
/// minutes.
const QUIET: Duration = Duration::from_secs(60);
const ASK: Duration = Duration::from_secs(15);
const TIMES: u32 = 4;

/// What the host reports of a socket.
pub const REPORTS: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::PRI)
    .union(EventFlags::RDHUP);

/// Prepares a socket, or a listener for all that it accepts. Options that the host does not know
/// are left out: the connection works without them.
pub fn prepare(socket: impl AsFd) {
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    let _ = sockopt::set_socket_keepalive(&socket, true);
    let _ = sockopt::set_tcp_keepidle(&socket, QUIET);
    let _ = sockopt::set_tcp_keepintvl(&socket, ASK);
    let _ = sockopt::set_tcp_keepcnt(&socket, TIMES);
    // Urgent data is data.
    let _ = sockopt::set_socket_oobinline(&socket, true);
}

/// Starts a connection.
pub fn connect(to: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if to.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    prepare(&fd);
    match rustix::net::connect(&fd, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(error) => Err(error),
    }
}

/// A socket, and what it has reported.
#[derive(Debug)]
pub struct Host {
    fd: OwnedFd,
    /// It may have data, or its end.
    readable: bool,
    /// It reported its end, or an error: reading must find it.
    ending: bool,
    /// It has reported urgent data, at which each read stops.
    urgent: bool,
    /// It accepts data, or a connection was made or refused.
    writable: bool,
    /// An error has ended it. Earlier data may still be there to read.
    broken: bool,
    /// All that it sends was read.
    pub done: bool,
}

impl Host {
    /// A connection that was made (`open`), or is being made.
    pub fn new(fd: OwnedFd, open: bool) -> Self {
        // An accepted connection may have data already; the first read finds it.
        Host {
            fd,
            readable: open,
            ending: false,
            urgent: false,
            writable: open,
            broken: false,
            done: false,
        }
    }

    /// The socket has reported. Returns whether there is something to do.
    pub fn report(&mut self, flags: EventFlags) -> bool {
        let end = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        let waited = !self.writable;
        self.ending |= flags.intersects(end);
        self.urgent |= flags.intersects(EventFlags::PRI);
        let readable = flags.intersects(end | EventFlags::IN | EventFlags::PRI);
        self.readable |= readable;
        self.writable |= flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
        readable || (waited && self.writable)
    }

    /// Whether the connection was made. `None`: not yet.
    pub fn connected(&self) -> Option<Result<(), Errno>> {
        self.writable
            .then(|| sockopt::socket_error(&self.fd).and_then(|error| error))
    }

    /// Whether an error has ended it.
    pub fn broken(&self) -> bool {
        self.broken
    }

    /// Whether an error has ended it, and all that came before was read.
    pub fn failed(&self) -> bool {
        self.broken && self.done
    }

    /// Passes on what the guest has sent, as far as the host accepts it. Returns whether it
    /// accepted anything. After an error the data goes nowhere.
    pub fn write(&mut self, guest: &mut tcp::Socket<'_>) -> bool {
        let mut any = false;
        while self.writable && !self.broken && guest.can_recv() {
            let fd = &self.fd;
            let sent = guest.recv(
                |data| match rustix::net::send(fd, data, SendFlags::NOSIGNAL) {
                    Ok(length) => (length, Ok(())),
                    Err(error) => (0, Err(error)),
                },
            );
            match sent {
                Ok(Ok(())) => any = true,
                Ok(Err(Errno::INTR)) => {}
                Ok(Err(Errno::AGAIN)) => self.writable = false,
                // The host has told the error, and a read later may see an end in its place.
                Ok(Err(_)) | Err(_) => {
                    (self.broken, self.readable, self.ending) = (true, true, true);
                }
            }
        }
        while self.broken && guest.can_recv() {
            if guest.recv(|data| (data.len(), ())).is_err() {
                break;
            }
        }
        any
    }

    /// Reads what the guest's socket has room for. Returns whether there was anything.
    pub fn read(&mut self, guest: &mut tcp::Socket<'_>) -> bool {
        let mut any = false;
        while self.readable && !self.done && guest.can_send() {
            let fd = &self.fd;
            let got = guest.send(|space| {
                let room = space.len();
                match rustix::net::recv(fd, space, RecvFlags::empty()) {
                    Ok((length, _)) => (length, Ok((length, room))),
                    Err(error) => (0, Err(error)),
                }
            });
            match got {
                Ok(Ok((0, _))) => {
                    self.done = true;
                    any = true;
                    // The guest must not take a failure for an end.
                    if !self.broken {
                        guest.close();
                    }
                }
                Ok(Ok((length, room))) => {
                    any = true;
                    // A stream that gives less than it could has no more, unless it is at its end
                    // or at urgent data.
                    self.readable = length == room || self.ending || self.urgent;
                }
                Ok(Err(Errno::INTR)) => {}
                // A socket that an error has ended gets nothing more.
                Ok(Err(Errno::AGAIN)) if !self.broken => self.readable = false,
                Ok(Err(_)) | Err(_) => (self.broken, self.done, any) = (true, true, true),
            }
        }
        any
    }

    /// The guest sends nothing more.
    pub fn shut(&self) {
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    /// The other end will see a failure, not an end, when the socket is dropped.
    pub fn fail(&self) {
        let _ = sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO));
    }
}

impl AsFd for Host {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
