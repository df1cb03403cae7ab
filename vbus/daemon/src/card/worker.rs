// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that runs cards, each of which has one client.
//!
//! It sleeps until a client notifies its card, a file of the host is ready, or vbusd's first thread
//! has an order. Cards that have work get a turn each, one after the other. Orders come between
//! turns: a client waits for its answer, and the first thread does not.

use super::keeper::Keeper;
use super::news::{End, News, Outcome};
use super::orders::Orders;
use crate::guard;
use paravane_net::{Changes, Interface};
use paravane_vbus::limits;
use paravane_vbus::polls::Stretch;
use paravane_vbus::{ConnectionId, Device, Endpoint, Error, Kind, Name, Round, Work};
use paravane_vbus_cards::presence::Presence;
use paravane_vbus_cards::{Wake, Waker};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing::warn;

/// Most frames of a turn in each direction: no more than [`limits::TURN`] bytes are copied.
const BUDGET: u32 = 15;
const _: () = assert!(BUDGET as usize * limits::PACKET <= limits::TURN);
/// Events of one wait.
const EVENTS: usize = 64;
/// Most orders between two turns of cards: orders of some clients must not keep the cards of all
/// from their turns.
const OBEYED: usize = 8;

/// Kinds of what epoll reports: the upper half of its number. The rest is a connection.
pub const ORDERS: u64 = 0;
const KICK: u64 = 1 << 62;
const FILE: u64 = 2 << 62;
/// Interfaces of the host, which are no connection's.
const INTERFACES: u64 = 3 << 62;
const KINDS: u64 = 3 << 62;

/// A card that was made for a client.
pub struct Made {
    pub card: Box<dyn Device>,
    /// Whether its network is still there.
    pub presence: Option<Arc<Presence>>,
    /// The process of its network, which ends with it.
    #[expect(dead_code, reason = "its end has the effect")]
    pub passt: Option<super::user::Passt>,
}

/// Opens what a card leads to, on the keeper's thread if there is one.
pub type Open = Box<dyn FnOnce(Option<&Keeper>) -> Result<Make, Error> + Send>;

/// Makes a card, on the thread that will run it.
pub type Make = Box<dyn FnOnce(&Waker) -> Result<Made, Error> + Send>;

/// A card and its only connection.
struct Running {
    device: Name,
    made: Made,
    /// On which the client notifies the card. Never read: it is watched for edges.
    kick: Option<OwnedFd>,
    /// How long it looks for work by itself, in microseconds. The first thread sets it.
    poll: Arc<AtomicU64>,
    /// When it does.
    stretch: Stretch,
    awake: bool,
    /// The first thread was notified to close the connection.
    ended: bool,
}

/// What the thread has.
pub struct Worker {
    poll: Arc<OwnedFd>,
    news: Arc<News>,
    /// Informs cards on taps whether these are up.
    changes: Option<Arc<Changes>>,
    cards: BTreeMap<ConnectionId, Running>,
    /// Room for those of a round that have work.
    awake: Vec<ConnectionId>,
    /// The outcome of the orders since the last answer.
    outcome: Outcome,
}

/// Wakes a card for its files.
#[derive(Debug)]
struct Files {
    poll: Arc<OwnedFd>,
    id: ConnectionId,
    changes: Option<Arc<Changes>>,
    /// The changes that the card knows.
    seen: AtomicU64,
}

/// Waits once for a file.
fn arm(
    poll: &OwnedFd,
    file: BorrowedFd<'_>,
    token: u64,
    events: epoll::EventFlags,
) -> io::Result<()> {
    let data = epoll::EventData::new_u64(token);
    let events = events | epoll::EventFlags::ONESHOT;
    match epoll::modify(poll, file, data, events) {
        Err(Errno::NOENT) => Ok(epoll::add(poll, file, data, events)?),
        other => Ok(other?),
    }
}

impl Wake for Files {
    fn arm(&self, file: BorrowedFd<'_>, events: epoll::EventFlags) -> io::Result<()> {
        arm(&self.poll, file, FILE | self.id.0, events)
    }

    fn disarm(&self, file: BorrowedFd<'_>) {
        // Fails only if it was not armed.
        let _ = epoll::delete(&*self.poll, file);
    }

    fn interface(&self, index: u32) -> Option<Interface> {
        self.changes.as_ref()?.news(index, &self.seen)
    }
}

impl Worker {
    /// Takes orders from a file that `poll` watches.
    pub fn new(poll: OwnedFd, news: Arc<News>) -> Self {
        Worker {
            poll: Arc::new(poll),
            news,
            changes: None,
            cards: BTreeMap::new(),
            awake: Vec::new(),
            outcome: None,
        }
    }

    /// Its cards get changes of the host's interfaces.
    pub fn hear(&mut self, changes: Changes) {
        self.changes = Some(Arc::new(changes));
        self.await_changes();
    }

    fn await_changes(&self) {
        let Some(changes) = &self.changes else {
            return;
        };
        let armed = arm(
            &self.poll,
            changes.file(),
            INTERFACES,
            epoll::EventFlags::IN,
        );
        if let Err(error) = armed {
            warn!("network: cannot wait for changes of the host's interfaces: {error}");
        }
    }

    /// Interfaces of the host have changed: each card looks at its own.
    fn look_at_interfaces(&mut self) {
        let Some(changes) = &self.changes else {
            return;
        };
        changes.take();
        self.await_changes();
        for card in self.cards.values_mut() {
            card.made.card.woken();
            card.awake = true;
        }
    }

    /// Runs until no thread can give orders any more.
    pub fn run(mut self, orders: &Orders) {
        while self.round(orders, None) {}
    }

    /// Waits until there is something to do, at most for `most`, and does some of it. False: all
    /// was done, and no thread can give orders any more.
    pub(super) fn round(&mut self, orders: &Orders, most: Option<&Timespec>) -> bool {
        let none = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        };
        let mut buffer = [none; EVENTS];
        let now = self.has_work(orders).then(Timespec::default);
        // Fails only if a signal came.
        let count = epoll::wait(&*self.poll, &mut buffer[..], now.as_ref().or(most)).unwrap_or(0);
        for event in buffer.iter().take(count) {
            let token = event.data.u64();
            if token == INTERFACES {
                self.look_at_interfaces();
                continue;
            }
            let Some(card) = self.cards.get_mut(&ConnectionId(token & !KINDS)) else {
                continue;
            };
            if token & KINDS == FILE {
                card.made.card.woken();
            }
            card.awake |= token & KINDS != ORDERS;
        }
        let mut awake = std::mem::take(&mut self.awake);
        let cards = self.cards.iter().filter(|(_, card)| card.awake);
        awake.extend(cards.map(|(&id, _)| id));
        let mut goes_on = self.obey(orders);
        for id in awake.drain(..) {
            self.turn(id);
            goes_on &= self.obey(orders);
        }
        self.awake = awake;
        goes_on
    }

    /// Whether there is work that waits for nothing.
    pub(super) fn has_work(&self, orders: &Orders) -> bool {
        !orders.is_empty() || self.cards.values().any(|card| card.awake)
    }

    /// The connections whose cards it has.
    #[cfg(test)]
    pub(super) fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.cards.keys().copied()
    }

    /// Carries out some of the orders. False: all was done, and no thread can give orders any more.
    fn obey(&mut self, orders: &Orders) -> bool {
        for order in std::iter::from_fn(|| orders.next()).take(OBEYED) {
            order(self);
        }
        !orders.is_over()
    }

    /// Records the outcome of an order. The first error counts.
    pub fn note(&mut self, result: Result<Vec<u8>, Error>) {
        if !matches!(self.outcome, Some(Err(_))) {
            self.outcome = Some(result);
        }
    }

    /// Reports the result of the orders before to the first thread, for an answer that waits for
    /// it.
    pub fn answer(&mut self, number: u64) {
        self.news.tell(number, self.outcome.take());
    }

    /// A turn for a card that has work.
    fn turn(&mut self, id: ConnectionId) {
        let Some(card) = self.cards.get_mut(&id) else {
            // An order has ended it.
            return;
        };
        if card.ended {
            card.awake = false;
            return;
        }
        let mut round = Round::default();
        card.turn(id, &mut round);
        if guard::any_failed() {
            // The first thread ends the connection.
            self.news.ring();
        }
        let broken = round.broken.pop().map(|(_, why)| End::Broken(why));
        let gone = || {
            let presence = card.made.presence.as_ref()?;
            (presence.number() == 0).then_some(End::Gone)
        };
        if let Some(end) = broken.or_else(gone) {
            (card.ended, card.awake) = (true, false);
            self.news.add(card.device.clone(), id, end);
        }
    }

    /// Makes the card of a new connection.
    pub fn add(
        &mut self,
        device: Name,
        id: ConnectionId,
        poll: Arc<AtomicU64>,
        make: Make,
    ) -> Result<(), Error> {
        let waker: Waker = Arc::new(Files {
            poll: Arc::clone(&self.poll),
            id,
            changes: self.changes.clone(),
            seen: AtomicU64::new(u64::MAX),
        });
        let mut made = make(&waker)?;
        made.card.connect(id)?;
        let card = Running {
            device,
            made,
            kick: None,
            poll,
            stretch: Stretch::default(),
            awake: false,
            ended: false,
        };
        self.cards.insert(id, card);
        Ok(())
    }

    /// The client notifies by this file.
    pub fn listen(&mut self, id: ConnectionId, kick: OwnedFd) -> Result<(), Error> {
        let data = epoll::EventData::new_u64(KICK | id.0);
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let host = |error| Error::new(Kind::Host, format!("epoll: {error}"));
        epoll::add(&*self.poll, &kick, data, edges).map_err(host)?;
        self.card(id)?.kick = Some(kick);
        Ok(())
    }

    /// Ends a connection. Returns its card, which has no more to do with the client. `None`: it
    /// could not be made.
    pub fn remove(&mut self, id: ConnectionId) -> Option<Made> {
        let mut card = self.cards.remove(&id)?;
        if let Some(kick) = &card.kick {
            // The client has a copy, so closing this one does not end the watch.
            let _ = epoll::delete(&*self.poll, kick);
        }
        card.made.card.disconnect(id);
        Some(card.made)
    }

    fn card(&mut self, id: ConnectionId) -> Result<&mut Running, Error> {
        let card = self.cards.get_mut(&id);
        card.ok_or_else(|| Error::new(Kind::NotFound, "there is no such connection"))
    }

    /// A client shares a queue.
    pub fn share(&mut self, id: ConnectionId, queue: u32, end: Endpoint) -> Result<(), Error> {
        let card = self.card(id)?;
        card.awake = true;
        card.made.card.share(id, queue, end)
    }

    /// A client calls its card. Returns the result, of a bounded number of bytes.
    pub fn call(
        &mut self,
        id: ConnectionId,
        call: u32,
        argument: &[u8],
        most: usize,
    ) -> Result<Vec<u8>, Error> {
        let card = self.card(id)?;
        card.awake = true;
        let mut result = vec![0; most.min(limits::CALL)];
        let len = card.made.card.call(id, call, argument, &mut result)?;
        result.truncate(len);
        Ok(result)
    }
}

impl Running {
    fn turn(&mut self, id: ConnectionId, round: &mut Round) {
        let card = &mut self.made.card;
        let poll = Duration::from_micros(self.poll.load(Ordering::Relaxed));
        let work = card.work(id, BUDGET, round);
        if work != Work::Nothing {
            self.stretch.end();
        }
        let mut polls = || !poll.is_zero() && card.polls(id);
        self.awake = work == Work::More
            || (polls() && self.stretch.goes_on(poll, Instant::now()))
            || card.rest(id);
        if !self.awake {
            self.stretch.end();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A failed setup fails the test.

    use super::*;

    /// Orders are carried out in their order, a few at once, and none is forgotten at the end.
    #[test]
    fn orders_without_end_leave_turns_to_the_cards() {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mut worker = Worker::new(poll, News::new().unwrap());
        let orders = Orders::new().unwrap();
        let done = Arc::new(AtomicU64::new(0));
        for _ in 0..2 * OBEYED {
            let done = Arc::clone(&done);
            orders.give(Box::new(move |_| {
                done.fetch_add(1, Ordering::Relaxed);
            }));
        }
        orders.close();
        assert!(worker.obey(&orders));
        assert_eq!(done.load(Ordering::Relaxed), OBEYED as u64);
        assert!(!worker.obey(&orders));
        assert_eq!(done.load(Ordering::Relaxed), 2 * OBEYED as u64);
    }
}
