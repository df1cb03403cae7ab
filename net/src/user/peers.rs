// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers that have sent to a published port and that the guest sees as the router: this host's own
//! programs, and peers whose address the guest cannot name, such as an IPv6 address.
//!
//! Each has a port of the router for itself. An answer to that port goes to the address from which
//! the peer sent. A port that no peer has leads nowhere. So does the port of a peer that was silent
//! for [`SILENT`]: another program may use its address by then.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The most programs of this host that are remembered, and the most others. A new one replaces the
/// one of its kind that was silent longest.
pub const MOST: usize = 1024;
/// A peer that was silent for longer gets no answer. Datagrams of the guest do not count.
pub const SILENT: Duration = Duration::from_secs(120);
/// The router's ports for peers that do not get their own.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49_152..=65_535;
/// Ports of the router with another meaning: none, and the server of leases.
const OTHERS: [u16; 2] = [0, super::dhcp::SERVER_PORT];

/// The sender of a datagram, and the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The peer's own address.
    pub address: SocketAddr,
    /// The published port, by its index.
    pub via: usize,
}

impl Peer {
    fn is_local(&self) -> bool {
        self.address.ip().is_loopback()
    }
}

/// The peers, by the router's port.
#[derive(Debug)]
pub struct Peers {
    known: HashMap<u16, (Peer, Instant)>,
    ports: HashMap<Peer, u16>,
    /// How many are of this host.
    locals: usize,
    next: u16,
}

impl Default for Peers {
    fn default() -> Self {
        Peers {
            known: HashMap::new(),
            ports: HashMap::new(),
            locals: 0,
            next: *EPHEMERAL.start(),
        }
    }
}

impl Peers {
    /// Notes a datagram of this peer. Returns the router's port that stands for it.
    ///
    /// No other peer gets the port of a peer that may still be answered. A program of this host has
    /// its own port number where that is free, except if another had to go: that one may be
    /// answered, too. All others get one port after the other.
    pub fn note(&mut self, peer: Peer, now: Instant) -> u16 {
        let known = self.ports.get(&peer).copied();
        let port = known.unwrap_or_else(|| {
            let room = self.make_room(peer.is_local(), now);
            let own = peer.address.port();
            let port = if room && peer.is_local() && self.free(own, now) {
                own
            } else {
                self.next_free(now)
            };
            self.remove(port);
            self.ports.insert(peer, port);
            self.locals += usize::from(peer.is_local());
            port
        });
        self.known.insert(port, (peer, now));
        port
    }

    /// Makes room for another of this kind. False: one had to go that may be answered.
    fn make_room(&mut self, local: bool, now: Instant) -> bool {
        let others = self.known.len() - self.locals;
        if if local { self.locals } else { others } < MOST {
            return true;
        }
        let same = |(_, (peer, _)): &(&u16, &(Peer, Instant))| peer.is_local() == local;
        let oldest = self.known.iter().filter(same);
        let oldest = oldest.min_by_key(|(_, (_, last))| *last);
        let Some((port, last)) = oldest.map(|(port, (_, last))| (*port, *last)) else {
            return true;
        };
        self.remove(port);
        now.duration_since(last) >= SILENT
    }

    fn remove(&mut self, port: u16) {
        if let Some((peer, _)) = self.known.remove(&port) {
            self.ports.remove(&peer);
            self.locals -= usize::from(peer.is_local());
        }
    }

    /// Whether the port can be given to a peer.
    fn free(&self, port: u16, now: Instant) -> bool {
        !OTHERS.contains(&port) && self.get(port, now).is_none()
    }

    fn next_free(&mut self, now: Instant) -> u16 {
        loop {
            let port = self.next;
            self.next = port.checked_add(1).unwrap_or(*EPHEMERAL.start());
            // There are more ports than peers.
            if self.free(port, now) {
                return port;
            }
        }
    }

    /// The peer that receives an answer to this port.
    pub fn get(&self, port: u16, now: Instant) -> Option<Peer> {
        let (peer, last) = self.known.get(&port)?;
        (now.duration_since(*last) < SILENT).then_some(*peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn at(address: &str) -> Peer {
        let address = address.parse().unwrap();
        Peer { address, via: 0 }
    }

    fn local(port: u16) -> Peer {
        at(&format!("127.0.0.1:{port}"))
    }

    fn outsider(n: u32) -> Peer {
        let ip = Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(n));
        let address = (ip, 7).into();
        Peer { address, via: 0 }
    }

    #[test]
    fn a_peer_that_has_not_sent_gets_no_answer() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        assert_eq!(peers.get(7, now), None);
        assert_eq!(peers.note(local(7), now), 7);
        assert_eq!(peers.get(7, now), Some(local(7)));
        assert_eq!(peers.get(8, now), None);
    }

    #[test]
    fn a_silent_peer_is_forgotten() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        peers.note(local(7), now);
        let later = now + SILENT;
        let before = later - Duration::from_millis(1);
        assert_eq!(peers.get(7, before), Some(local(7)));
        assert_eq!(peers.get(7, later), None);
        // Its port is free for another, and it gets another itself.
        let other = at("127.0.0.2:7");
        assert_eq!(peers.note(other, later), 7);
        let port = peers.note(local(7), later);
        assert_ne!(port, 7);
        assert_eq!(peers.get(7, later), Some(other));
        assert_eq!(peers.get(port, later), Some(local(7)));
    }

    #[test]
    fn another_address_does_not_take_a_port_over() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        let via = Peer {
            via: 1,
            ..local(53)
        };
        let all = [
            local(53),
            at("127.0.0.2:53"),
            via,
            at("[::1]:53"),
            at("[2001:db8::a]:53"),
            at("[2001:db8::b]:53"),
            at("10.0.2.2:53"),
            at("127.0.0.1:67"),
            at("127.0.0.1:0"),
        ];
        let ports = all.map(|peer| peers.note(peer, now));
        for (peer, port) in all.into_iter().zip(ports) {
            assert_eq!(peers.get(port, now), Some(peer));
            assert_eq!(peers.note(peer, now), port);
            assert!(peer == local(53) && port == 53 || EPHEMERAL.contains(&port));
        }
    }

    #[test]
    fn no_more_are_remembered_than_fit() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        let mut last = 0;
        let end = 4 * u16::try_from(MOST).unwrap();
        for port in 1..=end {
            last = peers.note(local(port), now + Duration::from_millis(port.into()));
            peers.note(
                outsider(port.into()),
                now + Duration::from_millis(port.into()),
            );
            assert!(peers.known.len() <= 2 * MOST, "{}", peers.known.len());
            assert_eq!(peers.known.len(), peers.ports.len());
            let locals = peers.ports.keys().filter(|peer| peer.is_local());
            assert_eq!(locals.count(), peers.locals);
        }
        let after = now + Duration::from_millis(end.into());
        // The latest are there, and none that came before them.
        assert_eq!(peers.get(last, after), Some(local(end)));
        assert_eq!(peers.get(1, now), None);
    }

    /// With any number of other programs, an answer goes to the program that asked, or is dropped.
    #[test]
    fn many_others_neither_evict_a_program_of_this_host_nor_get_its_answer() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        let port = peers.note(local(7), now);
        let victim = outsider(u32::MAX);
        let remote = peers.note(victim, now);
        for n in 0..4000 {
            peers.note(outsider(n), now + Duration::from_millis(n.into()));
            assert_eq!(peers.get(port, now), Some(local(7)));
            assert!(peers.get(remote, now).is_none_or(|peer| peer == victim));
        }
        // Other programs never get its answer.
        for n in 0..4000 {
            let other = at(&format!("127.0.{}.{}:7", 1 + n / 250, 1 + n % 250));
            peers.note(other, now + Duration::from_millis(n));
            assert!(peers.get(7, now).is_none_or(|peer| peer == local(7)));
        }
        assert_eq!(peers.get(7, now), None);
    }
}
