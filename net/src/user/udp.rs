// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datagrams. Each address that the guest sends from gets a socket of the host, and each published
//! port has one.
//!
//! A socket of an address of the guest receives only datagrams of peers to which the guest has
//! sent: to others the host's port is closed. Sockets for name queries are connected to the name
//! server, so the host reports that none is there, and the guest need not wait for an answer.

use super::datagram::{Incoming, Looked, Sent, reason, receive};
use super::events::{EventFlags, Events, Source};
use super::ports::Ports;
use super::recent::Recent;
use super::{Config, MAX_UDP, MIN_UDP, frame};
use crate::{Error, Publish};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use smoltcp::wire::{EthernetAddress, Icmpv4DstUnreachable};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

/// The time without a datagram of the guest after which a socket is closed.
const IDLE: Duration = Duration::from_secs(120);
/// That time for a socket that only queried a name server.
const IDLE_QUERY: Duration = Duration::from_secs(10);
/// The most addresses that may answer on a socket: those to which the guest has sent last. A server
/// in the guest, or a peer of many, has hundreds.
const TARGETS: usize = 1024;
const DNS_PORT: u16 = 53;
/// A name server that has not answered for this time, while queries came, is replaced by the next
/// one. Guests repeat a query after 1 to 5 seconds.
const SILENT: Duration = Duration::from_secs(2);
/// The time after which the first one is asked again: the host names its best one first.
const AGAIN: Duration = Duration::from_secs(60);
/// A flow that was answered, and sends after this time, is no single question.
const FLOW: Duration = Duration::from_secs(2);

/// How many sockets there may be.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// The most sockets of name queries. The others have their own room: however many names a guest
    /// looks up, its flows stay.
    queries: usize,
    others: usize,
    /// The number of sockets that are kept at the cost of those that ask once, such as queries for
    /// the time.
    kept: usize,
}

impl Room {
    fn of(all: usize) -> Self {
        let all = all.clamp(MIN_UDP, MAX_UDP);
        let queries = all / 4;
        let others = all - queries;
        Room {
            queries,
            others,
            kept: others * 3 / 4,
        }
    }
}

/// The user of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    guest: SocketAddrV4,
    /// For queries to the name server. The answers come from the router.
    query: bool,
}

#[derive(Debug)]
struct Entry {
    /// By which the host's reports name it.
    id: u64,
    socket: UdpSocket,
    /// The card that has sent last.
    hardware: EthernetAddress,
    /// The first one to which the guest has sent. Name queries go to no other.
    target: SocketAddr,
    /// It is in the queue of those that may have datagrams.
    queued: bool,
    since: Instant,
    /// When the guest has sent last.
    used: Instant,
    /// Datagrams of the guest that were not answered, as far as answers and questions are one to
    /// one.
    owed: u32,
    /// There was an answer.
    answered: bool,
    /// It is a flow of both directions that lasts.
    kept: bool,
    /// Where the guest has sent to, and how it has named that.
    targets: Recent<SocketAddr, SocketAddrV4>,
}

/// All sockets.
#[derive(Debug)]
pub struct Datagrams {
    /// Their ids are their indices.
    ports: Ports,
    entries: HashMap<Key, Entry>,
    ids: HashMap<u64, Key>,
    next_id: u64,
    room: Room,
    /// Since when the name server owes an answer, and has given none to others either.
    asked: Option<Instant>,
    /// How many name servers were given up, and when the last one was.
    given_up: Option<(usize, Instant)>,
    /// Sockets that may have datagrams, each once.
    ready: VecDeque<u64>,
    buffer: Vec<u8>,
}

impl Datagrams {
    /// Binds the published ports.
    pub fn new(config: &Config, events: &Events) -> Result<Self, Error> {
        let ports = Ports::new(config)?;
        let mut next_id = 0;
        for port in ports.iter() {
            let fail = |error| Error::Publish {
                address: port.publish().host,
                protocol: crate::Protocol::Udp,
                error,
            };
            let source = Source::Datagrams(next_id);
            events
                .add(&port.socket, source, EventFlags::IN)
                .map_err(fail)?;
            next_id += 1;
        }
        Ok(Datagrams {
            ports,
            entries: HashMap::new(),
            ids: HashMap::new(),
            next_id,
            room: Room::of(config.datagrams),
            asked: None,
            given_up: None,
            ready: VecDeque::new(),
            buffer: vec![0; crate::MAX_FRAME],
        })
    }

    /// A socket may have datagrams.
    pub fn reports(&mut self, id: u64) {
        let queued = if let Some(port) = index(id).and_then(|index| self.ports.get_mut(index)) {
            &mut port.queued
        } else if let Some(entry) = self.ids.get(&id).and_then(|key| self.entries.get_mut(key)) {
            &mut entry.queued
        } else {
            return;
        };
        if !std::mem::replace(queued, true) {
            self.ready.push_back(id);
        }
    }

    /// Whether there are sockets that must be closed when they were idle for long
    /// ([`close_idle`](Datagrams::close_idle)).
    pub fn may_idle(&self) -> bool {
        !self.entries.is_empty()
    }

    /// The published ports, as bound.
    pub fn published(&self) -> impl Iterator<Item = Publish> + '_ {
        self.ports.iter().map(|port| port.publish())
    }

    /// Handles a datagram of the guest. If it cannot be sent it is lost, as datagrams are. Returns
    /// the reason, if ICMP can report it to the guest.
    pub fn outgoing(
        &mut self,
        config: &mut Config,
        events: &Events,
        sent: &Sent<'_>,
    ) -> Option<Icmpv4DstUnreachable> {
        self.outgoing_at(config, events, sent, Instant::now())
    }

    /// Handles a datagram of the guest at this time.
    pub fn outgoing_at(
        &mut self,
        config: &mut Config,
        events: &Events,
        sent: &Sent<'_>,
        now: Instant,
    ) -> Option<Icmpv4DstUnreachable> {
        let &Sent { from, to, data, .. } = sent;
        if !frame::unicast(*from.ip()) {
            return None;
        }
        let query = *to.ip() == config.dns && to.port() == DNS_PORT;
        if !query && self.ports.send(config, from, to, data) {
            return None;
        }
        let target = if query {
            self.resolver(config, now)
        } else {
            let ip = config.outside(*to.ip());
            ip.map(|ip| SocketAddr::new(ip, to.port()))
        };
        let Some(target) = target else {
            return match query {
                true => Some(Icmpv4DstUnreachable::PortUnreachable),
                // A datagram for many causes no error.
                false if config.for_many(*to.ip()) => None,
                false => Some(Icmpv4DstUnreachable::CommProhibited),
            };
        };
        let key = Key { guest: from, query };
        // The next name server has its own socket.
        if query && self.entries.get(&key).is_some_and(|e| e.target != target) {
            self.close(key);
        }
        if !self.entries.contains_key(&key)
            && let Err(error) = self.open(events, key, target, now)
        {
            let others = query && self.give_up(config, target, now);
            // With an error, the guest asks again at once.
            return reason(&error).or(others.then_some(Icmpv4DstUnreachable::PortUnreachable));
        }
        let entry = self.entries.get_mut(&key)?;
        let lasts = now.duration_since(entry.since) >= FLOW;
        entry.kept |= !query && entry.answered && lasts;
        entry.owed = entry.owed.saturating_add(1);
        entry.used = now;
        entry.hardware = sent.hardware;
        entry.targets.note(target, to, now);
        let done = if query {
            entry.socket.send(data)
        } else {
            // The first one gives the socket a port.
            entry.socket.send_to(data, target)
        };
        let error = done.err()?;
        if query && error.kind() != io::ErrorKind::WouldBlock {
            // Its address may be one that the host has no more. Or it is the answer to an earlier
            // query: that no program has the port.
            self.close(key);
            self.give_up(config, target, now);
        }
        reason(&error)
    }

    /// A name server does not answer: another one is asked for a while. Returns whether there is
    /// another one.
    fn give_up(&mut self, config: &mut Config, target: SocketAddr, now: Instant) -> bool {
        // Each failure counts once, however many queries have it.
        if config.resolvers.first() == Some(&target) {
            config.resolvers.rotate_left(1);
            let before = self.given_up.map_or(0, |(count, _)| count);
            self.given_up = Some(((before + 1) % config.resolvers.len(), now));
            self.asked = None;
        }
        config.resolvers.len() > 1
    }

    /// The name server for a query that comes now.
    fn resolver(&mut self, config: &mut Config, now: Instant) -> Option<SocketAddr> {
        if let Some((count, at)) = self.given_up
            && now.duration_since(at) >= AGAIN
        {
            config.resolvers.rotate_right(count);
            (self.given_up, self.asked) = (None, None);
        }
        let waits = self.asked.map(|at| now.duration_since(at));
        if let Some(waits) = waits.filter(|waits| *waits >= SILENT) {
            // A query of long ago was given up: it says little about the name server.
            self.asked = None;
            if let Some(&first) = config.resolvers.first().filter(|_| waits < IDLE_QUERY) {
                self.give_up(config, first, now);
            }
        }
        self.asked.get_or_insert(now);
        config.resolvers.first().copied()
    }

    /// Makes a socket that can send to addresses such as the target, for name queries to the target
    /// alone.
    fn open(
        &mut self,
        events: &Events,
        key: Key,
        target: SocketAddr,
        now: Instant,
    ) -> io::Result<()> {
        self.make_room(key.query);
        let family = if target.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        if key.query {
            rustix::net::connect(&socket, &target)?;
        }
        let id = self.next_id;
        events.add(&socket, Source::Datagrams(id), EventFlags::IN)?;
        self.next_id += 1;
        self.ids.insert(id, key);
        let entry = Entry {
            id,
            socket: UdpSocket::from(socket),
            hardware: EthernetAddress::BROADCAST,
            target,
            queued: false,
            since: now,
            used: now,
            owed: 0,
            answered: false,
            kept: false,
            targets: Recent::new(TARGETS, IDLE),
        };
        self.entries.insert(key, entry);
        Ok(())
    }

    /// Makes room for another socket, for name queries or for others. If there is none, the socket
    /// of its kind that was idle longest closes. Among name queries, an answered one closes before
    /// one that waits. Among the others, a single question closes before a flow, unless nearly all
    /// are flows.
    fn make_room(&mut self, query: bool) {
        let same = || self.entries.iter().filter(|(key, _)| key.query == query);
        let most = match query {
            true => self.room.queries,
            false => self.room.others,
        };
        if same().count() < most {
            return;
        }
        let protect = same().filter(|(_, entry)| entry.kept).count() <= self.room.kept;
        let rank = |entry: &Entry| match query {
            true => (entry.owed > 0, entry.used),
            false => (protect && entry.kept, entry.used),
        };
        let victim = same().min_by_key(|(_, entry)| rank(entry));
        if let Some(key) = victim.map(|(key, _)| *key) {
            self.close(key);
        }
    }

    fn close(&mut self, key: Key) {
        let Some(entry) = self.entries.remove(&key) else {
            return;
        };
        self.ids.remove(&entry.id);
        // The queue is looked at only while the guest takes its frames.
        if entry.queued {
            self.ready.retain(|id| *id != entry.id);
        }
    }

    /// The sockets that wait to be looked at.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// The sockets of the guest's own.
    #[cfg(test)]
    pub fn sockets(&self) -> usize {
        self.entries.len()
    }

    /// Closes the sockets that were idle for long.
    pub fn close_idle(&mut self) {
        self.close_idle_at(Instant::now());
    }

    /// Closes the sockets that were idle for long at this time.
    pub fn close_idle_at(&mut self, now: Instant) {
        let idle = |(key, entry): (&Key, &Entry)| {
            let limit = if key.query { IDLE_QUERY } else { IDLE };
            (now.duration_since(entry.used) >= limit).then_some(*key)
        };
        let idle: Vec<Key> = self.entries.iter().filter_map(idle).collect();
        idle.into_iter().for_each(|key| self.close(key));
    }

    /// Passes what came to `to_guest`, as long as it returns true. True: there may be more.
    pub fn incoming(
        &mut self,
        config: &mut Config,
        mut to_guest: impl FnMut(Incoming<'_>) -> bool,
    ) -> bool {
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else {
                break;
            };
            let looked = if let Some(index) = index(id).filter(|&i| i < self.ports.len()) {
                let mut give = |from, to, data: &[u8]| {
                    to_guest(Incoming::Datagram {
                        hardware: None,
                        from,
                        to,
                        data,
                    })
                };
                self.ports
                    .receive(config, index, &mut self.buffer, &mut give)
            } else {
                self.answers(config, id, &mut to_guest)
            };
            let Some(Looked { more, room, .. }) = looked else {
                continue;
            };
            if more {
                self.reports(id);
            }
            if !room {
                return true;
            }
        }
        !self.ready.is_empty()
    }

    /// Takes what came for the guest's own socket of this id, which has left the queue.
    fn answers(
        &mut self,
        config: &mut Config,
        id: u64,
        to_guest: &mut impl FnMut(Incoming<'_>) -> bool,
    ) -> Option<Looked> {
        let key = *self.ids.get(&id)?;
        let entry = self.entries.get_mut(&key)?;
        entry.queued = false;
        let (hardware, targets, mut hits) = (entry.hardware, &entry.targets, 0);
        // Only the peer that was asked.
        let ends = |peer| {
            let (from, _) = targets.get(&peer)?;
            hits += 1;
            Some((from, key.guest))
        };
        let mut give = |from, to, data: &[u8]| {
            to_guest(Incoming::Datagram {
                hardware: Some(hardware),
                from,
                to,
                data,
            })
        };
        let mut looked = receive(&entry.socket, &mut self.buffer, ends, &mut give);
        entry.owed = entry.owed.saturating_sub(hits);
        entry.answered |= hits > 0;
        let target = entry.target;
        let current = key.query && config.resolvers.first() == Some(&target);
        if current && hits > 0 {
            self.asked = None;
        }
        if looked.refused && key.query && entry.owed > 0 {
            self.give_up(config, target, Instant::now());
            looked.room &= to_guest(Incoming::Refused {
                hardware,
                from: key.guest,
                to: SocketAddrV4::new(config.dns, DNS_PORT),
            });
            self.close(key);
        }
        Some(looked)
    }
}

/// The published port with this id, if it is one.
fn index(id: u64) -> Option<usize> {
    usize::try_from(id).ok()
}
