// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes of devices that their user sets, also while they work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// An attribute that is a short time in microseconds. All clones are one.
#[derive(Clone, Debug)]
pub struct Setting {
    name: &'static str,
    value: Arc<AtomicU32>,
}

impl Setting {
    /// With this value at first.
    pub fn new(name: &'static str, microseconds: u32) -> Self {
        Setting {
            name,
            value: Arc::new(AtomicU32::new(microseconds)),
        }
    }

    /// Its name, for users.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Microseconds.
    pub fn get(&self) -> u32 {
        self.value.load(Ordering::Relaxed)
    }

    /// The time.
    pub fn time(&self) -> Duration {
        Duration::from_micros(self.get().into())
    }

    /// Sets it: the device looks when it works next.
    pub fn set(&self, microseconds: u32) {
        self.value.store(microseconds, Ordering::Relaxed);
    }
}
