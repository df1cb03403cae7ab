// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that vbusd repeats a little later, because the previous vbusd may still hold the lock
//! of their file (`crate::disk`).
//!
//! vbusd's first thread continues during this. A peer has at most one such request: vbusd takes no
//! further request of it before the answer.

use paravane_vbus_protocol::Request;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How much later. As many as there are peers are made again each time.
const LATER: Duration = Duration::from_millis(20);

/// A request that waits.
#[derive(Debug)]
pub struct Postponed {
    pub peer: u64,
    pub request: Request,
    /// What came with it.
    pub files: Vec<OwnedFd>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Again {
    waiting: Vec<Postponed>,
    /// Since when the first of them waits.
    since: Option<Instant>,
}

impl Again {
    /// Lets a request wait.
    pub fn postpone(&mut self, postponed: Postponed) {
        self.since.get_or_insert_with(Instant::now);
        self.waiting.push(postponed);
    }

    /// How long it is until requests are made again, if some wait.
    pub fn patience(&self) -> Option<Duration> {
        let since = self.since?;
        Some(LATER.saturating_sub(since.elapsed()))
    }

    /// Takes the requests that are due now.
    pub fn due(&mut self) -> Vec<Postponed> {
        match self.patience() {
            Some(left) if left.is_zero() => {
                self.since = None;
                std::mem::take(&mut self.waiting)
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_again_after_its_time() {
        let mut again = Again::default();
        let postponed = |peer| Postponed {
            peer,
            request: Request::Classes,
            files: Vec::new(),
        };
        assert!(again.patience().is_none() && again.due().is_empty());
        let begun = Instant::now();
        for peer in 0..3 {
            again.postpone(postponed(peer));
        }
        let mut found = Vec::new();
        while found.is_empty() {
            std::thread::sleep(again.patience().unwrap());
            found = again.due();
        }
        assert!(begun.elapsed() >= LATER);
        assert!(found.iter().map(|one| one.peer).eq(0..3));
        assert!(again.patience().is_none() && again.due().is_empty());
    }
}
