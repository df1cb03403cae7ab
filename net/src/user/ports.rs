// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Published ports for datagrams: sockets of the host with a known port that lead into the guest.

use super::Config;
use super::datagram::{self, Looked};
use super::peers::{MOST, Peer, Peers, SILENT};
use super::recent::Recent;
use crate::{Error, Protocol, Publish};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Instant;

/// A published port.
#[derive(Debug)]
pub struct Port {
    pub socket: UdpSocket,
    /// It is in the queue of those that may have datagrams.
    pub queued: bool,
    publish: Publish,
}

/// The peers that have sent to a port of the guest, by any published port.
#[derive(Debug)]
struct Heard {
    /// Peers that the guest sees as the router.
    masked: Peers,
    /// Peers that the guest sees by their own address, and the published port that they used last,
    /// by its index.
    plain: Recent<SocketAddrV4, usize>,
}

/// All published ports.
#[derive(Debug)]
pub struct Ports {
    list: Vec<Port>,
    /// By the guest's port.
    heard: HashMap<u16, Heard>,
}

impl Ports {
    /// Binds them.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let mut ports = Ports {
            list: Vec::new(),
            heard: HashMap::new(),
        };
        let wanted = config.publish.iter();
        for publish in wanted.filter(|p| p.protocol == Protocol::Udp) {
            let fail = |error| Error::Publish {
                address: publish.host,
                protocol: Protocol::Udp,
                error,
            };
            let socket = UdpSocket::bind(publish.host).map_err(fail)?;
            socket.set_nonblocking(true).map_err(fail)?;
            let host = socket.local_addr().map_err(fail)?;
            ports.list.push(Port {
                socket,
                queued: false,
                publish: Publish { host, ..*publish },
            });
            ports.heard.entry(publish.guest).or_insert_with(|| Heard {
                masked: Peers::default(),
                plain: Recent::new(MOST, SILENT),
            });
        }
        Ok(ports)
    }

    /// All of them, in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = &Port> {
        self.list.iter()
    }

    pub fn get_mut(&mut self, index: usize) -> Option<&mut Port> {
        self.list.get_mut(index)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Takes datagrams from the port of this index, which has left the queue.
    pub fn receive(
        &mut self,
        config: &Config,
        index: usize,
        buffer: &mut [u8],
        to_guest: &mut impl FnMut(SocketAddrV4, SocketAddrV4, &[u8]) -> bool,
    ) -> Option<Looked> {
        let port = self.list.get_mut(index)?;
        port.queued = false;
        let heard = self.heard.get_mut(&port.publish.guest)?;
        let guest = SocketAddrV4::new(config.guest, port.publish.guest);
        let ends = |from| Some((heard.note(config, index, from), guest));
        Some(datagram::receive(&port.socket, buffer, ends, to_guest))
    }

    /// Sends a datagram of the guest if its port is published and there is a published port that
    /// may send it: the one to which the receiver has sent, or one by which the guest does not
    /// appear as another sender. Returns whether there was one.
    pub fn send(&self, config: &Config, from: SocketAddrV4, to: SocketAddrV4, data: &[u8]) -> bool {
        let heard = self.heard.get(&from.port());
        let Some(heard) = heard.filter(|_| *from.ip() == config.guest) else {
            return false;
        };
        let (now, masked) = (Instant::now(), *to.ip() == config.gateway);
        let peer = heard.masked.get(to.port(), now).filter(|_| masked);
        let sends = peer.map(|peer| (peer.via, peer.address)).or_else(|| {
            let ip = config.outside(*to.ip())?;
            let used = heard.plain.get(&to).filter(|_| !masked);
            let used = used.filter(|(_, last)| now.duration_since(*last) < SILENT);
            let via = used.map(|(via, _)| via).or_else(|| {
                let own = |port: &Port| port.publish.guest == from.port() && port.is_of_the_host();
                self.list.iter().position(own)
            })?;
            Some((via, SocketAddr::new(ip, to.port())))
        });
        let Some((port, target)) = sends.and_then(|(via, to)| Some((self.list.get(via)?, to)))
        else {
            return false;
        };
        // If it cannot be sent it is lost, as datagrams are.
        let _ = port.socket.send_to(data, port.target(target));
        true
    }
}

impl Heard {
    /// Records a peer that has sent to a published port. Returns whom the guest sees.
    fn note(&mut self, config: &Config, via: usize, from: SocketAddr) -> SocketAddrV4 {
        let now = Instant::now();
        // An IPv6 socket sees IPv4 addresses as such of its own.
        let address = match from.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), from.port()),
            // With its zone, if it has one.
            IpAddr::V6(_) => from,
        };
        match address {
            SocketAddr::V4(plain) if config.outside(*plain.ip()) == Some(address.ip()) => {
                self.plain.note(plain, via, now);
                plain
            }
            _ => SocketAddrV4::new(config.gateway, self.masked.note(Peer { address, via }, now)),
        }
    }
}

impl Port {
    /// The port, as bound.
    pub fn publish(&self) -> Publish {
        self.publish
    }

    /// Whether what it sends comes from an IPv4 address by which others know this host. A socket
    /// of the loopback reaches this host's programs on all of its addresses, and they would take
    /// the guest for a program of this host. The same holds for a socket that is bound to an IPv6
    /// address: to IPv4 addresses it sends from 127.0.0.6.
    fn is_of_the_host(&self) -> bool {
        match self.publish.host.ip().to_canonical() {
            IpAddr::V4(ip) => !ip.is_loopback(),
            IpAddr::V6(ip) => ip.is_unspecified(),
        }
    }

    /// An address as the socket takes it.
    fn target(&self, to: SocketAddr) -> SocketAddr {
        match to.ip() {
            IpAddr::V4(ip) if self.publish.host.is_ipv6() => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), to.port())
            }
            _ => to,
        }
    }
}
