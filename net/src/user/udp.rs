// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datagrams. Each address that the guest sends from gets a socket of the host.

use super::events::{EventFlags, Events, Source};
use super::peers::Peers;
use super::{Config, MAX_UDP, frame};
use crate::{Error, Protocol, Publish};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

/// A socket that was idle for so long is closed.
const IDLE: Duration = Duration::from_secs(120);
/// The same for a socket that only queried a name server.
const IDLE_QUERY: Duration = Duration::from_secs(10);
/// Datagrams from one socket before others get their turn.
const BURST: usize = 32;
const DNS_PORT: u16 = 53;

/// The user of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    guest: SocketAddrV4,
    /// For queries to the name server. The answers come from the router.
    query: bool,
    /// The host's address is IPv6.
    six: bool,
    /// Of a published port. It sends to addresses other than those that have sent to it.
    aside: bool,
}

#[derive(Debug)]
struct Entry {
    /// By which the host's reports name it.
    id: u64,
    socket: UdpSocket,
    /// It is in the queue of those that may have datagrams.
    queued: bool,
    used: Instant,
    /// Made for a published port. Never closed.
    published: Option<Published>,
}

/// More about the socket of a published port.
#[derive(Debug)]
struct Published {
    port: Publish,
    /// The host's own programs that have sent to it. The guest may answer them.
    peers: Peers,
}

/// All sockets.
#[derive(Debug)]
pub struct Datagrams {
    entries: HashMap<Key, Entry>,
    ids: HashMap<u64, Key>,
    next_id: u64,
    /// Sockets that may have datagrams.
    ready: VecDeque<Key>,
    buffer: Vec<u8>,
}

impl Datagrams {
    /// Binds the published ports.
    pub fn new(config: &Config, events: &Events) -> Result<Self, Error> {
        let mut datagrams = Datagrams {
            entries: HashMap::new(),
            ids: HashMap::new(),
            next_id: 0,
            ready: VecDeque::new(),
            buffer: vec![0; crate::MAX_FRAME],
        };
        for publish in config
            .publish
            .iter()
            .filter(|p| p.protocol == Protocol::Udp)
        {
            let fail = |error| Error::Publish {
                address: publish.host,
                protocol: Protocol::Udp,
                error,
            };
            let socket = UdpSocket::bind(publish.host).map_err(fail)?;
            socket.set_nonblocking(true).map_err(fail)?;
            let host = socket.local_addr().map_err(fail)?;
            let key = Key {
                guest: SocketAddrV4::new(config.guest, publish.guest),
                query: false,
                six: publish.host.is_ipv6(),
                aside: false,
            };
            let published = Some(Published {
                port: Publish { host, ..*publish },
                peers: Peers::default(),
            });
            datagrams
                .add(events, key, socket, published)
                .map_err(fail)?;
        }
        Ok(datagrams)
    }

    fn add(
        &mut self,
        events: &Events,
        key: Key,
        socket: UdpSocket,
        published: Option<Published>,
    ) -> io::Result<()> {
        let id = self.next_id;
        events.add(&socket, Source::Datagrams(id), EventFlags::IN)?;
        self.next_id += 1;
        self.ids.insert(id, key);
        let entry = Entry {
            id,
            socket,
            queued: false,
            used: Instant::now(),
            published,
        };
        if let Some(before) = self.entries.insert(key, entry) {
            self.ids.remove(&before.id);
        }
        Ok(())
    }

    /// A socket may have datagrams.
    pub fn reports(&mut self, id: u64) {
        let Some(&key) = self.ids.get(&id) else {
            return;
        };
        if let Some(entry) = self.entries.get_mut(&key).filter(|entry| !entry.queued) {
            entry.queued = true;
            self.ready.push_back(key);
        }
    }

    /// Whether there are sockets that must be closed when they were idle for long
    /// ([`close_idle`](Datagrams::close_idle)).
    pub fn may_idle(&self) -> bool {
        self.entries.values().any(|entry| entry.published.is_none())
    }

    /// The published ports, as bound.
    pub fn published(&self) -> impl Iterator<Item = Publish> + '_ {
        self.entries
            .values()
            .filter_map(|e| Some(e.published.as_ref()?.port))
    }

    /// Handles a datagram of the guest. If it cannot be sent it is lost, as datagrams are.
    pub fn outgoing(
        &mut self,
        config: &Config,
        events: &Events,
        from: SocketAddrV4,
        to: SocketAddrV4,
        data: &[u8],
    ) {
        if !frame::unicast(*from.ip()) {
            return;
        }
        let query = *to.ip() == config.dns && to.port() == DNS_PORT;
        let peer = self.peer(config, from, to).filter(|_| !query);
        let target = if query {
            config.resolver
        } else {
            peer.or_else(|| {
                config
                    .outside(*to.ip())
                    .map(|ip| SocketAddr::new(ip, to.port()))
            })
        };
        let Some(target) = target else { return };
        let mut key = Key {
            guest: from,
            query,
            six: target.is_ipv6(),
            aside: false,
        };
        // A socket bound to the loopback reaches this host's programs on all of its addresses, and
        // they would take the guest for a program of this host.
        let published = self
            .entries
            .get(&key)
            .and_then(|entry| entry.published.as_ref());
        key.aside = peer.is_none()
            && published.is_some_and(|published| published.port.host.ip().is_loopback());
        if !self.entries.contains_key(&key) && !self.open(events, key) {
            return;
        }
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.used = Instant::now();
            let _ = entry.socket.send_to(data, target);
        }
    }

    /// The program of this host that receives an answer from a published port. The guest sees all
    /// programs as the router, and reaches only those that have sent to that port.
    fn peer(&self, config: &Config, guest: SocketAddrV4, to: SocketAddrV4) -> Option<SocketAddr> {
        if *to.ip() != config.gateway {
            return None;
        }
        let now = Instant::now();
        [false, true].into_iter().find_map(|six| {
            let key = Key {
                guest,
                query: false,
                six,
                aside: false,
            };
            let published = self.entries.get(&key)?.published.as_ref()?;
            published.peers.get(to.port(), now)
        })
    }

    fn open(&mut self, events: &Events, key: Key) -> bool {
        if self.entries.len() >= MAX_UDP {
            self.close_oldest();
        }
        let any: IpAddr = if key.six {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        };
        let Ok(socket) = UdpSocket::bind(SocketAddr::new(any, 0)) else {
            return false;
        };
        socket.set_nonblocking(true).is_ok() && self.add(events, key, socket, None).is_ok()
    }

    /// Closes the socket that was idle longest, so that there is room for another.
    fn close_oldest(&mut self) {
        let oldest = self
            .entries
            .iter()
            .filter(|(_, e)| e.published.is_none())
            .min_by_key(|(_, e)| e.used);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            if let Some(entry) = self.entries.remove(&key) {
                self.ids.remove(&entry.id);
            }
        }
    }

    /// Closes the sockets that were idle for long.
    pub fn close_idle(&mut self) {
        let now = Instant::now();
        let ids = &mut self.ids;
        self.entries.retain(|key, entry| {
            let limit = if key.query { IDLE_QUERY } else { IDLE };
            let stays = entry.published.is_some() || now.duration_since(entry.used) < limit;
            if !stays {
                ids.remove(&entry.id);
            }
            stays
        });
    }

    /// Passes received datagrams to `to_guest(from, to, data)`, as long as it returns true. True:
    /// there may be more.
    pub fn incoming(
        &mut self,
        config: &Config,
        mut to_guest: impl FnMut(SocketAddrV4, SocketAddrV4, &[u8]) -> bool,
    ) -> bool {
        for _ in 0..self.ready.len() {
            let Some(key) = self.ready.pop_front() else {
                break;
            };
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            entry.queued = false;
            let mut more = true;
            let mut room = true;
            for _ in 0..BURST {
                let (length, peer) = match entry.socket.recv_from(&mut self.buffer) {
                    Ok(got) => got,
                    // The error belongs to an earlier datagram (port unreachable). The next receive
                    // may return data.
                    Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => continue,
                    Err(_) => {
                        more = false;
                        break;
                    }
                };
                entry.used = Instant::now();
                if let Some(published) = &mut entry.published {
                    if config.inside(peer.ip()) == Some(config.gateway) {
                        published.peers.note(peer, entry.used);
                    }
                }
                let from = if key.query {
                    // Accept answers only from the address that was asked.
                    (Some(peer) == config.resolver)
                        .then_some(SocketAddrV4::new(config.dns, DNS_PORT))
                } else {
                    config
                        .inside(peer.ip())
                        .map(|ip| SocketAddrV4::new(ip, peer.port()))
                };
                let data = self.buffer.get(..length).unwrap_or_default();
                if from.is_some_and(|from| !to_guest(from, key.guest, data)) {
                    room = false;
                    break;
                }
            }
            if more {
                entry.queued = true;
                self.ready.push_back(key);
            }
            if !room {
                return true;
            }
        }
        !self.ready.is_empty()
    }
}
