// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the machine ends: what may take long looks at it between two steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Clones are the same thing. The default one never begins by itself.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    begun: Arc<AtomicBool>,
}

impl Ending {
    /// From now on the machine ends.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
    }

    /// Whether it ends. Costs a load.
    #[inline]
    pub fn begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }
}
