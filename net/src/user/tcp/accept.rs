// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that come in through published ports.

use super::super::events::{EventFlags, Events, Source};
use super::super::flow::State;
use super::super::wire::Wire;
use super::super::{Config, host};
use super::{Connections, ROUND, new_socket, note};
use crate::{Error, Protocol, Publish};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use smoltcp::time::Duration;
use std::net::{SocketAddrV4, TcpListener};

/// After an error of the host that may pass, connections are accepted again after this time.
const RETRY: Duration = Duration::from_millis(100);
/// Ports of the router that published connections come from. A port that comes again soon may meet
/// what the guest still knows of its last connection, so that all are used that programs may use.
pub const EPHEMERAL: std::ops::RangeInclusive<u16> = 1024..=65_535;

/// A port of the host that leads into the guest.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    pub publish: Publish,
    /// There may be connections to accept.
    pub ready: bool,
}

/// Listens on the published ports.
pub fn listen(config: &Config, events: &Events) -> Result<Vec<Listener>, Error> {
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
        let socket = TcpListener::bind(publish.host).map_err(fail)?;
        socket.set_nonblocking(true).map_err(fail)?;
        host::prepare(&socket);
        let host = socket.local_addr().map_err(fail)?;
        let source = Source::Listener(listeners.len() as u64);
        events.add(&socket, source, EventFlags::IN).map_err(fail)?;
        listeners.push(Listener {
            socket,
            publish: Publish { host, ..*publish },
            ready: false,
        });
    }
    Ok(listeners)
}

impl Connections {
    /// A listener may have connections.
    pub fn listener_reports(&mut self, index: u64) {
        let listener = usize::try_from(index)
            .ok()
            .and_then(|index| self.listeners.get_mut(index));
        if let Some(listener) = listener {
            listener.ready = true;
        }
    }

    /// Accepts connections for the guest. True: there may be more.
    pub fn accept(&mut self, config: &Config, events: &Events, wire: &mut Wire<'_>) -> bool {
        let mut more = false;
        for index in 0..self.listeners.len() {
            more |= (0..ROUND).all(|_| self.accept_one(index, config, events, wire));
        }
        more
    }

    /// Accepts a connection. False: there is none, or none now.
    fn accept_one(
        &mut self,
        index: usize,
        config: &Config,
        events: &Events,
        wire: &mut Wire<'_>,
    ) -> bool {
        let ready = self.listeners.get(index).is_some_and(|l| l.ready);
        let full =
            self.flows.len() >= self.limit && !self.flows.values().any(|flow| flow.published);
        if !ready || full || wire.out.stuck() {
            return false;
        }
        let Some(listener) = self.listeners.get_mut(index) else {
            return false;
        };
        let guest = SocketAddrV4::new(config.guest, listener.publish.guest);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let host = match rustix::net::accept_with(&listener.socket, flags) {
            Ok(host) => host,
            Err(Errno::AGAIN) => {
                listener.ready = false;
                return false;
            }
            Err(_) => {
                // Such as too many descriptors. The listener does not report again.
                note(&mut self.earliest, wire.now + RETRY);
                return false;
            }
        };
        // The guest's own have the rest.
        self.make_room(wire, self.limit / 4 * 3);
        let Some(remote) = self.free_port(config, guest) else {
            return false;
        };
        let mut socket = new_socket(&mut self.spare, self.flows.len() < self.large_buffers);
        let context = wire.interface.context();
        if socket.tcp().connect(context, guest, remote).is_ok() {
            let state = State::Open(socket);
            if let Some(id) = self.add(events, (guest, remote), host, state, wire.now) {
                self.enqueue(id);
            }
        }
        true
    }

    /// An address of the router that no flow to `guest` uses.
    fn free_port(&mut self, config: &Config, guest: SocketAddrV4) -> Option<SocketAddrV4> {
        for _ in 0..=self.limit {
            let port = self.next_port;
            self.next_port = if port >= *EPHEMERAL.end() {
                *EPHEMERAL.start()
            } else {
                port + 1
            };
            let remote = SocketAddrV4::new(config.gateway, port);
            if !self.known.contains_key(&(guest, remote)) {
                return Some(remote);
            }
        }
        None
    }
}
