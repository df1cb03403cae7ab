// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of the threads of cards to the first thread: connections that it must close, and the
//! results of orders.

use anyhow::Context;
use paravane_vbus::{Broken, ConnectionId, Error, Name};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Why a connection must be closed.
#[derive(Debug)]
pub enum End {
    /// The client broke the protocol.
    Broken(Broken),
    /// The network of the card has ended.
    Gone,
}

/// The outcome of orders: an error, or the result of a call. `None`: they have no result.
pub type Outcome = Option<Result<Vec<u8>, Error>>;

/// The news.
#[derive(Debug)]
pub struct News {
    /// Connections to close, by device.
    ended: Mutex<BTreeMap<Name, Vec<(ConnectionId, End)>>>,
    /// The outcomes of orders, with the numbers of the answers that wait for them.
    outcomes: Mutex<Vec<(u64, Outcome)>>,
    bell: OwnedFd,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl News {
    /// None.
    pub fn new() -> anyhow::Result<Arc<Self>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Arc::new(News {
            ended: Mutex::default(),
            outcomes: Mutex::default(),
            bell: eventfd(0, flags).context("eventfd")?,
        }))
    }

    /// Becomes readable, once for each edge, when there are some.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Makes the first thread look.
    pub fn ring(&self) {
        // Fails only if the counter is full, which also wakes the thread.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Another connection to close. Each comes once.
    pub fn add(&self, device: Name, id: ConnectionId, end: End) {
        lock(&self.ended).entry(device).or_default().push((id, end));
        self.ring();
    }

    /// The devices of which there are some.
    pub fn devices(&self) -> Vec<Name> {
        lock(&self.ended).keys().cloned().collect()
    }

    /// Those of a device.
    pub fn take(&self, device: &Name) -> Vec<(ConnectionId, End)> {
        lock(&self.ended).remove(device).unwrap_or_default()
    }

    /// Reports the outcome for which an answer waits.
    pub fn tell(&self, answer: u64, outcome: Outcome) {
        lock(&self.outcomes).push((answer, outcome));
        self.ring();
    }

    /// The outcomes that were reported since the last call.
    pub fn outcomes(&self) -> Vec<(u64, Outcome)> {
        std::mem::take(&mut *lock(&self.outcomes))
    }
}
