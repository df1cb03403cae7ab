// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of cards, as vbusd's first thread sees them.

use super::keeper::Keeper;
use super::kinds::Try;
use super::news::News;
use super::orders::Orders;
use super::worker::{ORDERS, Worker};
use crate::confined;
use anyhow::Context;
use paravane_confine::Files;
use paravane_net::Changes;
use paravane_vbus::{ConnectionId, Error, Kind};
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One thread.
#[derive(Debug)]
pub struct Crew {
    orders: Arc<Orders>,
    /// The thread that does for it what may take long. All orders pass it, if there is one.
    keeper: Option<Keeper>,
    /// Admitted orders that wait for the keeper.
    kept: Arc<AtomicUsize>,
    most: usize,
    /// Connections that have a card on it, or will have one.
    cards: AtomicUsize,
    /// Orders were given since the first thread asked last.
    given: AtomicBool,
}

impl Crew {
    /// Starts the thread, which confines itself and opens no file. It runs at most `most` cards,
    /// and notifies them of changes of interfaces.
    ///
    /// # Errors
    /// The host has no thread for it, or refuses the policy.
    pub fn start(
        name: &str,
        policy: &'static str,
        (keeper, changes): (Option<Keeper>, Option<Changes>),
        news: &Arc<News>,
        most: usize,
    ) -> anyhow::Result<Arc<Self>> {
        let (crew, poll) = Crew::new(most, keeper)?;
        let (theirs, news) = (Arc::clone(&crew.orders), Arc::clone(news));
        confined::start(name, policy, Files::none(), move || {
            let mut worker = Worker::new(poll, news);
            if let Some(changes) = changes {
                worker.hear(changes);
            }
            worker.run(&theirs);
        })?;
        Ok(Arc::new(crew))
    }

    /// Without a thread, and with what that is to wait for.
    pub(super) fn new(most: usize, keeper: Option<Keeper>) -> anyhow::Result<(Self, OwnedFd)> {
        let orders = Orders::new()?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
        // Never read: it is watched for edges.
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(ORDERS);
        epoll::add(&poll, orders.bell(), data, edges).context("epoll")?;
        let crew = Crew {
            orders: Arc::new(orders),
            keeper,
            kept: Arc::default(),
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
    /// Too many orders wait already.
    pub fn order(&self, what: impl FnOnce(&mut Worker) + Send + 'static) -> Result<(), Error> {
        self.prepared(|_| (), |worker, ()| what(worker))
    }

    /// Has something done that must be done, and follows something that was admitted.
    pub fn must(&self, what: impl FnOnce(&mut Worker) + Send + 'static) {
        self.pass(|_| (), |worker, ()| what(worker));
    }

    /// Has something done on the thread with the result of something else, which may take long
    /// where the thread has a keeper.
    ///
    /// # Errors
    /// Too many orders wait already.
    pub fn prepared<T: Send + 'static>(
        &self,
        first: impl FnOnce(Option<&Keeper>) -> T + Send + 'static,
        then: impl FnOnce(&mut Worker, T) + Send + 'static,
    ) -> Result<(), Error> {
        self.orders.admit(self.kept.load(Ordering::Relaxed))?;
        // Without a keeper, an order waits among the orders at once.
        let one = usize::from(self.keeper.is_some());
        self.kept.fetch_add(one, Ordering::Relaxed);
        let kept = Arc::clone(&self.kept);
        let first = move |keeper: Option<&Keeper>| {
            let done = first(keeper);
            kept.fetch_sub(one, Ordering::Relaxed);
            done
        };
        self.pass(first, then);
        Ok(())
    }

    /// Tries something, and records the outcome.
    ///
    /// # Errors
    /// Too many orders wait already.
    pub fn attempt(&self, what: Try) -> Result<(), Error> {
        let note = |worker: &mut Worker, done: Result<(), Error>| {
            worker.note(done.map(|()| Vec::new()));
        };
        match what {
            Try::Kept(attempt) => self.prepared(|_| attempt(), note),
            Try::Cards(attempt) => self.order(move |worker| note(worker, attempt())),
        }
    }

    /// Has something taken from the thread, and then something done that may take long where the
    /// thread has a keeper. Later orders are carried out after both. It must be done.
    pub fn finish<T: Send + 'static>(
        &self,
        take: impl FnOnce(&mut Worker) -> T + Send + 'static,
        last: impl FnOnce(T) + Send + 'static,
    ) {
        let Some(keeper) = &self.keeper else {
            return self.must(move |worker| last(take(worker)));
        };
        let orders = Arc::clone(&self.orders);
        keeper.give(move || {
            let (tell, told) = channel();
            orders.give(Box::new(move |worker| {
                // Fails only if the keeper has ended.
                let _ = tell.send(take(worker));
            }));
            if let Ok(taken) = told.recv() {
                last(taken);
            }
        });
        self.given.store(true, Ordering::Relaxed);
    }

    fn pass<T: Send + 'static>(
        &self,
        first: impl FnOnce(Option<&Keeper>) -> T + Send + 'static,
        then: impl FnOnce(&mut Worker, T) + Send + 'static,
    ) {
        if let Some(keeper) = &self.keeper {
            let (its, orders) = (keeper.clone(), Arc::clone(&self.orders));
            keeper.give(move || {
                let done = first(Some(&its));
                orders.give(Box::new(move |worker| then(worker, done)));
            });
        } else {
            self.orders.give(Box::new(move |worker| {
                let done = first(None);
                then(worker, done);
            }));
        }
        self.given.store(true, Ordering::Relaxed);
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
        let orders = Arc::clone(&self.orders);
        match &self.keeper {
            // After all that was given before.
            Some(keeper) => keeper.give(move || orders.close()),
            None => orders.close(),
        }
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

    /// How many of them are on that thread: those of one thread do not limit another one.
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
