// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all cards with one client share: the calls of virtual-ethernet, and frames to and from the
//! client's queues. The client is called the guest.

use crate::alarm::Alarm;
use crate::host::Waker;
use crate::pair::Pair;
use paravane_vbus::ethernet::queues::{self, ALL, EVENTS, PAIRS, transmits};
use paravane_vbus::ethernet::{Flows, call};
use paravane_vbus::{Broken, ConnectionId, Content, Culprit, Endpoint, Error, Kind, Sent, limits};
use paravane_vbus_shm::layout;
use tracing::warn;

pub use crate::pair::{Lying, STALL};
pub use paravane_vbus::ethernet::queues::QUEUES;
pub use paravane_vbus::ethernet::{TYPE, cap};
pub use paravane_vbus_shm::word;

/// The group of events, and its capability.
const EVENT_GROUP: u32 = word(layout::VBUS_ETHERNET_GROUP_EVENTS);
const EVENT_LINK: u32 = word(layout::VBUS_ETHERNET_EVENT_LINK);

/// The properties of a card.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// Its address.
    pub mac: [u8; 6],
    /// The MTU at first.
    pub mtu: u16,
    /// The largest MTU.
    pub mtu_max: u16,
    /// Capabilities that the card has.
    pub caps: u32,
}

/// What a call has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// Bytes of the result that were written.
    pub bytes: usize,
    /// The link is up now, or down.
    pub link: Option<bool>,
}

impl Called {
    fn bytes(bytes: usize) -> Self {
        Called { bytes, link: None }
    }

    fn link(up: bool) -> Self {
        Called {
            bytes: 0,
            link: Some(up),
        }
    }
}

/// The guest's end of a card: at most one connection.
#[derive(Debug)]
pub struct Port {
    id: Option<ConnectionId>,
    /// At least one.
    pairs: Vec<Pair>,
    events: Option<Endpoint>,
    up: bool,
    /// Capabilities that both sides have: of group 0, and of group 1.
    pub caps: u32,
    event_caps: u32,
    /// The pair of the frame that was taken last.
    taken: usize,
    flows: Flows,
    /// Whether frames reach the host's network, and what was last reported of that to the guest.
    link: bool,
    told: Option<bool>,
    /// For frames that wait for a pair.
    alarm: Option<Alarm>,
}

impl Default for Port {
    fn default() -> Self {
        Port {
            id: None,
            pairs: vec![Pair::default()],
            events: None,
            up: false,
            caps: 0,
            event_caps: 0,
            taken: 0,
            flows: Flows::default(),
            link: true,
            told: None,
            alarm: None,
        }
    }
}

impl Port {
    /// The port wakes the card by this.
    pub fn start(&mut self, waker: &Waker) {
        match Alarm::new(waker) {
            Ok(alarm) => self.alarm = Some(alarm),
            // A queue that stands still stops the others then.
            Err(error) => warn!("network: no timer: {error}"),
        }
    }

    /// As new, except for the state of the host's side.
    fn clear(&mut self) {
        *self = Port {
            link: self.link,
            alarm: self.alarm.take(),
            ..Port::default()
        };
    }

    /// The guest has connected.
    ///
    /// # Errors
    /// The card has a connection already.
    pub fn connect(&mut self, id: ConnectionId) -> Result<(), Error> {
        if self.id.is_some() {
            return Err(Error::new(Kind::Busy, "the card has a connection already"));
        }
        self.clear();
        self.id = Some(id);
        Ok(())
    }

    /// Whether the connection was the card's.
    pub fn disconnect(&mut self, id: ConnectionId) -> bool {
        let mine = self.id == Some(id);
        if mine {
            self.clear();
        }
        mine
    }

    /// There is a driver.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.id.is_some()
    }

    /// The link is up: frames pass.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Whether frames reach the host's network from now on.
    pub fn set_link(&mut self, link: bool) {
        self.link = link;
    }

    /// The guest shares a queue.
    ///
    /// # Errors
    /// The card has no such queue, or it is shared already.
    pub fn share(&mut self, queue: u32, endpoint: Endpoint) -> Result<(), Error> {
        let none = || Error::new(Kind::NotFound, "the card has no such queue");
        let place = if queue == EVENTS {
            let events = Some(&mut self.events).filter(|_| self.event_caps != 0);
            events.ok_or_else(none)?
        } else {
            let pair = queues::pair(queue).and_then(|pair| self.pairs.get_mut(pair));
            let pair = pair.ok_or_else(none)?;
            if transmits(queue) {
                &mut pair.tx
            } else {
                &mut pair.rx
            }
        };
        if place.is_some() {
            return Err(Error::new(Kind::Exists, "the queue is shared already"));
        }
        *place = Some(endpoint);
        Ok(())
    }

    /// The guest has shared a queue, so nothing about them changes any more.
    fn is_shared(&self) -> bool {
        self.events.is_some() || self.pairs.iter().any(Pair::is_shared)
    }

    /// All queues that are shared.
    fn all(&mut self) -> impl Iterator<Item = &mut Endpoint> {
        let pairs = self.pairs.iter_mut().flat_map(Pair::queues);
        pairs.chain(&mut self.events)
    }

    /// Carries out a call of virtual-ethernet, by a card with these properties.
    ///
    /// # Errors
    /// There is no such call, it makes no sense now, or there is no room for its result.
    pub fn call(
        &mut self,
        properties: &Properties,
        call: u32,
        argument: &[u8],
        result: &mut [u8],
    ) -> Result<Called, Error> {
        let mut put = |bytes: &[u8]| match result.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Ok(Called::bytes(bytes.len()))
            }
            None => Err(Error::new(Kind::Invalid, "there is no room for the result")),
        };
        match call {
            call::LINKUP if self.up => Err(Error::new(Kind::Exists, "the link is up already")),
            call::LINKUP if !self.pairs.iter().all(Pair::is_complete) => Err(Error::new(
                Kind::Invalid,
                "the link cannot be up before all queues are shared",
            )),
            call::LINKUP => {
                (self.up, self.told) = (true, None);
                Ok(Called::link(true))
            }
            call::LINKDOWN => {
                self.up = false;
                Ok(Called::link(false))
            }
            call::MACQUERY => put(&properties.mac),
            call::MTUQUERY => {
                let [a, b] = properties.mtu.to_le_bytes();
                let [c, d] = properties.mtu_max.to_le_bytes();
                put(&[a, b, c, d])
            }
            // A frame in parts that began under other capabilities makes no sense.
            call::NEGCAP | call::PAIRS if self.up || self.is_shared() => Err(Error::new(
                Kind::Busy,
                "capabilities are negotiated before the queues are shared",
            )),
            call::NEGCAP => {
                let &[g0, g1, g2, g3, b0, b1, b2, b3] = argument else {
                    return Err(Error::new(Kind::Invalid, "a group and its bits are wanted"));
                };
                let wanted = u32::from_le_bytes([b0, b1, b2, b3]);
                let (has, mut none) = (properties.caps, 0);
                let (has, place) = match u32::from_le_bytes([g0, g1, g2, g3]) {
                    0 => (has, &mut self.caps),
                    EVENT_GROUP => (EVENT_LINK, &mut self.event_caps),
                    _ => (0, &mut none),
                };
                *place = wanted & has;
                let [b0, b1, b2, b3] = place.to_le_bytes();
                put(&[g0, g1, g2, g3, b0, b1, b2, b3])
            }
            call::EVQQUERY if self.event_caps == 0 => {
                Err(Error::new(Kind::NotFound, "no events were agreed on"))
            }
            call::EVQQUERY => put(&EVENTS.to_le_bytes()),
            call::PAIRS => {
                let wanted = argument.try_into().map(u32::from_le_bytes);
                let Some(wanted) = wanted.ok().filter(|&wanted| wanted > 0) else {
                    return Err(Error::new(Kind::Invalid, "a number of pairs is wanted"));
                };
                let pairs = wanted.min(PAIRS);
                self.pairs = (0..pairs).map(|_| Pair::default()).collect();
                put(&pairs.to_le_bytes())
            }
            call::FLUSHRX => {
                for rx in self.pairs.iter_mut().filter_map(|pair| pair.rx.as_mut()) {
                    let flushed = rx.flush_buffers(limits::DESCRIPTORS);
                    flushed.map_err(|why| Error::new(Kind::Broken, why.to_string()))?;
                }
                Ok(Called::default())
            }
            _ => {
                let text = format!("{TYPE} has no call {call}");
                Err(Error::new(Kind::NotFound, text))
            }
        }
    }

    /// The card looks at its queues by itself from now on.
    pub fn begin(&mut self) {
        self.pairs.iter_mut().for_each(Pair::begin);
        for queue in self.all() {
            queue.begin();
        }
    }

    /// Takes the next frame of the guest out of the card, until it is [passed](Port::passed) on or
    /// [kept](Port::keep). The pairs take turns.
    ///
    /// # Errors
    /// The guest broke a rule of its queues.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        self.turn(Pair::take, |frame| frame)
    }

    /// Takes the next frame, and leaves it in the guest's memory, until it is
    /// [passed](Port::passed_lying) on or [kept](Port::keep_lying). A card takes all frames in one
    /// of the two ways.
    ///
    /// # Errors
    /// The guest broke a rule of its queues.
    pub fn take_lying(&mut self) -> Result<Option<Lying>, Broken> {
        self.turn(Pair::take_lying, |lying| lying.frame.head())
    }

    fn turn<T>(
        &mut self,
        take: impl Fn(&mut Pair, u32) -> Result<Option<T>, Broken>,
        head: impl Fn(&T) -> &[u8],
    ) -> Result<Option<T>, Broken> {
        if !self.up {
            return Ok(None);
        }
        let many = self.pairs.len();
        let kept = self.pairs.get(self.taken).is_some_and(Pair::holds);
        let first = self.taken + usize::from(!kept);
        for number in (first..first + many).map(|number| number % many) {
            let Some(pair) = self.pairs.get_mut(number) else {
                break;
            };
            let Some(frame) = take(pair, self.caps)? else {
                continue;
            };
            self.taken = number;
            if many > 1 {
                self.flows.sent(head(&frame), number);
            }
            return Ok(Some(frame));
        }
        Ok(None)
    }

    fn current(&mut self) -> Option<&mut Pair> {
        self.pairs.get_mut(self.taken)
    }

    /// The flags of the frame that was taken.
    #[must_use]
    pub fn flags(&self) -> u32 {
        let pair = self.pairs.get(self.taken);
        pair.map_or(0, Pair::flags)
    }

    /// The frame of [`Port::take`] waits for another time.
    pub fn keep(&mut self, frame: Vec<u8>) {
        if let Some(pair) = self.current() {
            pair.keep(frame);
        }
    }

    /// The frame of [`Port::take`] was passed on.
    pub fn passed(&mut self, frame: Vec<u8>) {
        if let Some(pair) = self.current() {
            pair.passed(frame);
        }
    }

    /// The frame of [`Port::take_lying`] waits for another time.
    pub fn keep_lying(&mut self, lying: Lying) {
        if let Some(pair) = self.current() {
            pair.keep_lying(lying);
        }
    }

    /// The frame of [`Port::take_lying`] was passed on.
    pub fn passed_lying(&mut self, lying: Lying) {
        if let Some(pair) = self.current() {
            pair.passed_lying(lying);
        }
    }

    /// Gives the guest a frame. False: it has no buffers now. A frame whose pair has had none for a
    /// while goes to another: a queue that is stalled stops no other.
    ///
    /// # Errors
    /// The guest broke a rule of its queues.
    pub fn give(&mut self, frame: &[u8], flags: u32) -> Result<bool, Broken> {
        let given = self.put(&Content::of(frame), flags);
        given.map_err(Culprit::broken)
    }

    /// As [`Port::give`], for a frame that may lie in another client's memory. Its headers do not.
    ///
    /// # Errors
    /// The guest, or the client with that memory, broke a rule of its queues.
    pub fn put(&mut self, frame: &Content<'_>, flags: u32) -> Result<bool, Culprit> {
        if !self.up {
            // Lost, as on a cable that is not plugged in.
            return Ok(true);
        }
        let many = self.pairs.len();
        let first = if many > 1 {
            self.flows.pair(frame.head(), many)
        } else {
            0
        };
        for number in (first..first + many).map(|number| number % many) {
            let Some(pair) = self.pairs.get_mut(number) else {
                break;
            };
            // A frame for which no buffer is large enough is lost.
            if pair.give(frame, flags, self.caps)? != Sent::NoBuffer {
                if number != first {
                    self.flows.sent(frame.head(), number);
                }
                return Ok(true);
            }
            if many > 1 && !pair.is_stalled() {
                if let Some(alarm) = &mut self.alarm {
                    alarm.after(STALL);
                }
                break;
            }
        }
        Ok(false)
    }

    /// Reports the state of the link to the guest, if the guest does not know it.
    ///
    /// # Errors
    /// The guest broke a rule of its queues.
    pub fn announce(&mut self) -> Result<(), Broken> {
        if !self.up || self.told == Some(self.link) {
            return Ok(());
        }
        let Some(events) = &mut self.events else {
            return Ok(());
        };
        let mut event = [0; size_of::<layout::EthernetEvent>()];
        event[..4].copy_from_slice(&EVENT_LINK.to_le_bytes());
        event[4..8].copy_from_slice(&u32::from(self.link).to_le_bytes());
        if events.send(&event, 0)? != Sent::NoBuffer {
            self.told = Some(self.link);
        }
        Ok(())
    }

    /// Notifies the guest of what was passed on: one interrupt for all queues that have the same
    /// one.
    pub fn signal(&mut self) {
        let mut due = 0u32;
        for (number, queue) in self.all().enumerate() {
            due |= u32::from(queue.inject()) << number;
        }
        if due == 0 {
            return;
        }
        // Only now: the guest may look at once.
        let (mut told, mut count) = ([0; ALL as usize], 0);
        for (number, queue) in self.all().enumerate() {
            let group = queue.group();
            if due >> number & 1 == 0 || told.iter().take(count).any(|&other| other == group) {
                continue;
            }
            if let Some(place) = told.get_mut(count) {
                *place = group;
            }
            count += 1;
            queue.notify();
        }
    }

    /// Waits for frames of the guest, unless `full`; and for buffers, where it had none. True: they
    /// have come already.
    #[must_use]
    pub fn rest(&mut self, full: bool) -> bool {
        if !self.up {
            return false;
        }
        let mut more = false;
        for pair in &self.pairs {
            more |= pair.rest(full);
        }
        let unsaid = self.told != Some(self.link);
        let events = self.events.as_ref().filter(|_| unsaid);
        more | events.is_some_and(|events| events.rest() || events.ready())
    }
}
