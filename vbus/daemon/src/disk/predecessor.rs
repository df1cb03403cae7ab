// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The vbusd before this one, and the files that it still has locked.
//!
//! A vbusd that is killed leaves its ring to the host's kernel, which ends it some milliseconds
//! after the process, and with it the locks of its files. A request that finds such a file just
//! after the start is made again a little later (`crate::again`); all others are served meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// For how long after the start a locked file may be that of the vbusd before. The host's kernel
/// ends a ring on a thread of its own, in several steps. That took two processors 24 to 164 ms with
/// seven programs to run, and up to 332 ms with thirty. A host that is itself a virtual machine can
/// stand still for seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether a locked file is waited for.
#[derive(Debug)]
pub struct Predecessor {
    until: Instant,
    met: AtomicBool,
}

impl Predecessor {
    /// Of a vbusd that starts now.
    pub fn new() -> Self {
        Predecessor {
            until: Instant::now() + PATIENCE,
            met: AtomicBool::new(false),
        }
    }

    /// A file was found locked.
    pub fn meet(&self) {
        if Instant::now() < self.until {
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
    fn a_locked_file_is_told_of_once_and_only_after_the_start() {
        let mut predecessor = Predecessor::new();
        assert!(!predecessor.met());
        predecessor.meet();
        assert!(predecessor.met() && !predecessor.met());
        predecessor.until = Instant::now();
        predecessor.meet();
        assert!(!predecessor.met());
    }
}
