// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The vbusd before this one, and the files that it still has locked.
//!
//! A vbusd that is killed leaves its ring to the host's kernel, which ends it some milliseconds
//! after the process, and with it the locks of its files. A request that finds such a file just
//! after the start is repeated a little later (`crate::again`); all others are served in the
//! meantime.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// For how long after the start a locked file may be that of the vbusd before. The host's kernel
/// ends a ring on a thread of its own, in several steps, and waits for RCU between them. That took
/// two processors 24 to 164 ms with seven programs to run, and up to 332 ms with thirty. Where the
/// host's own threads got no processor for 10 s, it took up to 21 s. A client waits longer for an
/// answer (60 s). A file that a disk of this vbusd has is not waited for.
const PATIENCE: Duration = Duration::from_secs(40);
/// A host that is itself a virtual machine can stand still for half a minute. The time is then over
/// before its kernel has done anything, so some attempts are made for this long in any case.
const LONGER: Duration = Duration::from_secs(120);
/// The number of attempts after which none is made for that reason.
const ATTEMPTS: u32 = 100;

/// Whether a locked file is waited for.
#[derive(Debug)]
pub struct Predecessor {
    start: Instant,
    attempts: AtomicU32,
    met: AtomicBool,
}

impl Predecessor {
    /// Of a vbusd that starts now.
    pub fn new() -> Self {
        Predecessor {
            start: Instant::now(),
            attempts: AtomicU32::new(0),
            met: AtomicBool::new(false),
        }
    }

    /// A file was found locked.
    pub fn meet(&self) {
        let since = self.start.elapsed();
        let attempts = self.attempts.load(Ordering::Relaxed);
        self.attempts
            .store(attempts.saturating_add(1), Ordering::Relaxed);
        if since < PATIENCE || since < LONGER && attempts < ATTEMPTS {
            self.met.store(true, Ordering::Relaxed);
        }
    }

    /// Whether that happened since the last call, and the file may be free a little later.
    pub fn met(&self) -> bool {
        self.met.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_file_is_told_of_once() {
        let predecessor = Predecessor::new();
        assert!(!predecessor.met());
        predecessor.meet();
        assert!(predecessor.met() && !predecessor.met());
    }

    /// Whether a locked file is waited for that was found `attempts` times, at this time after the
    /// start.
    fn waits(since: Duration, attempts: u32) -> bool {
        let mut predecessor = Predecessor::new();
        predecessor.start = Instant::now().checked_sub(since).unwrap();
        for _ in 0..attempts {
            predecessor.meet();
            predecessor.met.store(false, Ordering::Relaxed);
        }
        predecessor.meet();
        predecessor.met()
    }

    #[test]
    fn it_is_waited_for_after_the_start_and_longer_where_the_host_stood_still() {
        assert!(waits(Duration::ZERO, ATTEMPTS));
        assert!(waits(PATIENCE, 0) && waits(PATIENCE, ATTEMPTS - 1));
        assert!(!waits(PATIENCE, ATTEMPTS));
        assert!(!waits(LONGER, 0));
    }
}
