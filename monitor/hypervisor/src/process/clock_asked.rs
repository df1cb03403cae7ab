// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monitor's half of `clock_wanted`: what a vCPU that has woken up asks for, and waits for.
//!
//! The vCPU promises for some requests that no vCPU reads the clock before the answer. It stops
//! waiting after a while, and the promise ends. So the clock is corrected only between a claim and
//! its end: a vCPU takes a request back by a compare and exchange, which a claim makes fail, and
//! then waits for the end.

use super::clock::Catch;
use super::kick::bit;
use paravane_abi::process as ph;
use std::sync::atomic::{AtomicU32, Ordering};

const RIGHT: u32 = bit(ph::PHV_CLOCK_RIGHT);
const UNREAD: u32 = bit(ph::PHV_CLOCK_WRONG_UNREAD);
const CLAIMED: u32 = bit(ph::PHV_CLOCK_CLAIMED);

/// Whether a vCPU waits for a claim.
pub fn is_asked(word: &AtomicU32) -> bool {
    !matches!(word.load(Ordering::SeqCst), RIGHT | CLAIMED)
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
