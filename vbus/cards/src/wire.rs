// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card on a link: a tap of the host, which is venet-tap of "virtual-bus" (Haskins, 2009), or
//! passt.
//!
//! On a tap the host's kernel gets each frame of the guest after a header that says what must be
//! completed in it, and gives frames with such headers. It checks them as those of every user of a
//! tap. passt is memory of this host: checksums are omitted in both directions. It takes no
//! segments longer than the MTU.
//!
//! After a frame of the guest it looks for the answer by itself ([`Looker`]), since the link's file
//! wakes the thread that waits for all files, and that thread the bridge's: two switches of threads
//! more. A look is a `read`. docs/vbus.md has the whole chain.

use crate::base::Base;
use crate::card::{Properties, QUEUES, TYPE, cap};
use crate::host::{Offloads, Waker};
use crate::looks::weight;
use crate::offload::{self, Header};
use crate::presence::Presence;
use paravane_net::link::{HEADER, Received};
use paravane_net::tap::{self, Offload};
use paravane_net::{Interface, Link};
use paravane_vbus::{
    Attribute, Broken, ConnectionId, Device, Endpoint, Error, QueueKind, Round, Work,
};
use rustix::event::epoll::EventFlags;
use std::os::fd::AsFd;
use std::sync::Arc;
use tracing::warn;

/// The card.
#[derive(Debug)]
pub struct Wire {
    class: &'static str,
    /// What it has in common with others.
    pub base: Base,
    /// Until it has ended.
    link: Option<Link>,
    /// The link wakes the card for these.
    armed: EventFlags,
    /// The link takes no more frames now.
    full: bool,
    /// A frame for which the guest has no buffer, and its flags.
    waiting: Option<(Vec<u8>, u32)>,
    presence: Arc<Presence>,
    /// The card's thread reports whether the tap's interface is up. Otherwise, frames show it.
    told: bool,
    /// Sets the link's offloads in place of the card.
    offloads: Option<Box<dyn Offloads>>,
    /// The weights of the frames of this round, sent and received.
    weights: [u32; 2],
}

/// Why frames do not pass.
enum Trouble {
    Guest(Broken),
    Host(String),
}

impl From<Broken> for Trouble {
    fn from(broken: Broken) -> Self {
        Trouble::Guest(broken)
    }
}

impl Wire {
    /// A card with this address.
    #[must_use]
    pub fn new(link: Link, mac: [u8; 6]) -> Self {
        let (class, segments) = if link.headers {
            (
                "venet-tap",
                cap::TSO4 | cap::RX_TSO4 | cap::TSO6 | cap::RX_TSO6,
            )
        } else {
            ("venet-passt", 0)
        };
        Wire {
            class,
            base: Base::new(Properties {
                mac,
                mtu: link.mtu,
                mtu_max: link.mtu,
                caps: cap::CHAIN | cap::CSUM | segments,
            }),
            link: Some(link),
            armed: EventFlags::empty(),
            full: false,
            waiting: None,
            presence: Arc::default(),
            told: false,
            offloads: None,
            weights: [0; 2],
        }
    }

    /// The name of its class.
    #[must_use]
    pub fn class(&self) -> &'static str {
        self.class
    }

    /// Whether its network is there.
    #[must_use]
    pub fn presence(&self) -> Arc<Presence> {
        Arc::clone(&self.presence)
    }

    /// The host wakes the card by this.
    pub fn start(&mut self, waker: &Waker) {
        self.base.start(waker);
        self.look_at_interface();
    }

    /// The index of the interface to which the card leads: that of its tap.
    #[must_use]
    pub fn interface_index(&self) -> Option<u32> {
        self.link.as_ref().and_then(|link| link.index)
    }

    /// Looks whether the tap's interface is up, if its state may have changed, where the card was
    /// woken or begins.
    fn look_at_interface(&mut self) {
        let (Some(waker), Some(link)) = (&self.base.waker, &mut self.link) else {
            return;
        };
        if let Some(state) = link.index.and_then(|index| waker.interface(index)) {
            // The kernel takes a tap down when it moves the tap to another namespace. The tap's
            // file reports that. One that was removed fails the next read.
            self.told = state != Interface::Elsewhere;
            link.down = state != Interface::Up;
            self.base.port.set_link(!link.down);
            return;
        }
        if !self.told {
            // Only an interface that is up reports. If it is not, the next frame shows that.
            link.down = false;
            self.base.port.set_link(true);
        }
    }

    /// From now on this sets the link's offloads. There are none before.
    pub fn offload_by(&mut self, offloads: Box<dyn Offloads>) {
        self.offloads = Some(offloads);
    }

    /// Informs the host which unfinished frames a guest with these capabilities takes.
    fn offload(&self, caps: u32) {
        let Some(link) = self.link.as_ref().filter(|link| link.headers) else {
            return;
        };
        let has = |cap: u32| caps & cap == cap;
        let offload = Offload {
            checksum: has(cap::CSUM),
            tcp4: has(cap::CHAIN | cap::CSUM | cap::RX_TSO4),
            tcp6: has(cap::CHAIN | cap::CSUM | cap::RX_TSO6),
        };
        if let Some(offloads) = &self.offloads {
            offloads.set(offload);
        } else if let Err(error) = tap::set_offload(link, offload) {
            warn!("network: the host keeps its offloads: {error}");
        }
    }

    /// The network has ended: the card disappears.
    fn gone(&mut self, why: &str) {
        warn!("the network is down: {why}");
        if let (Some(waker), Some(link)) = (&self.base.waker, &self.link) {
            waker.disarm(link.as_fd());
        }
        self.link = None;
        self.waiting = None;
        self.base.looker.forget();
        self.presence.set(0);
    }

    /// Takes frames of the guest. Returns how many.
    fn transmit(&mut self, budget: u32) -> Result<u32, Trouble> {
        let taken = self.send(budget);
        // A stream keeps the frames of a round.
        if let Some(Err(error)) = self.link.as_mut().map(Link::flush) {
            return Err(Trouble::Host(error.to_string()));
        }
        taken
    }

    fn send(&mut self, budget: u32) -> Result<u32, Trouble> {
        let Some(link) = &mut self.link else {
            return Ok(0);
        };
        self.full = false;
        for taken in 0..budget {
            let Some(frame) = self.base.port.take()? else {
                return Ok(taken);
            };
            let weight = weight(&frame);
            let sent = if link.headers {
                let header = Header::of_flags(self.base.port.flags(), self.base.port.caps);
                link.send_parts(&header.bytes(), &frame)
            } else {
                link.send(&frame)
            };
            match sent {
                Ok(true) => {
                    self.weights[0] = self.weights[0].saturating_add(weight);
                    self.base.port.passed(frame);
                    self.base.port.set_link(!link.down);
                }
                Ok(false) => {
                    self.base.port.keep(frame);
                    self.full = true;
                    return Ok(taken);
                }
                Err(error) => {
                    self.base.port.keep(frame);
                    return Err(Trouble::Host(error.to_string()));
                }
            }
            self.base.looker.counts().sent();
        }
        Ok(budget)
    }

    /// Gives the guest frames. Returns how many.
    fn receive(&mut self, budget: u32) -> Result<u32, Trouble> {
        let Some(link) = &mut self.link else {
            return Ok(0);
        };
        let headers = link.headers;
        let mut given = 0;
        if let Some((frame, flags)) = &self.waiting {
            if !self.base.port.give(frame, *flags)? {
                return Ok(0);
            }
            self.weights[1] = weight(frame);
            self.base.looker.counts().received();
            self.waiting = None;
            given = 1;
        }
        while self.base.reported && given < budget {
            let frame = match link.receive() {
                Ok(Received::Frame(frame)) => frame,
                Ok(Received::Empty) => {
                    self.base.reported = false;
                    break;
                }
                Ok(Received::Gone) => return Err(Trouble::Host("it has ended".to_string())),
                Err(error) => return Err(Trouble::Host(error.to_string())),
            };
            given += 1;
            let (header, frame) = if headers {
                let Some((header, frame)) = frame.split_first_chunk::<HEADER>() else {
                    continue;
                };
                (header, frame)
            } else {
                (&offload::VERIFIED, frame)
            };
            self.weights[1] = self.weights[1].saturating_add(weight(frame));
            let mut finished = Vec::new();
            let caps = self.base.port.caps;
            let Some((frame, flags)) = offload::to_guest(header, frame, &mut finished, caps) else {
                continue;
            };
            if !self.base.port.give(frame, flags)? {
                self.waiting = Some((frame.to_vec(), flags));
                break;
            }
            self.base.looker.counts().received();
        }
        Ok(given)
    }

    /// Moves frames in both directions. Returns whether it did something, and whether there may be
    /// more.
    fn pass(&mut self, budget: u32) -> Result<(bool, bool), Trouble> {
        // While it looks, for whatever, its file may not be armed.
        self.base.reported |= self.base.looker.begin();
        self.weights = [0; 2];
        let sent = self.transmit(budget)?;
        self.base.port.announce()?;
        let received = self.receive(budget)?;
        let [taken, given] = self.weights;
        self.base.looker.passed(taken, given);
        let more = sent == budget || (self.base.reported && self.waiting.is_none());
        Ok((sent + received > 0, more))
    }

    /// What the link is to report while the card sleeps.
    fn awaited(&self) -> EventFlags {
        let mut events = EventFlags::empty();
        events.set(EventFlags::IN, self.waiting.is_none());
        // One that is down takes frames again once it is up.
        let waits = |link: &Link| (link.down && !self.told) || link.stuck();
        let waits = self.link.as_ref().is_some_and(waits);
        events.set(EventFlags::OUT, self.full || waits);
        events
    }
}

/// Lets the link wake the card for these. `armed`: for which it does.
fn arm(link: Option<&Link>, waker: Option<&Waker>, armed: &mut EventFlags, events: EventFlags) {
    let (Some(waker), Some(link)) = (waker, link) else {
        return;
    };
    if std::mem::replace(armed, events) == events {
        return;
    }
    if let Err(error) = waker.arm(link.as_fd(), events) {
        warn!("network: cannot wait for the host: {error}");
    }
}

impl Device for Wire {
    fn interface(&self) -> &'static str {
        TYPE
    }

    fn attributes(&self) -> Vec<Attribute> {
        let counts = self.base.looker.counts();
        counts.frames().into_iter().chain(counts.looks()).collect()
    }

    fn queues(&self) -> &'static [QueueKind] {
        QUEUES
    }

    fn connect(&mut self, id: ConnectionId) -> Result<(), Error> {
        self.base.port.connect(id)
    }

    fn disconnect(&mut self, id: ConnectionId) {
        if self.base.port.disconnect(id) {
            self.waiting = None;
            self.base.looker.forget();
            self.offload(0);
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
            self.offload(if up { self.base.port.caps } else { 0 });
            self.base.reported |= up;
        }
        Ok(called.bytes)
    }

    fn share(&mut self, _: ConnectionId, queue: u32, endpoint: Endpoint) -> Result<(), Error> {
        self.base.port.share(queue, endpoint)
    }

    fn work(&mut self, id: ConnectionId, budget: u32, round: &mut Round) -> Work {
        self.base.port.begin();
        let passed = self.pass(budget);
        self.base.port.signal();
        match passed {
            Ok((done, more)) => Work::of(done, more),
            Err(Trouble::Guest(broken)) => {
                round.broken.push((id, broken));
                Work::Nothing
            }
            Err(Trouble::Host(why)) => {
                self.gone(&why);
                Work::Nothing
            }
        }
    }

    fn polls(&mut self, _: ConnectionId) -> bool {
        let Wire {
            base: Base { looker, waker, .. },
            link,
            armed,
            ..
        } = self;
        looker.again(|| arm(link.as_ref(), waker.as_ref(), armed, EventFlags::empty()))
    }

    fn adapts(&self) -> bool {
        false
    }

    fn streams(&self) -> bool {
        self.base.looker.streams()
    }

    fn rest(&mut self, _: ConnectionId) -> bool {
        if self.link.is_none() {
            return false;
        }
        if self.base.port.rest(self.full) {
            return true;
        }
        self.base.looker.rested();
        let events = self.awaited();
        // One that has ended would be reported over and over while nothing asks it.
        if !events.is_empty() {
            let (link, waker) = (self.link.as_ref(), self.base.waker.as_ref());
            arm(link, waker, &mut self.armed, events);
        }
        false
    }

    fn woken(&mut self) {
        // A file reports once until it is armed again.
        (self.armed, self.base.reported) = (EventFlags::empty(), true);
        self.look_at_interface();
    }
}
