// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP connections: smoltcp's socket towards the guest, the host's socket towards the world, and
//! the bytes between them.
//!
//! When the guest opens a connection, the host's socket connects first. The guest's SYN is answered
//! only when that has succeeded. So the guest sees a refusal as a refusal.

use super::frame;
use super::stack::Queues;
use super::{Config, MAX_TCP, TCP_BUFFER};
use crate::{Error, Protocol, Publish};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt,
};
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::Duration;
use std::collections::HashSet;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};

/// The guest must answer within this time when it has something to answer.
const TIMEOUT: Duration = Duration::from_secs(120);
/// After so many connections it is worth giving memory back to the host.
const MANY: usize = 16;
/// Ports of the router that published connections come from.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49_152..=65_535;

#[derive(Debug)]
enum State {
    /// The host's socket is connecting. The guest's SYN waits.
    Connecting {
        syn: Vec<u8>,
    },
    Open(SocketHandle),
}

#[derive(Debug)]
struct Flow {
    /// The guest's end and the remote end. Together they identify the flow.
    guest: SocketAddrV4,
    remote: SocketAddrV4,
    host: OwnedFd,
    state: State,
    /// The host's end has sent all.
    host_done: bool,
    /// The guest's end has sent all, and the host's socket is shut down for writing.
    guest_done: bool,
    /// The host's end accepts no data now.
    host_full: bool,
}

/// All connections.
#[derive(Debug)]
pub struct Connections {
    flows: Vec<Flow>,
    /// (guest, remote) of all flows.
    known: HashSet<(SocketAddrV4, SocketAddrV4)>,
    listeners: Vec<(TcpListener, Publish)>,
    next_port: u16,
    /// The most flows at a time since memory was last given back.
    most: usize,
}

impl Connections {
    /// Listens on the published ports.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let mut listeners = Vec::new();
        for publish in config
            .publish
            .iter()
            .filter(|p| p.protocol == Protocol::Tcp)
        {
            let fail = |error| Error::Publish {
                address: publish.host,
                protocol: Protocol::Tcp,
                error,
            };
            let listener = TcpListener::bind(publish.host).map_err(fail)?;
            listener.set_nonblocking(true).map_err(fail)?;
            let host = listener.local_addr().map_err(fail)?;
            listeners.push((listener, Publish { host, ..*publish }));
        }
        Ok(Connections {
            flows: Vec::new(),
            known: HashSet::new(),
            listeners,
            next_port: *EPHEMERAL.start(),
            most: 0,
        })
    }

    /// The number of flows now.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// The published ports, as bound.
    pub fn published(&self) -> impl Iterator<Item = Publish> + '_ {
        self.listeners.iter().map(|(_, p)| *p)
    }

    /// Handles a SYN of the guest. It is kept until the host has connected. The stack refuses what
    /// is not allowed.
    pub fn begin(
        &mut self,
        config: &Config,
        from: SocketAddrV4,
        to: SocketAddrV4,
        syn: &[u8],
        queues: &mut Queues,
    ) {
        if self.known.contains(&(from, to)) {
            let waits = |f: &Flow| matches!(f.state, State::Connecting { .. });
            // The guest repeats its SYN because the host is slow, or the connection exists and the
            // stack decides.
            if !self
                .flows
                .iter()
                .any(|f| (f.guest, f.remote) == (from, to) && waits(f))
            {
                queues.push_stack(syn);
            }
            return;
        }
        if !frame::unicast(*from.ip()) || self.flows.len() >= MAX_TCP {
            return;
        }
        let host = config
            .outside(*to.ip())
            .and_then(|ip| connect(SocketAddr::new(ip, to.port())));
        let Some(host) = host else {
            queues.push_stack(syn);
            return;
        };
        self.add(Flow {
            guest: from,
            remote: to,
            host,
            state: State::Connecting { syn: syn.to_vec() },
            host_done: false,
            guest_done: false,
            host_full: false,
        });
    }

    fn add(&mut self, flow: Flow) {
        self.known.insert((flow.guest, flow.remote));
        self.flows.push(flow);
    }

    /// Does all that can be done without waiting. `poll` runs the stack. True: there is more to do
    /// at once.
    pub fn serve(
        &mut self,
        config: &Config,
        interface: &mut Interface,
        sockets: &mut SocketSet<'_>,
        queues: &mut Queues,
        mut poll: impl FnMut(&mut Interface, &mut SocketSet<'_>, &mut Queues),
    ) -> bool {
        self.accept(config, interface, sockets);
        let mut busy = false;
        for flow in &mut self.flows {
            if let State::Connecting { syn } = &flow.state {
                let Some(result) = connected(&flow.host) else {
                    continue;
                };
                // This SYN meets its own listener, and no other SYN comes in between, so the socket
                // is of this flow.
                let handle = result.then(|| listen(sockets, flow.remote)).flatten();
                queues.push_stack(syn);
                poll(interface, sockets, queues);
                let Some(handle) = handle else {
                    flow.host_done = true;
                    flow.guest_done = true;
                    continue;
                };
                flow.state = State::Open(handle);
            }
            if let State::Open(handle) = flow.state {
                busy |= pump(flow, sockets.get_mut(handle));
            }
        }
        self.remove(sockets);
        busy
    }

    fn accept(&mut self, config: &Config, interface: &mut Interface, sockets: &mut SocketSet<'_>) {
        for index in 0..self.listeners.len() {
            while self.flows.len() < MAX_TCP {
                let Some((listener, publish)) = self.listeners.get(index) else {
                    break;
                };
                let guest = SocketAddrV4::new(config.guest, publish.guest);
                let Ok((stream, _)) = listener.accept() else {
                    break;
                };
                let Some(remote) = self.free_port(config, guest) else {
                    break;
                };
                let Some(host) = prepare(stream) else {
                    continue;
                };
                let mut socket = socket();
                if socket.connect(interface.context(), guest, remote).is_err() {
                    continue;
                }
                let state = State::Open(sockets.add(socket));
                self.add(Flow {
                    guest,
                    remote,
                    host,
                    state,
                    host_done: false,
                    guest_done: false,
                    host_full: false,
                });
            }
        }
    }

    /// An address of the router that no flow to `guest` uses.
    fn free_port(&mut self, config: &Config, guest: SocketAddrV4) -> Option<SocketAddrV4> {
        for _ in 0..=MAX_TCP {
            let port = self.next_port;
            self.next_port = if port >= *EPHEMERAL.end() {
                *EPHEMERAL.start()
            } else {
                port + 1
            };
            let remote = SocketAddrV4::new(config.gateway, port);
            if !self.known.contains(&(guest, remote)) {
                return Some(remote);
            }
        }
        None
    }

    /// Removes flows that have ended at both ends.
    fn remove(&mut self, sockets: &mut SocketSet<'_>) {
        self.most = self.most.max(self.flows.len());
        let known = &mut self.known;
        self.flows.retain(|flow| {
            let ended = match flow.state {
                State::Connecting { .. } => flow.host_done && flow.guest_done,
                State::Open(handle) => {
                    let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
                    // A reset leaves in the poll after its request. Until then the remote end is
                    // known.
                    let ended =
                        socket.state() == tcp::State::Closed && socket.remote_endpoint().is_none();
                    if ended {
                        sockets.remove(handle);
                    }
                    ended
                }
            };
            if ended {
                known.remove(&(flow.guest, flow.remote));
            }
            !ended
        });
        if self.most >= MANY && self.flows.len() <= self.most / 4 {
            self.most = self.flows.len();
            give_back();
        }
    }

    /// Descriptors to wait for.
    pub fn interests<'a>(&'a self, sockets: &SocketSet<'_>, polls: &mut Vec<PollFd<'a>>) {
        if self.flows.len() < MAX_TCP {
            polls.extend(
                self.listeners
                    .iter()
                    .map(|(l, _)| PollFd::new(l, PollFlags::IN)),
            );
        }
        for flow in &self.flows {
            let mut flags = PollFlags::empty();
            match flow.state {
                State::Connecting { .. } => flags |= PollFlags::OUT,
                State::Open(handle) => {
                    let socket = sockets.get::<tcp::Socket<'_>>(handle);
                    flags.set(PollFlags::IN, !flow.host_done && socket.can_send());
                    flags.set(PollFlags::OUT, flow.host_full);
                }
            }
            if !flags.is_empty() {
                polls.push(PollFd::new(&flow.host, flags));
            }
        }
    }
}

/// Returns the allocator's memory of closed buffers to the host. The allocator would keep that of
/// many connections for ever.
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function frees no memory that is in use, and any thread may call it.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn socket() -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; TCP_BUFFER]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    // This wire loses and delays nothing, so waiting gains nothing.
    socket.set_nagle_enabled(false);
    socket.set_ack_delay(None);
    socket.set_timeout(Some(TIMEOUT));
    socket
}

fn listen(sockets: &mut SocketSet<'_>, at: SocketAddrV4) -> Option<SocketHandle> {
    let mut socket = socket();
    socket.listen(at).ok()?;
    Some(sockets.add(socket))
}

/// Starts a connection of the host.
fn connect(to: SocketAddr) -> Option<OwnedFd> {
    let family = if to.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None).ok()?;
    let _ = sockopt::set_tcp_nodelay(&fd, true);
    match rustix::net::connect(&fd, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Some(fd),
        Err(_) => None,
    }
}

/// Whether a connection is established. `None` while it is being made.
fn connected(fd: &OwnedFd) -> Option<bool> {
    let mut polls = [PollFd::new(fd, PollFlags::OUT)];
    match rustix::event::poll(
        &mut polls,
        Some(&rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    ) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(matches!(sockopt::socket_error(fd), Ok(Ok(())))),
    }
}

fn prepare(stream: TcpStream) -> Option<OwnedFd> {
    stream.set_nonblocking(true).ok()?;
    let _ = stream.set_nodelay(true);
    Some(stream.into())
}

/// Moves bytes both ways. True: bytes were moved, so there may be more.
fn pump(flow: &mut Flow, socket: &mut tcp::Socket<'_>) -> bool {
    let mut moved = false;
    flow.host_full = false;
    while socket.can_recv() {
        let sent =
            socket.recv(
                |data| match rustix::net::send(&flow.host, data, SendFlags::NOSIGNAL) {
                    Ok(length) => (length, Ok(())),
                    Err(error) => (0, Err(error)),
                },
            );
        match sent {
            Ok(Ok(())) => moved = true,
            Ok(Err(Errno::INTR)) => {}
            Ok(Err(Errno::AGAIN)) => {
                flow.host_full = true;
                break;
            }
            // The other end is gone, so close this one.
            Ok(Err(_)) | Err(_) => {
                socket.abort();
                return true;
            }
        }
    }
    // Established and not may_recv: the guest has sent its FIN, and all data before it has been
    // passed on.
    let handshake = matches!(
        socket.state(),
        tcp::State::Listen | tcp::State::SynSent | tcp::State::SynReceived
    );
    if !handshake && !socket.may_recv() && !socket.can_recv() && !flow.guest_done {
        flow.guest_done = true;
        let _ = rustix::net::shutdown(&flow.host, Shutdown::Write);
    }
    while !flow.host_done && socket.can_send() {
        let got =
            socket.send(
                |space| match rustix::net::recv(&flow.host, space, RecvFlags::empty()) {
                    Ok((length, _)) => (length, Ok(length)),
                    Err(error) => (0, Err(error)),
                },
            );
        match got {
            Ok(Ok(0)) => {
                flow.host_done = true;
                socket.close();
                moved = true;
            }
            Ok(Ok(_)) => moved = true,
            Ok(Err(Errno::INTR)) => {}
            Ok(Err(Errno::AGAIN)) => break,
            Ok(Err(_)) | Err(_) => {
                socket.abort();
                return true;
            }
        }
    }
    moved
}
