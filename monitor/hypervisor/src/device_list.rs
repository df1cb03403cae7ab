// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices of a machine, for statistics.

use paravane_devices::Setting;
use paravane_devices::counters::{Counters, Figures};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device, for statistics.
#[derive(Clone, Debug)]
pub struct DeviceFigures {
    /// Its name.
    pub name: String,
    /// Its attributes, and what they are set to now.
    pub attributes: Vec<(&'static str, u32)>,
    /// What it has counted.
    pub figures: Figures,
}

#[derive(Debug)]
struct Listed {
    name: String,
    attributes: Vec<Setting>,
    counters: Arc<Counters>,
}

/// Names, attributes and counters, in the guest's order.
#[derive(Debug, Default)]
pub struct DeviceList(Mutex<Vec<Listed>>);

impl DeviceList {
    /// Adds a device.
    pub fn add(&self, name: &str, attributes: Vec<Setting>, counters: &Arc<Counters>) {
        self.lock().push(Listed {
            name: name.to_string(),
            attributes,
            counters: Arc::clone(counters),
        });
    }

    /// The devices and what they have counted, in the guest's order.
    pub fn figures(&self) -> Vec<DeviceFigures> {
        let figures = |listed: &Listed| DeviceFigures {
            name: listed.name.clone(),
            attributes: listed
                .attributes
                .iter()
                .map(|attribute| (attribute.name(), attribute.get()))
                .collect(),
            figures: listed.counters.read(),
        };
        self.lock().iter().map(figures).collect()
    }

    /// Sets an attribute of all devices that have it. Returns how many these are.
    pub fn set(&self, attribute: &str, microseconds: u32) -> usize {
        let all = self.lock();
        let settings = all.iter().flat_map(|listed| &listed.attributes);
        settings
            .filter(|setting| setting.name() == attribute)
            .inspect(|setting| setting.set(microseconds))
            .count()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Listed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
