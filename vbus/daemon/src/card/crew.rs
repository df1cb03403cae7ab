// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of cards, as vbusd's first thread sees them.

use super::news::News;
use super::worker::{ORDERS, Order, Worker};
use crate::confined;
use anyhow::Context;
use paravane_confine::Files;
use paravane_vbus::{ConnectionId, Error, Kind};
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// One thread.
#[derive(Debug)]
pub struct Crew {
    orders: Sender<Order>,
    bell: OwnedFd,
    most: usize,
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
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).context("eventfd")?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
        // Never read: it is watched for edges.
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(ORDERS);
        epoll::add(&poll, &bell, data, edges).context("epoll")?;
        let (orders, receiver) = channel();
        let news = Arc::clone(news);
        confined::start(name, policy, files, move || {
            Worker::new(poll, news, most).run(&receiver);
        })?;
        Ok(Arc::new(Crew { orders, bell, most }))
    }

    /// The number of cards that it runs at most.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Does something on the thread, and waits for that: at most for a turn of one card.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn ask<R: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Result<R, Error> {
        let (tell, told) = channel();
        let order: Order = Box::new(move |worker| {
            // Fails only if nobody waits any more.
            let _ = tell.send(what(worker));
        });
        let gone = || Error::new(Kind::Host, "the thread of the device has ended");
        self.orders.send(order).map_err(|_| gone())?;
        // Fails only if the counter is full, which wakes all the same.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        told.recv().map_err(|_| gone())
    }
}

/// Which connections have cards on other threads.
#[derive(Clone, Debug, Default)]
pub struct Elsewhere(Arc<Mutex<BTreeMap<ConnectionId, Arc<Crew>>>>);

impl Elsewhere {
    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<ConnectionId, Arc<Crew>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This one has.
    pub fn add(&self, id: ConnectionId, crew: &Arc<Crew>) {
        self.all().insert(id, Arc::clone(crew));
    }

    /// It has ended.
    pub fn remove(&self, id: ConnectionId) {
        self.all().remove(&id);
    }

    /// The thread of a connection, which is to get its notifications.
    pub fn of(&self, id: ConnectionId) -> Option<Arc<Crew>> {
        self.all().get(&id).cloned()
    }

    /// How many of these connections are on that thread.
    pub fn count<'a>(
        &self,
        crew: &Arc<Crew>,
        ids: impl Iterator<Item = &'a ConnectionId>,
    ) -> usize {
        let all = self.all();
        ids.filter(|id| all.get(id).is_some_and(|other| Arc::ptr_eq(other, crew)))
            .count()
    }
}
