// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads and flushes of a driver that has one request at a time.
//!
//! A request that must wait for the host's disk goes to a worker thread, so that it delays no
//! other. That costs two wake-ups of threads. If the driver has no other request, there is nothing
//! to delay, and the device's thread waits itself. A request that arrives during that waits for it:
//! then the next ones go to workers again.

/// Requests that go to workers after another one came during one that did not.
const PENALTY: u32 = 64;

/// Decides where a lone request waits.
#[derive(Debug, Default)]
pub struct Lone {
    to_workers: u32,
    waiting: bool,
}

impl Lone {
    /// Whether the device's thread waits for a request that is the driver's only one. At most one
    /// in 65 delays another request, by the time that it takes.
    pub fn here(&mut self) -> bool {
        self.waiting = self.to_workers == 0;
        self.to_workers = self.to_workers.saturating_sub(1);
        self.waiting
    }

    /// The driver's only request is done. `another`: another one arrived before that.
    pub fn done(&mut self, another: bool) {
        if std::mem::take(&mut self.waiting) && another {
            self.to_workers = PENALTY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_delayed_sends_the_next_reads_to_workers() {
        let mut lone = Lone::default();
        for _ in 0..3 {
            assert!(lone.here());
            lone.done(false);
            // A request that did not have to wait.
            lone.done(true);
        }
        assert!(lone.here());
        lone.done(true);
        assert_eq!((0..PENALTY).filter(|_| lone.here()).count(), 0);
        assert!(lone.here());
    }
}
