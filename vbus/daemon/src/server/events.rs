// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events for clients, and what vbusd waits for on their sockets.

use super::{PEER, Server};
use crate::peer::{Peer, Unsent};
use crate::serve::{self, Link};
use paravane_vbus_protocol::Error as PacketError;
use rustix::event::epoll;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tracing::warn;

/// Why a connection ends in whose memory the host could not give a page.
const NO_MEMORY: &str = "the host has no memory for a page of the client's: free some, or let the \
                         client reserve its memory";
/// Time between two lines of the log about that.
const QUIET: Duration = Duration::from_secs(60);

impl Server {
    /// Sends events to clients, as many as their sockets take.
    pub(super) fn events(&mut self) {
        let mut gone = Vec::new();
        let elsewhere = self.cards.elsewhere();
        for (&number, peer) in &mut self.peers {
            let Some(member) = peer.member else {
                continue;
            };
            // A client that knows of an end works on its queues. The end of the card leads here
            // again.
            let (held, waited) = (peer.held, peer.unsent.is_some());
            peer.held = elsewhere.any_ends() && serve::is_ending(&self.links, member, elsewhere);
            if peer.held {
                if !held && waited {
                    watch(&self.poll, number, peer);
                }
                continue;
            }
            loop {
                if peer.unsent.is_none() {
                    peer.unsent = self.vbus.event(member).and_then(Unsent::new);
                }
                let Some(unsent) = peer.unsent.take() else {
                    break;
                };
                // A lender that has gone lends nothing.
                let lender = unsent.lender.and_then(|lender| self.links.get(&lender));
                let file = lender.and_then(Link::lent);
                if file.is_some() && peer.leaves_files() {
                    gone.push(number);
                    break;
                }
                match peer.send(&unsent.packet, file.as_slice()) {
                    Ok(()) => {}
                    Err(PacketError::Full) => {
                        peer.unsent = Some(unsent);
                        break;
                    }
                    Err(_) => {
                        gone.push(number);
                        break;
                    }
                }
            }
            if peer.unsent.is_some() != waited || held {
                watch(&self.poll, number, peer);
            }
        }
        for number in gone {
            self.end(number);
        }
    }

    /// Ends connections in whose memory the host could not give a page. The log gets
    /// one line in a minute about it.
    pub(super) fn end_failed(&mut self) {
        let failed = self.links.iter().filter(|(_, link)| link.has_failed());
        let failed: Vec<_> = failed.map(|(&id, link)| (id, link.uid())).collect();
        for (id, uid) in failed {
            if self
                .told_memory
                .is_none_or(|since| since.elapsed() >= QUIET)
            {
                self.told_memory = Some(Instant::now());
                let user = uid.map_or("vbusd's own user".to_string(), |uid| format!("user {uid}"));
                warn!("a connection of {user} has ended: {NO_MEMORY}");
            }
            self.vbus.fail(id, NO_MEMORY);
        }
    }
}

/// Waits for what a peer is waited for: requests, unless one is not answered yet, and room for
/// events.
pub fn watch(poll: &OwnedFd, number: u64, peer: &Peer) {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, !peer.waits);
    flags.set(epoll::EventFlags::OUT, peer.unsent.is_some() && !peer.held);
    let data = epoll::EventData::new_u64(PEER | number);
    let _ = epoll::modify(poll, &peer.socket, data, flags);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use paravane_vbus::Event;
    use rustix::event::Timespec;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// While a card of the client ends, room for an event does not wake vbusd. Afterwards it does.
    #[test]
    fn room_for_an_event_is_not_waited_for_while_a_card_ends() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, _theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let data = epoll::EventData::new_u64(PEER | 1);
        epoll::add(&poll, &ours, data, epoll::EventFlags::IN).unwrap();
        let mut peer = Peer::new(ours, 1).unwrap();
        peer.unsent = Unsent::new(Event::Removed);
        let mut wakes = |held: bool| {
            peer.held = held;
            watch(&poll, 1, &peer);
            let none = epoll::Event {
                flags: epoll::EventFlags::empty(),
                data: epoll::EventData::new_u64(0),
            };
            let now = Timespec::default();
            epoll::wait(&poll, &mut [none][..], Some(&now)).unwrap() > 0
        };
        assert_eq!([false, true, false].map(&mut wakes), [true, false, true]);
    }
}
