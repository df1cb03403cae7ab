// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of cards, as vbusd's first thread sees them.

use super::news::News;
use super::orders::Orders;
use super::worker::{ORDERS, Worker};
use crate::confined;
use anyhow::Context;
use paravane_confine::Files;
use paravane_vbus::{ConnectionId, Error, Kind};
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One thread.
#[derive(Debug)]
pub struct Crew {
    orders: Arc<Orders>,
    bell: OwnedFd,
    most: usize,
    /// Connections that have a card on it, or will have one.
    cards: AtomicUsize,
    /// Orders were given since the first thread asked last.
    given: AtomicBool,
}

impl Crew {
    /// Starts the thread, which confines itself. It runs at most so many cards.
    ///
    /// # Errors
    /// The host has no thread for it, or refuses the policy.
    pub fn start(
        name: &str,
        policy: &'static str,
        files: Files,
        news: &Arc<News>,
        most: usize,
    ) -> anyhow::Result<Arc<Self>> {
        let (crew, poll) = Crew::new(most)?;
        let (theirs, news) = (Arc::clone(&crew.orders), Arc::clone(news));
        confined::start(name, policy, files, move || {
            Worker::new(poll, news).run(&theirs);
        })?;
        Ok(Arc::new(crew))
    }

    /// Without a thread, and with what that is to wait for.
    pub(super) fn new(most: usize) -> anyhow::Result<(Self, OwnedFd)> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).context("eventfd")?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
        // Never read: it is watched for edges.
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(ORDERS);
        epoll::add(&poll, &bell, data, edges).context("epoll")?;
        let crew = Crew {
            orders: Arc::default(),
            bell,
            most,
            cards: AtomicUsize::new(0),
            given: AtomicBool::new(false),
        };
        Ok((crew, poll))
    }

    /// What waits for the thread.
    #[cfg(test)]
    pub(super) fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    /// The number of cards that it runs at most.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Has something done on the thread, after all that was ordered before. Does not wait.
    ///
    /// # Errors
    /// Too much is to be done already.
    pub fn order(&self, what: impl FnOnce(&mut Worker) + Send + 'static) -> Result<(), Error> {
        self.orders.give(Box::new(what))?;
        self.ring();
        Ok(())
    }

    /// The same for what must be done, and follows something that was admitted.
    pub fn must(&self, what: impl FnOnce(&mut Worker) + Send + 'static) {
        self.orders.must(Box::new(what));
        self.ring();
    }

    fn ring(&self) {
        self.given.store(true, Ordering::Relaxed);
        // Fails only if the counter is full, which wakes all the same.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Whether orders were given since the last call.
    pub fn given(&self) -> bool {
        self.given.swap(false, Ordering::Relaxed)
    }

    /// Another connection is to have a card.
    ///
    /// # Errors
    /// The thread runs no more, or has not ended enough of those that it had.
    pub fn admit(&self, elsewhere: &Elsewhere) -> Result<(), Error> {
        if self.cards.load(Ordering::Relaxed) >= self.most {
            let text = format!(
                "vbusd has no descriptors for more than {} clients of such devices",
                self.most
            );
            return Err(Error::new(Kind::Limit, text));
        }
        if elsewhere.ending_on(self) >= self.most {
            let text = "cards of other clients still end: try again";
            return Err(Error::new(Kind::Busy, text));
        }
        self.cards.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A connection with a card has ended, or is not to have one.
    pub fn release(&self) {
        self.cards.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.orders.close();
        self.ring();
    }
}

/// Which connections have cards on other threads.
#[derive(Clone, Debug, Default)]
pub struct Elsewhere(Arc<Mutex<Connections>>);

#[derive(Debug, Default)]
struct Connections {
    open: BTreeMap<ConnectionId, Arc<Crew>>,
    /// Those that have ended, but whose cards have not: such a card may still use the client's
    /// memory, so the client must not learn of the end.
    ending: Vec<(ConnectionId, Arc<Crew>)>,
}

impl Elsewhere {
    fn all(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This one has.
    pub fn add(&self, id: ConnectionId, crew: &Arc<Crew>) {
        self.all().open.insert(id, Arc::clone(crew));
    }

    /// It has ended, and its card is to end.
    pub fn end(&self, id: ConnectionId) {
        let mut all = self.all();
        if let Some(crew) = all.open.remove(&id) {
            all.ending.push((id, crew));
        }
    }

    /// Its card has ended.
    pub fn ended(&self, id: ConnectionId) {
        self.all().ending.retain(|(other, _)| *other != id);
    }

    /// Whether the card of a connection that has ended is still there.
    pub fn is_ending(&self, id: ConnectionId) -> bool {
        self.all().ending.iter().any(|(other, _)| *other == id)
    }

    /// Whether there are such cards.
    pub fn any_ends(&self) -> bool {
        !self.all().ending.is_empty()
    }

    /// How many of them are on that thread: those of one thread keep nobody from another.
    pub fn ending_on(&self, crew: &Crew) -> usize {
        let all = self.all();
        let theirs = all
            .ending
            .iter()
            .filter(|(_, other)| ptr::eq(&raw const **other, crew));
        theirs.count()
    }

    /// The thread of a connection, which is to get its notifications.
    pub fn of(&self, id: ConnectionId) -> Option<Arc<Crew>> {
        self.all().open.get(&id).cloned()
    }

    /// How many of these connections are on that thread.
    pub fn count<'a>(
        &self,
        crew: &Arc<Crew>,
        ids: impl Iterator<Item = &'a ConnectionId>,
    ) -> usize {
        let open = &self.all().open;
        ids.filter(|id| open.get(id).is_some_and(|other| Arc::ptr_eq(other, crew)))
            .count()
    }
}
