// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices of a machine, for statistics.

use paravane_devices::counters::{Counters, Figures};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names and counters, in the guest's order.
#[derive(Debug, Default)]
pub struct DeviceList(Mutex<Vec<(String, Arc<Counters>)>>);

impl DeviceList {
    /// Adds a device.
    pub fn add(&self, name: &str, counters: &Arc<Counters>) {
        self.lock().push((name.to_string(), Arc::clone(counters)));
    }

    /// The devices' names and what they have counted, in the guest's order.
    pub fn figures(&self) -> Vec<(String, Figures)> {
        let figures = |(name, counters): &(String, Arc<Counters>)| (name.clone(), counters.read());
        self.lock().iter().map(figures).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, Arc<Counters>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
