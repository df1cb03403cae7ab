// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card on the user-mode network of this process.
//!
//! In a machine it runs on the bridge's thread, as the stack under virtio-net does on that card's
//! thread. A round trip to a program of the host, with the host calls of each step:
//!
//! | step | thread | host calls |
//! |---|---|---|
//! | the guest posts a frame and notifies | vCPU | 1: wakes the bridge, 0 if that is awake |
//! | the stack sends the data | bridge | 1: `sendto` |
//! | the program answers | the program's | its own |
//! | the stack looks whether it did | bridge | `epoll_wait` for each look, then `recvfrom` |
//! | the frame is in the guest's buffer; interrupt | bridge | 1: wakes the vCPU |
//! | the bridge waits again | bridge | 2: `epoll_ctl`, `futex` |
//!
//! The interrupt enters the guest's kernel without a signal, since the vCPU was halted. Both
//! threads are on one CPU then (`device_place.rs`), so each wake-up is a switch of threads. A vCPU
//! that looks for the interrupt itself (`vcpu/poll.c`) is not woken, and is on another CPU.
//!
//! virtio-net's thread sleeps while the program works. Its file wakes the thread that waits for all
//! files, and that wakes the card's: two switches of threads more. Here the bridge looks by itself
//! for a while (`poll-us`), but only where it can pay off ([`Looker`]): after it has passed
//! something on to the host, and before it has an answer for the guest. After that the guest works,
//! probably on the same CPU, which the bridge leaves to it at once. A vCPU that still runs while
//! the bridge looks, on its way to a halt, may have been preempted by the bridge: each look yields
//! to it.

use crate::base::Base;
use crate::card::{Port, Properties, QUEUES, TYPE, cap};
use crate::host::Waker;
use crate::looks::weight;
use crate::offload::flags;
use paravane_net::link::HEADER;
use paravane_net::user::{self, Network};
use paravane_vbus::{
    Attribute, Broken, ConnectionId, Device, Endpoint, Error, QueueKind, Round, Work,
};
use rustix::event::epoll::EventFlags;
use std::fmt;
use std::os::fd::AsFd;
use tracing::warn;

/// The card.
pub struct Stack {
    /// What it has in common with others.
    pub base: Base,
    network: Network,
    /// The network's file wakes the card.
    armed: bool,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.network, self.base.port)
    }
}

/// The guest's buffers, as the stack sees them.
struct Room<'a> {
    port: &'a mut Port,
    given: u32,
    broken: Option<Broken>,
}

impl user::Port for Room<'_> {
    fn give(&mut self, frame: &mut [u8]) -> bool {
        let Some((header, frame)) = frame.split_first_chunk::<HEADER>() else {
            return true;
        };
        if self.broken.is_some() {
            return false;
        }
        match self.port.give(frame, flags(header)) {
            Ok(given) => {
                self.given += if given { weight(frame) } else { 0 };
                given
            }
            Err(broken) => {
                self.broken = Some(broken);
                false
            }
        }
    }
}

/// Lets the network's file wake the card, or not. `armed`: whether it does.
fn arm(network: &Network, waker: Option<&Waker>, armed: &mut bool, on: bool) {
    if std::mem::replace(armed, on) == on {
        return;
    }
    let events = if on {
        EventFlags::IN
    } else {
        EventFlags::empty()
    };
    if let Some(Err(error)) = waker.map(|waker| waker.arm(network.as_fd(), events)) {
        warn!("network: cannot wait for the host: {error}");
    }
}

impl Stack {
    /// A card with an address on a network.
    #[must_use]
    pub fn new(network: Network, mac: [u8; 6]) -> Self {
        Stack {
            base: Base::new(Properties {
                mac,
                mtu: network.mtu(),
                mtu_max: network.mtu(),
                caps: cap::CHAIN | cap::CSUM | cap::TSO4,
            }),
            network,
            armed: false,
        }
    }

    /// The client's link is up, or down.
    fn set_link(&mut self, up: bool) {
        if up {
            self.network.attach(self.base.port.caps & cap::CSUM != 0);
            self.base.reported = true;
        } else {
            self.network.detach();
        }
    }

    /// Moves frames in both directions. Returns whether it did something, and whether there is more
    /// to do at once.
    fn pass(&mut self, budget: u32) -> Result<(bool, bool), Broken> {
        // While it looks, for whatever, its file may not be armed.
        let looks = self.base.looker.begin() | std::mem::take(&mut self.base.reported);
        self.network.look_at_clock();
        self.base.port.announce()?;
        let reports = looks && self.network.look();
        let (mut taken, mut emptied) = (0, false);
        let (mut weights, mut given) = (0, 0);
        while taken < budget && self.network.takes() {
            // The frame leaves the port while the stack may give others.
            let Some(frame) = self.base.port.take()? else {
                emptied = true;
                break;
            };
            let mut room = Room {
                port: &mut self.base.port,
                given: 0,
                broken: None,
            };
            self.network.take(&frame, &mut room);
            given += room.given;
            let broken = room.broken;
            weights += weight(&frame);
            self.base.port.passed(frame);
            broken.map_or(Ok(()), Err)?;
            taken += 1;
        }
        let full = !self.network.takes();
        let mut room = Room {
            port: &mut self.base.port,
            given: 0,
            broken: None,
        };
        let more = self.network.serve(&mut room);
        given += room.given;
        room.broken.map_or(Ok(()), Err)?;
        let unfinished = !(emptied || full);
        // A guest that always has more must not keep the host's frames waiting.
        self.base.reported |= unfinished;
        let more = more || reports || (full && self.network.takes()) || unfinished;
        self.base.looker.passed(weights, given);
        Ok((taken > 0 || given > 0, more))
    }
}

impl Device for Stack {
    fn interface(&self) -> &'static str {
        TYPE
    }

    fn attributes(&self) -> Vec<Attribute> {
        self.base.looker.counts().looks().into()
    }

    fn queues(&self) -> &'static [QueueKind] {
        QUEUES
    }

    fn connect(&mut self, id: ConnectionId) -> Result<(), Error> {
        self.base.port.connect(id)
    }

    fn disconnect(&mut self, id: ConnectionId) {
        if self.base.port.disconnect(id) {
            self.set_link(false);
            self.base.looker.forget();
        }
    }

    fn call(
        &mut self,
        _: ConnectionId,
        call: u32,
        argument: &[u8],
        result: &mut [u8],
    ) -> Result<usize, Error> {
        let called = self.base.call(call, argument, result)?;
        if let Some(up) = called.link {
            self.set_link(up);
        }
        Ok(called.bytes)
    }

    fn share(&mut self, _: ConnectionId, queue: u32, endpoint: Endpoint) -> Result<(), Error> {
        self.base.port.share(queue, endpoint)
    }

    fn work(&mut self, id: ConnectionId, budget: u32, round: &mut Round) -> Work {
        if !self.base.port.is_up() {
            return Work::Nothing;
        }
        self.base.port.begin();
        match self.pass(budget) {
            Ok((done, more)) => {
                self.base.port.signal();
                Work::of(done, more)
            }
            Err(broken) => {
                round.broken.push((id, broken));
                Work::Nothing
            }
        }
    }

    fn polls(&mut self, _: ConnectionId) -> bool {
        let Stack {
            base: Base { looker, waker, .. },
            network,
            armed,
        } = self;
        looker.again(|| arm(network, waker.as_ref(), armed, false))
    }

    fn adapts(&self) -> bool {
        false
    }

    fn rest(&mut self, _: ConnectionId) -> bool {
        let full = !self.network.takes();
        if self.base.port.rest(full) {
            return true;
        }
        self.base.looker.rested();
        // While its link is down nothing takes the file's reports, which would come over and over.
        let up = self.base.port.is_up();
        let waker = self.base.waker.as_ref();
        arm(&self.network, waker, &mut self.armed, up);
        false
    }

    fn woken(&mut self) {
        // A file reports once until it is armed again.
        (self.armed, self.base.reported) = (false, true);
    }
}
