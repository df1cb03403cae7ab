// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One TCP connection: smoltcp's socket towards the guest, the host's socket towards the world, and
//! the bytes between them.

use super::TCP_BUFFER;
use super::events::EventFlags;
use super::guard::{self, Window};
use super::wire::Wire;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, sockopt};
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use std::net::SocketAddrV4;

/// The guest must answer within this time when it has something to answer.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long an acknowledgement waits for data that takes it along. A frame with nothing else costs
/// the guest an interrupt.
const ACK_DELAY: Duration = Duration::from_millis(5);
/// After an acknowledgement that waited in vain, so many pieces of data are acknowledged at once;
/// twice as many after the next one, up to [`MOST_PROMPT`].
const PROMPT: u32 = 8;
const MOST_PROMPT: u32 = 1024;

/// A socket of smoltcp, alone in its set: a frame is given to the socket of its connection, and no
/// other is looked at.
#[derive(Debug)]
pub struct Socket {
    set: SocketSet<'static>,
    handle: SocketHandle,
}

impl Socket {
    pub fn new() -> Self {
        let buffer = || tcp::SocketBuffer::new(vec![0; TCP_BUFFER]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        // This wire loses and delays nothing, so waiting gains nothing.
        socket.set_nagle_enabled(false);
        let mut set = SocketSet::new(Vec::with_capacity(1));
        let handle = set.add(socket);
        Socket { set, handle }
    }

    /// The only socket.
    pub fn tcp(&mut self) -> &mut tcp::Socket<'static> {
        self.set.get_mut(self.handle)
    }

    /// For frames of the guest.
    pub fn set(&mut self) -> &mut SocketSet<'static> {
        &mut self.set
    }
}

/// The stage of a connection.
#[derive(Debug)]
pub enum State {
    /// The host's socket is connecting. The guest's SYN waits.
    Connecting { syn: Vec<u8> },
    /// The guest's side exists.
    Open(Box<Socket>),
}

/// The guest's end and the remote end. Together they identify the flow.
pub type Ends = (SocketAddrV4, SocketAddrV4);

/// The host's socket of a connection, and what it has reported.
#[derive(Debug)]
struct Host {
    fd: OwnedFd,
    /// It may have data, or its end.
    readable: bool,
    /// It reported its end, or an error: reading must find it.
    ending: bool,
    /// It accepts data, or a connection was made or refused.
    writable: bool,
    /// All that it sends was read.
    done: bool,
}

/// The other end of a connection is gone.
struct Gone;

impl Host {
    /// Passes on what the guest has sent, as far as the host accepts it.
    fn write(&mut self, guest: &mut tcp::Socket<'_>) -> Result<(), Gone> {
        while self.writable && guest.can_recv() {
            let fd = &self.fd;
            let sent = guest.recv(
                |data| match rustix::net::send(fd, data, SendFlags::NOSIGNAL) {
                    Ok(length) => (length, Ok(())),
                    Err(error) => (0, Err(error)),
                },
            );
            match sent {
                Ok(Ok(()) | Err(Errno::INTR)) => {}
                Ok(Err(Errno::AGAIN)) => self.writable = false,
                Ok(Err(_)) | Err(_) => return Err(Gone),
            }
        }
        Ok(())
    }

    /// Reads what the guest's socket has room for. Returns whether there was anything.
    fn read(&mut self, guest: &mut tcp::Socket<'_>) -> Result<bool, Gone> {
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
                    guest.close();
                    any = true;
                }
                Ok(Ok((length, room))) => {
                    any = true;
                    // A stream that gives less than it could has no more, unless it is at its end.
                    self.readable = length == room || self.ending;
                }
                Ok(Err(Errno::INTR)) => {}
                Ok(Err(Errno::AGAIN)) => self.readable = false,
                Ok(Err(_)) | Err(_) => return Err(Gone),
            }
        }
        Ok(any)
    }
}

/// A connection.
#[derive(Debug)]
pub struct Flow {
    pub ends: Ends,
    host: Host,
    pub state: State,
    window: Window,
    /// The guest's end has sent all, and the host's socket is shut down for writing.
    guest_done: bool,
    /// It is in the queue of those to be served.
    pub queued: bool,
    /// When the guest's side must be looked at, if nothing comes before.
    pub deadline: Option<Instant>,
    /// The deadline has come.
    pub late: bool,
    /// Acknowledgements may wait.
    ack_delay: bool,
    /// Pieces of data of the guest to be acknowledged at once.
    prompt: u32,
    /// What `prompt` is after the next acknowledgement that waits in vain.
    next_prompt: u32,
    /// When the guest must have acknowledged the end.
    last: Option<Instant>,
    /// The acknowledgements that waited in vain.
    #[cfg(test)]
    pub late_count: u32,
}

/// What there is to do after a flow was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing until something comes, or its deadline.
    Wait,
    /// The guest has no room for its frames.
    Stuck,
    /// It has ended at both ends.
    Ended,
}

impl Flow {
    pub fn new(ends: Ends, host: OwnedFd, state: State, ack_delay: bool) -> Self {
        // An accepted connection may have data already; the first look tells.
        let open = matches!(state, State::Open(_));
        Flow {
            ends,
            host: Host {
                fd: host,
                readable: open,
                ending: false,
                writable: open,
                done: false,
            },
            state,
            window: Window::default(),
            guest_done: false,
            queued: false,
            deadline: None,
            late: false,
            ack_delay,
            prompt: 0,
            next_prompt: PROMPT,
            last: None,
            #[cfg(test)]
            late_count: 0,
        }
    }

    /// The host's socket has reported. Returns whether there is something to do.
    pub fn report(&mut self, flags: EventFlags) -> bool {
        let end = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        let host = &mut self.host;
        let waited = !host.writable;
        host.ending |= flags.intersects(end);
        let readable = flags.intersects(end | EventFlags::IN);
        host.readable |= readable;
        host.writable |= flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
        readable || (waited && host.writable)
    }

    /// Whether the host has made the connection, while it is [`State::Connecting`]. `None`: not
    /// yet.
    pub fn connected(&self) -> Option<bool> {
        self.host
            .writable
            .then(|| matches!(sockopt::socket_error(&self.host.fd), Ok(Ok(()))))
    }

    /// A frame of the guest for an open connection.
    pub fn segment(&mut self, wire: &mut Wire<'_>, frame: &[u8]) {
        let State::Open(socket) = &mut self.state else {
            return;
        };
        let Some(header) = guard::header(frame) else {
            return;
        };
        let Some(frame) = self.window.admit(socket.tcp().state(), &header, frame) else {
            return;
        };
        let before = socket.tcp().recv_queue();
        let delay = (self.ack_delay && self.prompt == 0).then_some(ACK_DELAY);
        socket.tcp().set_ack_delay(delay);
        wire.out.said = None;
        wire.ingress(socket.set(), &frame);
        if let Some(said) = wire.out.said.take() {
            self.window.sent(&said);
        }
        if socket.tcp().recv_queue() > before {
            self.prompt = self.prompt.saturating_sub(1);
        }
    }

    /// Does all that can be done without waiting.
    pub fn serve(&mut self, wire: &mut Wire<'_>) -> Next {
        let State::Open(socket) = &mut self.state else {
            return Next::Wait;
        };
        let tcp = socket.tcp();
        let mut read = false;
        let moved = self.host.write(tcp).and_then(|()| {
            // Established and not may_recv: the guest has sent its FIN, and all data before it has
            // been passed on.
            if !handshakes(tcp.state()) && !tcp.may_recv() && !tcp.can_recv() && !self.guest_done {
                self.guest_done = true;
                let _ = rustix::net::shutdown(&self.host.fd, Shutdown::Write);
            }
            read = self.host.read(tcp)?;
            Ok(())
        });
        let last = ends(tcp.state()).then(|| self.last.unwrap_or(wire.now + TIMEOUT));
        self.last = last;
        let failed = moved.is_err() || last.is_some_and(|last| last <= wire.now);
        if failed {
            // Close this end, too.
            tcp.abort();
        }
        // An idle connection may stay as long as its ends want. smoltcp would end it.
        let waits = handshakes(tcp.state()) || tcp.send_queue() > 0;
        tcp.set_timeout(waits.then_some(TIMEOUT));
        wire.out.said = None;
        let sent = wire.egress(socket.set());
        if let Some(said) = wire.out.said.take() {
            self.window.sent(&said);
        }
        if std::mem::take(&mut self.late) && sent && !read {
            self.prompt = self.next_prompt;
            self.next_prompt = (self.next_prompt * 2).min(MOST_PROMPT);
            #[cfg(test)]
            {
                self.late_count += 1;
            }
        }
        self.deadline = [wire.deadline(socket.set()), last]
            .into_iter()
            .flatten()
            .min();
        let tcp = socket.tcp();
        match tcp.state() {
            _ if wire.out.stuck() => Next::Stuck,
            // The guest has taken its SYN back.
            tcp::State::Listen => Next::Ended,
            // A reset has been sent, or the guest does not tell where it is. Or both ends have
            // closed, and the last acknowledgement was sent: on this wire it arrives. What the
            // guest has sent before is passed on first.
            tcp::State::Closed | tcp::State::TimeWait if failed || !tcp.can_recv() => Next::Ended,
            _ => Next::Wait,
        }
    }
}

/// Whether the connection is being made.
fn handshakes(state: tcp::State) -> bool {
    matches!(
        state,
        tcp::State::Listen | tcp::State::SynSent | tcp::State::SynReceived
    )
}

/// Whether the guest has to acknowledge the end, or has done so.
fn ends(state: tcp::State) -> bool {
    matches!(
        state,
        tcp::State::FinWait1
            | tcp::State::Closing
            | tcp::State::LastAck
            | tcp::State::TimeWait
            | tcp::State::Closed
    )
}
