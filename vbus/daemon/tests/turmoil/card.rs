// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams of datagrams by cards that lead out of a bus, to a server of the test. A stream is
//! reliable: the server takes its datagrams in order and acknowledges them, and the client sends
//! what is not acknowledged again.

use crate::namespace;
use paravane_vbus_client::{Client, Error};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a datagram.
const DATAGRAM: usize = 1000;
/// Most datagrams that are not acknowledged.
const WINDOW: u64 = 16;
/// After this time without an answer a client asks for the address of the other end, and sends
/// again.
const PAUSE: Duration = Duration::from_millis(100);
/// A stream that is stalled for this time has failed.
const PATIENCE: Duration = Duration::from_secs(60);
const CLIENT_PORT: u16 = 5000;
const UDP: u8 = 17;

/// The content of a datagram, also of an answer.
fn datagram(stream: u64, number: u64) -> [u8; DATAGRAM] {
    let mut content = [0; DATAGRAM];
    for (at, word) in content.chunks_exact_mut(8).enumerate() {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (stream << 32 | at as u64);
        word.copy_from_slice(&mixed.to_le_bytes());
    }
    content[..8].copy_from_slice(&stream.to_le_bytes());
    content[8..16].copy_from_slice(&number.to_le_bytes());
    content
}

/// The stream and the number of a datagram, which must be whole.
fn parse(content: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(content[at..at + 8].try_into().unwrap());
    let (stream, number) = (word(0), word(8));
    assert!(
        content == datagram(stream, number),
        "the datagram {number} of stream {stream} has other bytes"
    );
    (stream, number)
}

/// The server.
pub struct Server {
    socket: UdpSocket,
    /// How many datagrams of each stream it has received in order.
    received: Mutex<HashMap<u64, u64>>,
}

impl Server {
    pub fn new() -> Self {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(PAUSE)).unwrap();
        Server {
            socket,
            received: Mutex::default(),
        }
    }

    pub fn received(&self, stream: u64) -> u64 {
        *self.received.lock().unwrap().get(&stream).unwrap_or(&0)
    }

    pub fn serve(&self, end: &AtomicBool) {
        let mut content = [0; 2 * DATAGRAM];
        while !end.load(Ordering::Relaxed) {
            let (len, from) = match self.socket.recv_from(&mut content) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => unreachable!("the server: {error}"),
            };
            let (stream, number) = parse(&content[..len]);
            let mut all = self.received.lock().unwrap();
            let count = all.entry(stream).or_default();
            *count += u64::from(number == *count);
            // There may be no way back now: then it is sent again.
            let _ = self.socket.send_to(&datagram(stream, *count), from);
        }
    }
}

/// Where a card leads.
#[derive(Clone, Copy)]
pub struct Way {
    pub device: &'static str,
    own: [u8; 4],
    server: [u8; 4],
}

/// The wire to the host.
pub const TAP: Way = Way {
    device: "out",
    own: [10, 9, 0, 2],
    server: namespace::ADDRESS,
};
/// The user-mode network, whose router is the host's loopback.
pub const USER: Way = Way {
    device: "net",
    own: [10, 0, 2, 15],
    server: [10, 0, 2, 2],
};

/// A client with a stream.
pub struct Stream<'a> {
    client: Client,
    way: Way,
    /// Its number.
    name: u64,
    server: &'a Server,
    /// The Ethernet address of the other end, once it is known.
    peer: Option<[u8; 6]>,
    acknowledged: u64,
    /// The next to be sent, which was perhaps sent before.
    next: u64,
    /// Those that were sent at all.
    sent: u64,
}

impl<'a> Stream<'a> {
    pub fn new(client: Client, way: Way, name: u64, server: &'a Server) -> Self {
        Stream {
            client,
            way,
            name,
            server,
            peer: None,
            acknowledged: 0,
            next: 0,
            sent: 0,
        }
    }

    /// Sends until the end, through whatever happens to the card, and until all is acknowledged.
    /// Returns how much that was, and how often the connection was lost.
    pub fn run(mut self, end: &AtomicBool) -> (u64, u64) {
        let (mut losses, mut progress, mut asked) = (0, Instant::now(), None::<Instant>);
        let mut frame = [0; 2048];
        while !end.load(Ordering::Relaxed) || self.acknowledged < self.sent {
            let last = self.acknowledged;
            while let Some(len) = self.client.receive(&mut frame).unwrap() {
                self.take(&frame[..len]);
            }
            if self.acknowledged > last {
                progress = Instant::now();
                asked = None;
            }
            let since = asked.unwrap_or(progress);
            if self.peer.is_none() && asked.is_none() || since.elapsed() > PAUSE {
                asked = Some(Instant::now());
                self.next = self.acknowledged;
                self.ask();
            }
            self.send(end.load(Ordering::Relaxed));
            assert!(
                progress.elapsed() < PATIENCE,
                "stream {} stands still at {} of {}",
                self.name,
                self.acknowledged,
                self.sent
            );
            let woken = self.client.wait(Some(PAUSE), false);
            match woken.and_then(|_| {
                while self.client.event()?.is_some() {}
                Ok(())
            }) {
                Ok(()) => {}
                Err(Error::Lost(_)) => {
                    losses += 1;
                    self.client.reconnect(PATIENCE).unwrap();
                    // The other end may be another one.
                    (self.peer, asked) = (None, None);
                }
                Err(error) => unreachable!("{error}"),
            }
        }
        (self.acknowledged, losses)
    }

    /// Sends what the window has room for: what was sent before, or more.
    fn send(&mut self, ends: bool) {
        let Some(peer) = self.peer else { return };
        let limit = self.acknowledged + WINDOW;
        let limit = if ends { limit.min(self.sent) } else { limit };
        while self.next < limit {
            let frame = self.frame(peer);
            if !self.client.post(&frame).unwrap() {
                break;
            }
            self.next += 1;
            self.sent = self.sent.max(self.next);
        }
        self.client.flush();
    }

    /// The next datagram.
    fn frame(&self, peer: [u8; 6]) -> Vec<u8> {
        let mac = self.client.mac().unwrap();
        let length = |headers: usize| u16::try_from(headers + DATAGRAM).unwrap().to_be_bytes();
        let mut ip = [[0x45, 0], length(28), [0, 0], [0x40, 0], [64, UDP], [0; 2]].concat();
        ip.extend(self.way.own);
        ip.extend(self.way.server);
        let words = ip
            .chunks_exact(2)
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let port = self.server.socket.local_addr().unwrap().port();
        // Without a checksum of UDP, which is allowed: the test compares all bytes.
        let udp = [
            CLIENT_PORT.to_be_bytes(),
            port.to_be_bytes(),
            length(8),
            [0; 2],
        ]
        .concat();
        let content = datagram(self.name, self.next);
        [&peer[..], &mac, &[8, 0], &ip, &udp, &content].concat()
    }

    /// Asks for the address of the other end, by ARP.
    fn ask(&mut self) {
        let question = self.arp([0xff; 6], 1, [0; 6], self.way.server);
        // Without room it asks later.
        self.client.send(&question).unwrap();
    }

    fn arp(&self, to: [u8; 6], operation: u8, target: [u8; 6], address: [u8; 4]) -> Vec<u8> {
        let mac = self.client.mac().unwrap();
        let head = [8, 6, 0, 1, 8, 0, 6, 4, 0, operation];
        let (own, target) = (self.way.own, &target);
        [&to[..], &mac, &head, &mac, &own, target, &address].concat()
    }

    /// Takes a frame that has come.
    fn take(&mut self, frame: &[u8]) {
        let at = |from: usize, to: usize| frame.get(from..to).unwrap_or_default();
        if at(12, 14) == [8, 6] && at(38, 42) == self.way.own {
            let sender: [u8; 6] = at(22, 28).try_into().unwrap();
            let from_server = at(28, 32) == self.way.server;
            if from_server {
                self.peer = Some(sender);
            }
            if at(20, 22) == [0, 1] {
                let address = at(28, 32).try_into().unwrap();
                let answer = self.arp(sender, 2, sender, address);
                // Without room it is asked again.
                self.client.send(&answer).unwrap();
            }
        }
        let is_ours = at(12, 15) == [8, 0, 0x45]
            && at(23, 24) == [UDP]
            && at(26, 30) == self.way.server
            && at(36, 38) == CLIENT_PORT.to_be_bytes();
        if !is_ours {
            return;
        }
        let (stream, count) = parse(at(42, 42 + DATAGRAM));
        assert_eq!(stream, self.name, "an answer of another stream");
        assert!(count <= self.sent, "{count} of {} came", self.sent);
        self.acknowledged = self.acknowledged.max(count);
        self.next = self.next.max(self.acknowledged);
    }
}
