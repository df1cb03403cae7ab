// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the machine ends: long work checks it between two steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The flag. Clones share it. The default one never begins by itself.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    begun: Arc<AtomicBool>,
}

impl Ending {
    /// The machine ends from now on.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
    }

    /// Whether the machine ends. Costs one load.
    #[inline]
    pub fn begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }
}
