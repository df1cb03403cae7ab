// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a device is on the bus of its only client.

use std::sync::atomic::{AtomicU32, Ordering};

/// Whether the client sees the device: 0 if not, else another number for each device that takes the
/// place of the one before. It begins with 1.
#[derive(Debug)]
pub struct Presence(AtomicU32);

impl Default for Presence {
    fn default() -> Self {
        Presence(AtomicU32::new(1))
    }
}

impl Presence {
    /// The number of the device that is there.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Another one is there now.
    pub fn set(&self, number: u32) {
        self.0.store(number, Ordering::SeqCst);
    }
}
