// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders of vbusd's first thread to a thread of cards, which carries them out in order.
//!
//! The first thread never waits for that thread, which may be amid a turn of a card. An answer that
//! depends on an order is sent when the order was carried out (`crate::later`).

use super::worker::Worker;
use anyhow::Context;
use paravane_vbus::{Error, Kind};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most orders that wait when another one is given. One request has at most two, and then an
/// answer; ends of cards are as many as there are cards.
const WAITING: usize = 256;

/// Something to do on the thread.
pub type Order = Box<dyn FnOnce(&mut Worker) + Send>;

/// Orders that wait.
pub struct Orders {
    waiting: Mutex<Waiting>,
    bell: OwnedFd,
}

#[derive(Default)]
struct Waiting {
    orders: VecDeque<Order>,
    /// No thread gives any more.
    closed: bool,
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} orders", self.lock().orders.len())
    }
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None.
    ///
    /// # Errors
    /// The host has no eventfd.
    pub fn new() -> anyhow::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Orders {
            waiting: Mutex::default(),
            bell: eventfd(0, flags).context("eventfd")?,
        })
    }

    /// Becomes readable, once for each edge, when there are some.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    fn ring(&self) {
        // Fails only if the counter is full, which also wakes the thread.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Whether there is room for another order, beside those that are still to come.
    ///
    /// # Errors
    /// Too many wait.
    pub fn admit(&self, more: usize) -> Result<(), Error> {
        if self.lock().orders.len() + more >= WAITING {
            let text = "vbusd has too much to do for such devices: try again";
            return Err(Error::new(Kind::Busy, text));
        }
        Ok(())
    }

    /// Gives an order. It was admitted, or follows what was admitted before, which bounds their
    /// number: the end of a card, an answer.
    pub fn give(&self, order: Order) {
        self.lock().orders.push_back(order);
        self.ring();
    }

    /// Takes the next one.
    pub fn next(&self) -> Option<Order> {
        self.lock().orders.pop_front()
    }

    /// Ends the orders: no thread gives any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.ring();
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.lock().orders.is_empty()
    }

    /// Whether no thread gives any more, and none waits.
    pub fn is_over(&self) -> bool {
        let waiting = self.lock();
        waiting.closed && waiting.orders.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_wait_in_a_row_that_has_an_end() {
        let orders = Orders::new().unwrap();
        for _ in 0..WAITING {
            orders.admit(0).unwrap();
            orders.give(Box::new(|_| {}));
        }
        let refused = orders.admit(0).unwrap_err();
        assert_eq!(refused.kind(), Kind::Busy);
        // The end of a card always has a place.
        orders.give(Box::new(|_| {}));
        let taken = std::iter::from_fn(|| orders.next()).count();
        assert_eq!(taken, WAITING + 1);
        assert!(orders.is_empty() && !orders.is_over());
        // Those that are on their way need their places.
        orders.admit(WAITING - 1).unwrap();
        assert!(orders.admit(WAITING).is_err());
        orders.give(Box::new(|_| {}));
        orders.close();
        assert!(!orders.is_over());
        assert!(orders.next().is_some() && orders.is_over());
    }
}
