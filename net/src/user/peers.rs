// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs of this host that have sent to a published port.
//!
//! The guest sees each of them as the router with the program's port. An answer goes to the address
//! from which the program sent. A port from which nothing came leads nowhere. So does a port that
//! was silent for [`SILENT`]: another program may use it by then.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The most programs that are remembered for a port. A new one replaces the one that was silent
/// longest.
pub const MOST: usize = 1024;
/// A program that was silent for longer gets no answer. Datagrams of the guest do not count.
pub const SILENT: Duration = Duration::from_secs(120);

/// The programs, by the port that the guest sees.
#[derive(Debug, Default)]
pub struct Peers {
    known: HashMap<u16, (SocketAddr, Instant)>,
}

impl Peers {
    /// Notes a datagram from this address. Two programs can have the same port on two addresses of
    /// the loopback: the answer goes to the one that sent last.
    pub fn note(&mut self, peer: SocketAddr, now: Instant) {
        if self.known.len() >= MOST && !self.known.contains_key(&peer.port()) {
            self.known
                .retain(|_, (_, last)| now.duration_since(*last) < SILENT);
            let oldest = self.known.iter().min_by_key(|(_, (_, last))| *last);
            if let Some(port) = oldest
                .map(|(port, _)| *port)
                .filter(|_| self.known.len() >= MOST)
            {
                self.known.remove(&port);
            }
        }
        self.known.insert(peer.port(), (peer, now));
    }

    /// The address that receives an answer to this port.
    pub fn get(&self, port: u16, now: Instant) -> Option<SocketAddr> {
        let (peer, last) = self.known.get(&port)?;
        (now.duration_since(*last) < SILENT).then_some(*peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_peer_that_has_not_sent_gets_no_answer() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        assert_eq!(peers.get(7, now), None);
        peers.note(peer(7), now);
        assert_eq!(peers.get(7, now), Some(peer(7)));
        assert_eq!(peers.get(8, now), None);
    }

    #[test]
    fn a_silent_peer_is_forgotten() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        peers.note(peer(7), now);
        let later = now + SILENT;
        assert_eq!(
            peers.get(7, later - Duration::from_millis(1)),
            Some(peer(7))
        );
        assert_eq!(peers.get(7, later), None);
        peers.note(peer(7), later);
        assert_eq!(peers.get(7, later), Some(peer(7)));
    }

    #[test]
    fn no_more_are_remembered_than_fit() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        for port in 1..=u16::MAX {
            peers.note(peer(port), now + Duration::from_millis(port.into()));
            assert!(peers.known.len() <= MOST, "{}", peers.known.len());
        }
        let end = now + Duration::from_millis(u16::MAX.into());
        // The latest are there, and none that came before them.
        assert_eq!(peers.get(u16::MAX, end), Some(peer(u16::MAX)));
        assert_eq!(peers.get(1, now), None);
    }

    #[test]
    fn the_last_of_two_with_one_port_is_answered() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        let other = SocketAddr::from(([127, 0, 0, 2], 7));
        peers.note(peer(7), now);
        peers.note(other, now);
        assert_eq!(peers.get(7, now), Some(other));
    }
}
