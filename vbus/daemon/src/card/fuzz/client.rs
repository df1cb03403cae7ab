// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's end of a connection that keeps the rules until the test makes it break them, and the
//! required outcome of its requests.

use super::host::End;
use super::rings::{Lane, Shares};
use paravane_fuzz::Input;
use paravane_vbus::ethernet::queues::{self, EVENTS, PAIRS};
use paravane_vbus::ethernet::{Ip, call, cap, flag};
use paravane_vbus::{ConnectionId, Error, Kind};
use paravane_vbus_protocol::Shared;
use paravane_vbus_shm::{layout, word};
use rustix::net::{RecvFlags, recv};
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;

/// Queues of which the client has rings: two pairs, and that of events.
pub const QUEUES: u32 = 5;
/// The flag of a frame whose checksum was verified.
const VALID: u32 = word(layout::VBUS_ETHERNET_VALID);
/// The group of events, for [`call::NEGCAP`].
const EVENT_GROUP: [u8; 4] = [1, 0, 0, 0];

pub struct Conn {
    pub id: ConnectionId,
    /// The client has broken a rule.
    pub hostile: bool,
    pub up: bool,
    pub caps: u32,
    events: bool,
    pairs: u32,
    shared: BTreeSet<u32>,
    /// What is at the other end of its card, if that is a tap.
    pub host: Option<End>,
    /// Frames that were posted and have not come to the host.
    sent: VecDeque<Vec<u8>>,
    number: u64,
    lanes: Vec<Lane>,
    kick: OwnedFd,
    pub bell: OwnedFd,
    pub memory: Shares,
}

impl Conn {
    pub fn new(
        id: ConnectionId,
        memory: Shares,
        [kick, bell]: [OwnedFd; 2],
        host: Option<End>,
    ) -> Self {
        Conn {
            id,
            hostile: false,
            up: false,
            caps: 0,
            events: false,
            pairs: 1,
            shared: BTreeSet::new(),
            host,
            sent: VecDeque::new(),
            number: 0,
            lanes: (0..QUEUES).map(|queue| memory.lane(queue)).collect(),
            kick,
            bell,
            memory,
        }
    }

    /// Where a queue's ring is.
    pub fn place(queue: u32) -> Shared {
        Lane::place(queue)
    }

    fn has_queue(&self, queue: u32) -> bool {
        match queues::pair(queue) {
            None => self.events,
            Some(pair) => pair < self.pairs as usize,
        }
    }

    /// A queue was shared, or not.
    pub fn shares(&mut self, shared: Shared, done: &Result<(), Error>) {
        let queue = shared.queue;
        let known = queue < QUEUES && shared == Conn::place(queue);
        let may = self.has_queue(queue) && !self.shared.contains(&queue);
        assert!(may || done.is_err(), "queue {queue} is shared");
        if known && may && !self.hostile {
            assert_eq!(*done, Ok(()), "queue {queue}");
        }
        if done.is_ok() {
            self.shared.insert(queue);
            // The ring of another queue, perhaps.
            self.hostile |= !known;
        }
    }

    fn is_complete(&self) -> bool {
        let mut all = (0..self.pairs).flat_map(queues::of_pair);
        all.all(|queue| self.shared.contains(&queue))
    }

    /// A call was answered so.
    pub fn called(&mut self, number: u32, argument: &[u8], done: &Result<Vec<u8>, Error>) {
        let fixed = !self.shared.is_empty() || self.up;
        let failed = done.as_ref().err().map(Error::kind);
        let bytes = done.as_deref().unwrap_or_default();
        match number {
            call::LINKUP => {
                let may = !self.up && self.is_complete();
                assert_eq!(done.is_ok(), may, "{done:?}");
                self.up |= may;
            }
            call::LINKDOWN => {
                assert_eq!(failed, None);
                self.up = false;
                if let Some(host) = &mut self.host {
                    host.loses();
                }
            }
            call::MACQUERY => assert!(matches!(bytes, [2, _, _, _, _, _]), "{done:?}"),
            call::MTUQUERY => assert_eq!(bytes, [0xdc, 5, 0xdc, 5]),
            call::NEGCAP | call::PAIRS if fixed => assert_eq!(failed, Some(Kind::Busy)),
            call::NEGCAP => {
                assert_eq!(done.is_ok(), argument.len() == 8, "{done:?}");
                let (Some((group, got)), Some((asked, wanted))) =
                    (bytes.split_first_chunk(), argument.split_first_chunk())
                else {
                    return;
                };
                assert_eq!(group, asked);
                let [got, wanted] =
                    [got, wanted].map(|bits| u32::from_le_bytes(bits.try_into().unwrap()));
                assert_eq!(got & !wanted, 0, "more than was asked for");
                match *group {
                    [0, 0, 0, 0] => self.caps = got,
                    EVENT_GROUP => self.events = got != 0,
                    _ => assert_eq!(got, 0),
                }
            }
            call::PAIRS => {
                let wanted = argument.try_into().map_or(0, u32::from_le_bytes);
                assert_eq!(done.is_ok(), wanted > 0, "{done:?}");
                if done.is_ok() {
                    self.pairs = wanted.min(PAIRS);
                    assert_eq!(bytes, self.pairs.to_le_bytes());
                }
            }
            call::EVQQUERY => assert_eq!(done.is_ok(), self.events, "{done:?}"),
            call::FLUSHRX => assert!(self.hostile || done.is_ok(), "{done:?}"),
            _ => assert_eq!(failed, Some(Kind::NotFound)),
        }
    }

    /// Whether what is sent by one pair must arrive in order, and as it was sent.
    pub fn is_judged(&self) -> bool {
        !self.hostile && self.up && self.pairs == 1
    }

    /// Whether frames must arrive now: they are judged, and the client's network exists.
    pub fn is_served(&self) -> bool {
        self.is_judged() && self.host.as_ref().is_none_or(End::is_there)
    }

    fn lane(&mut self, queue: u32) -> &mut Lane {
        &mut self.lanes[queue as usize]
    }

    /// One step of the client's.
    pub fn step(&mut self, input: &mut Input<'_>) {
        // Half of all keep the rules for good.
        let breaks = self.id.0 % 2 == 1;
        match input.u8() % 8 {
            0 => {
                let length = usize::from(input.u16()) % 1400;
                let frame = self.frame(length);
                self.send(frame, input);
            }
            1 => {
                let length = usize::from(input.u8() % 80);
                let frame = input.bytes(length).to_vec();
                if !frame.is_empty() {
                    self.send(frame, input);
                }
            }
            2 => {
                let count = input.u8() % 5;
                self.post(count.into());
            }
            3 => self.check(),
            4 => self.notify(),
            5 => {
                for queue in self.shared.clone() {
                    if queue < QUEUES {
                        self.lane(queue).rests();
                    }
                }
            }
            6 if breaks => {
                self.hostile = true;
                let queue = u32::from(input.u8()) % QUEUES;
                self.lane(queue).descriptor(input);
            }
            7 if breaks => {
                self.hostile = true;
                self.memory.scribble(input);
            }
            _ => self.check(),
        }
        if !input.u8().is_multiple_of(4) {
            self.notify();
        }
    }

    /// A frame with a number.
    fn frame(&mut self, length: usize) -> Vec<u8> {
        self.number += 1;
        let header = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9];
        let number = self.number.to_le_bytes();
        [&header[..], &[0x88, 0xb5], &number, &vec![0x33; length]].concat()
    }

    /// Posts a frame, perhaps in two parts. The agreement is known once a queue is shared.
    fn send(&mut self, frame: Vec<u8>, input: &mut Input<'_>) {
        let pair = u32::from(input.u8()) % self.pairs.min(2);
        let [_, queue] = queues::of_pair(pair);
        let cut = if self.caps & cap::CHAIN == 0 {
            0
        } else {
            usize::from(input.u8() % 16).min(frame.len() - 1)
        };
        let (memory, lane) = (&self.memory, &mut self.lanes[queue as usize]);
        let sent = self.shared.contains(&queue) && lane.send(memory, &frame, cut);
        if sent && self.pairs == 1 && self.host.is_some() {
            self.sent.push_back(frame);
        }
    }

    /// Posts buffers.
    pub fn post(&mut self, count: usize) {
        for queue in [0, EVENTS, 3] {
            self.lane(queue).post(count);
        }
    }

    /// Notifies the card, if it wants that.
    pub fn notify(&mut self) {
        let wanted = self
            .lanes
            .iter_mut()
            .fold(false, |any, lane| any | lane.inject());
        if wanted || self.hostile {
            let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
        }
    }

    /// Takes what has come, and checks it.
    pub fn check(&mut self) {
        self.memory.check();
        let judged = self.is_judged();
        for queue in 0..QUEUES {
            let (memory, lane) = (&self.memory, &mut self.lanes[queue as usize]);
            for (bytes, flags) in lane.take(memory) {
                if self.hostile {
                    continue;
                }
                let has = |bits: u32| self.caps & bits == bits;
                assert!(flags & flag::MORE == 0 || has(cap::CHAIN), "parts");
                let checksum = flag::CSUM | VALID;
                assert!(flags & checksum == 0 || has(cap::CSUM), "a checksum");
                let long = match flag::long_over(flags) {
                    None => 0,
                    Some(Ip::V4) => cap::CHAIN | cap::CSUM | cap::RX_TSO4,
                    Some(Ip::V6) => cap::CHAIN | cap::CSUM | cap::RX_TSO6,
                };
                assert!(has(long), "a long segment");
                if let (0, Some(host)) = (queue, &mut self.host) {
                    host.came(&bytes, judged);
                }
            }
        }
    }

    /// Frames of a client that keeps the rules come to the host as they were sent, and are
    /// complete.
    pub fn check_host(&mut self) {
        let Some(host) = &mut self.host else {
            return;
        };
        for (header, frame) in host.read() {
            let csum = self.caps & cap::CSUM != 0;
            assert!(header[0] & 1 == 0 || csum, "a checksum is left out");
            let long = match header[1] {
                0 => 0,
                1 => cap::TSO4,
                4 => cap::TSO6,
                other => unreachable!("frames of kind {other}"),
            };
            assert!(self.caps & long == long, "a segment is too long");
            if !self.hostile && self.pairs == 1 {
                let sent = self.sent.pop_front();
                assert!(sent.as_ref() == Some(&frame), "another frame");
            }
        }
    }

    /// Whether nothing that it has posted is left.
    pub fn is_done(&self) -> bool {
        let [_, tx] = queues::of_pair(0);
        let host = self.host.as_ref().is_none_or(End::is_empty);
        self.sent.is_empty() && host && self.lanes[tx as usize].is_empty()
    }

    /// A notification has come since the last call. `None`: the connection has ended, and its card.
    pub fn rung(bell: &OwnedFd) -> Option<bool> {
        let mut any = false;
        loop {
            match recv(bell, &mut [0; 64], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return None,
                Ok(_) => any = true,
                Err(_) => return Some(any),
            }
        }
    }

    /// It sleeps until a frame comes, after it has seen that there is none.
    pub fn sleep(&mut self) {
        self.check();
        let quiet = !self.lane(0).rests();
        assert!(quiet, "its ring has news while nothing happens");
        Conn::rung(&self.bell).expect("its card");
    }
}
