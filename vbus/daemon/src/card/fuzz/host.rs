// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's side of cards: a pair of sockets in place of a tap, whose other end the target has,
//! and a user-mode network that has every address.

use super::super::kinds::{Kind, Mac, Try, on_link, on_stack};
use super::super::worker::{Made, Open};
use paravane_fuzz::Input;
use paravane_net::Link;
use paravane_net::link::HEADER;
use paravane_net::user::{Config, Network};
use paravane_vbus::{Attribute, Error, Kind as ErrorKind, no_attribute};
use paravane_vbus_cards::{Counts, Stack, Waker, Wire};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most clients of a device: more than its thread has cards.
const CLIENTS: usize = 8;
/// Begins the frames that are looked for again.
const MAGIC: [u8; 14] = *b"\x02\x00\x00\x00\x00\x07\x02host\x02\x88\xb5";
const MTU: u16 = 1500;

/// The host of an input.
#[derive(Clone, Default)]
pub struct Host {
    /// The other end of the tap that was made last.
    end: Arc<Mutex<Option<OwnedFd>>>,
    /// It refuses to make any.
    pub refuses: Arc<AtomicBool>,
}

impl Host {
    pub fn end(&self) -> Option<End> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        end.take().map(End::new)
    }

    pub fn kind(&self, tap: bool) -> Box<dyn Kind> {
        Box::new(Double {
            tap,
            host: self.clone(),
        })
    }
}

/// Calls `make` when the card is made.
fn opened(make: impl FnOnce(&Waker) -> Result<Made, Error> + Send + 'static) -> Open {
    Box::new(|_| Ok(Box::new(make)))
}

/// A kind of device in the place of those that open something.
#[derive(Clone)]
struct Double {
    tap: bool,
    host: Host,
}

impl Kind for Double {
    fn most(&self) -> usize {
        CLIENTS
    }

    fn attributes(&self) -> Vec<Attribute> {
        Vec::new()
    }

    fn set(&mut self, name: &str, _: &str) -> Result<Option<Try>, Error> {
        Err(no_attribute(name))
    }

    fn figures(&self, counts: &Counts) -> Vec<Attribute> {
        counts.looks().into()
    }

    fn open(&self, mac: Mac, counts: &Arc<Counts>) -> Result<Open, Error> {
        let (refuses, counts) = (Arc::clone(&self.host.refuses), Arc::clone(counts));
        let may = move || {
            let refused = Error::new(ErrorKind::Host, "the host refuses it");
            let refuses = refuses.load(Ordering::Relaxed);
            if refuses { Err(refused) } else { Ok(()) }
        };
        if !self.tap {
            return Ok(opened(move |waker| {
                may()?;
                let config = Config {
                    // Every address is inside, so clients reach nothing.
                    prefix: 0,
                    mtu: MTU,
                    ..Config::default()
                };
                let mut card = Stack::new(Network::new(config).unwrap(), mac);
                card.base.count(counts);
                Ok(on_stack(card, waker))
            }));
        }
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (ours, end) = socketpair(kind.0, kind.1, flags, None).unwrap();
        *self.host.end.lock().unwrap() = Some(end);
        Ok(opened(move |waker| {
            may()?;
            let mut card = Wire::new(Link::reads(ours, MTU).unwrap(), mac);
            card.base.count(counts);
            Ok(on_link(card, waker))
        }))
    }

    fn copy(&self) -> Box<dyn Kind> {
        Box::new(self.clone())
    }
}

/// The other end of a tap.
pub struct End {
    /// Until the network has ended.
    socket: Option<OwnedFd>,
    /// Frames on their way to the client.
    there: VecDeque<Vec<u8>>,
    number: u64,
    /// Some of them may be lost: the link was down.
    lossy: bool,
}

impl End {
    fn new(socket: OwnedFd) -> Self {
        End {
            socket: Some(socket),
            there: VecDeque::new(),
            number: 0,
            lossy: false,
        }
    }

    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// The network ends.
    pub fn end(&mut self) {
        self.socket = None;
    }

    /// The link is down: what is on its way may be lost.
    pub fn loses(&mut self) {
        self.lossy = true;
    }

    /// Whether no frame is on its way to the client that must arrive.
    pub fn is_empty(&self) -> bool {
        self.there.is_empty() || self.lossy
    }

    /// Whether the last frame has arrived.
    pub fn is_silent(&self) -> bool {
        self.there.is_empty()
    }

    /// Writes a frame that the client must get if its link is `up`. False: there is no room.
    pub fn write(&mut self, length: usize, up: bool) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        self.number += 1;
        let number = self.number.to_le_bytes();
        let frame = [&MAGIC[..], &number, &vec![0x44; length]].concat();
        let written = rustix::io::write(socket, &[&[0; HEADER][..], &frame].concat()).is_ok();
        if written {
            self.lossy |= !up;
            self.there.push_back(frame);
        }
        written
    }

    /// Writes a frame of any length, which is said to be unfinished in any way.
    pub fn write_any(&mut self, input: &mut Input<'_>) {
        let Some(socket) = &self.socket else {
            return;
        };
        let half = |input: &mut Input<'_>| match input.u8() % 4 {
            0 => input.u16(),
            _ => u16::from(input.u8()),
        };
        let flags = [
            input.pick(&[0, 1, 2, 3, 0xff]),
            input.pick(&[0, 1, 1, 3, 0x81, 5]),
        ];
        let rest = [(); 5].map(|()| half(input).to_le_bytes()).concat();
        let length = match input.u8() % 4 {
            0 => usize::from(input.u16()),
            _ => usize::from(input.u8()),
        };
        let frame = [input.bytes(64), &vec![0x77; length]].concat();
        let _ = rustix::io::write(socket, &[&flags[..], &rest, &frame].concat());
    }

    /// A frame has come to the client. `judged`: it gets those of the host in order, and none is
    /// lost that need not be.
    pub fn came(&mut self, frame: &[u8], judged: bool) {
        if !frame.starts_with(&MAGIC) || !judged {
            return;
        }
        let at = self.there.iter().position(|there| there == frame);
        let at = at.expect("a frame that nobody has sent, or twice");
        assert!(at == 0 || self.lossy, "a frame was lost");
        self.there.drain(..=at);
    }

    /// Reads what has come for the host: headers and frames.
    pub fn read(&mut self) -> Vec<([u8; HEADER], Vec<u8>)> {
        let Some(socket) = &self.socket else {
            return Vec::new();
        };
        let (mut all, mut bytes) = (Vec::new(), vec![0; 1 << 17]);
        while let Ok(length @ 1..) = rustix::io::read(socket, &mut bytes[..]) {
            let (header, frame) = bytes[..length].split_first_chunk().expect("a header");
            assert!(!frame.is_empty(), "a frame without bytes");
            all.push((*header, frame.to_vec()));
        }
        all
    }
}
