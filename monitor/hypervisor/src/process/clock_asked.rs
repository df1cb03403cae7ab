// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monitor's half of `clock_wanted`: the request of a vCPU that has woken up, for which it
//! waits.
//!
//! The vCPU promises for some requests that no vCPU reads the clock before the answer. It stops
//! waiting after a while, and the promise ends. So the clock is corrected only between a claim and
//! its end. A vCPU takes a request back by a compare and exchange. After a claim this fails, and
//! the vCPU waits for the end.

use super::clock::Catch;
use super::kick::bit;
use paravane_abi::process as ph;
use std::sync::atomic::{AtomicU32, Ordering};

const RIGHT: u32 = bit(ph::PHV_CLOCK_RIGHT);
const UNREAD: u32 = bit(ph::PHV_CLOCK_WRONG_UNREAD);
const CLAIMED: u32 = bit(ph::PHV_CLOCK_CLAIMED);

/// The shortest time between two requests that are served, in ns. The layer asks less often, but
/// the guest may ask without end.
pub const LEAST: u64 = 10_000_000;

/// Whether a vCPU waits for a claim.
fn is_asked(word: &AtomicU32) -> bool {
    !matches!(word.load(Ordering::SeqCst), RIGHT | CLAIMED)
}

/// Decides which requests wake the watch.
#[derive(Debug, Default)]
pub struct Passed {
    next: u64,
}

impl Passed {
    /// Whether what is asked for wakes the watch. `now` is called if anything is, and returns the
    /// time in ns.
    pub fn wakes(&mut self, word: &AtomicU32, now: impl Fn() -> u64) -> bool {
        if !is_asked(word) {
            return false;
        }
        let now = now();
        let wakes = now >= self.next;
        if wakes {
            self.next = now.saturating_add(LEAST);
        }
        wakes
    }
}

/// Claims what is asked for. `None`: nothing is, or the vCPU has just taken it back.
pub fn claim(word: &AtomicU32) -> Option<Catch> {
    let asked = word.load(Ordering::SeqCst);
    if matches!(asked, RIGHT | CLAIMED) {
        return None;
    }
    word.compare_exchange(asked, CLAIMED, Ordering::SeqCst, Ordering::SeqCst)
        .ok()?;
    // The layer's word may be anything.
    Some(if asked == UNREAD {
        Catch::Both
    } else {
        Catch::Up
    })
}

/// Ends a claim. The caller wakes the vCPU.
pub fn end(word: &AtomicU32) {
    word.store(RIGHT, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_asks_without_end_wakes_the_watch_seldom() {
        let word = AtomicU32::new(RIGHT);
        let mut passed = Passed::default();
        assert!(!passed.wakes(&word, || unreachable!()));
        word.store(UNREAD, Ordering::SeqCst);
        let woken = (0..=10 * LEAST)
            .step_by(1000)
            .filter(|&now| passed.wakes(&word, || now));
        assert_eq!(woken.count(), 11);
    }

    #[test]
    fn what_a_vcpu_asks_for_is_claimed_once() {
        // The guest can write any number.
        for (asked, how) in [
            (bit(ph::PHV_CLOCK_WRONG), Catch::Up),
            (UNREAD, Catch::Both),
            (u32::MAX, Catch::Up),
        ] {
            let word = AtomicU32::new(RIGHT);
            assert!(!is_asked(&word));
            assert_eq!(claim(&word), None);
            word.store(asked, Ordering::SeqCst);
            assert!(is_asked(&word));
            assert_eq!(claim(&word), Some(how));
            assert!(!is_asked(&word));
            assert_eq!(claim(&word), None);
            // Too late for the vCPU to take it back.
            let back = word.compare_exchange(asked, RIGHT, Ordering::SeqCst, Ordering::SeqCst);
            assert_eq!(back, Err(CLAIMED));
            end(&word);
            assert_eq!(word.load(Ordering::SeqCst), RIGHT);
        }
    }
}
