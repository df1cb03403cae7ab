// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection to a disk: its requests, from their descriptors to their status.

use paravane_vbus::devices::block::Parts;
use paravane_vbus::{Broken, Endpoint, Error, Kind};
use std::collections::VecDeque;

/// A request that was taken.
#[derive(Debug)]
struct Taken {
    parts: Parts,
    done: bool,
}

/// A connection.
#[derive(Debug, Default)]
pub struct Port {
    tx: Option<Endpoint>,
    /// A request of which descriptors are missing.
    parts: Option<Parts>,
    /// The oldest first.
    taken: VecDeque<Taken>,
    /// Number of the oldest.
    first: u64,
}

impl Port {
    pub fn share(&mut self, endpoint: Endpoint) -> Result<(), Error> {
        if self.tx.is_some() {
            return Err(Error::new(Kind::Exists, "the queue is shared already"));
        }
        self.tx = Some(endpoint);
        Ok(())
    }

    /// The next request of which all descriptors are there.
    pub fn next(&mut self) -> Result<Option<Parts>, Broken> {
        match &mut self.tx {
            Some(tx) => Parts::next(tx, &mut self.parts),
            None => Ok(None),
        }
    }

    /// Keeps a request until it is done. Returns its number.
    pub fn take(&mut self, parts: Parts) -> u64 {
        self.taken.push_back(Taken { parts, done: false });
        self.first + self.taken.len() as u64 - 1
    }

    /// Requests that are kept.
    pub fn taken(&self) -> usize {
        self.taken.len()
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    /// A copy of what a request writes.
    pub fn written(&self, number: u64) -> Result<Vec<u8>, Broken> {
        let taken = self.index(number).and_then(|index| self.taken.get(index));
        let (Some(taken), Some(tx)) = (taken, &self.tx) else {
            return Ok(Vec::new());
        };
        let mut all = vec![0; taken.parts.bytes()];
        taken.parts.read(tx, 0, &mut all)?;
        Ok(all)
    }

    /// Reports the result of a request to the client, and returns the descriptors that need not
    /// wait for others.
    pub fn finish(&mut self, number: u64, status: u64, read: &[u8]) -> Result<(), Broken> {
        let index = self.index(number);
        let taken = index.and_then(|index| self.taken.get_mut(index));
        let (Some(taken), Some(tx)) = (taken, &mut self.tx) else {
            return Ok(());
        };
        taken.parts.write(tx, 0, read)?;
        taken.parts.finish(tx, status)?;
        taken.done = true;
        tx.tell();
        while let Some(oldest) = self.taken.front().filter(|oldest| oldest.done) {
            tx.give_back(oldest.parts.descriptors(), oldest.parts.bytes());
            self.taken.pop_front();
            self.first += 1;
        }
        Ok(())
    }

    /// The device looks by itself from now on.
    pub fn begin(&self) {
        if let Some(tx) = &self.tx {
            tx.begin();
        }
    }

    /// Notifies the client of what was done.
    pub fn signal(&mut self) {
        if let Some(tx) = &mut self.tx {
            tx.signal();
        }
    }

    /// Waits for requests. True: one has come already.
    pub fn rest(&self) -> bool {
        self.tx.as_ref().is_some_and(|tx| tx.rest() || tx.ready())
    }
}
