// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Read access to a machine's statistics for other threads.

use super::core::Core;
use super::vcpu_counters::{self, Vcpu};
use crate::device_list::DeviceFigures;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sees a machine. It does not keep the machine running.
#[derive(Clone, Debug)]
pub struct Observer {
    core: Arc<Core>,
    begun: Instant,
    memory: u64,
}

impl Observer {
    pub(super) fn new(core: &Arc<Core>, memory: u64) -> Self {
        Observer {
            core: Arc::clone(core),
            begun: Instant::now(),
            memory,
        }
    }

    /// The time since the machine was prepared.
    pub fn uptime(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Guest memory in bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// The number of address-space processes.
    pub fn processes(&self) -> usize {
        self.core.processes.count()
    }

    /// The host's ids of the address-space processes; none once the machine ends.
    pub fn process_ids(&self) -> Vec<u32> {
        let mut all = Vec::new();
        self.core.processes.act(|_, process| {
            all.push(process.pid);
            false
        });
        all
    }

    /// What each vCPU has done, as the layer counts it.
    pub fn vcpus(&self) -> Vec<Vcpu> {
        vcpu_counters::each(&self.core.shared, self.core.vcpus)
    }

    /// The devices and what they have counted, in the guest's order.
    pub fn devices(&self) -> Vec<DeviceFigures> {
        self.core.devices.figures()
    }

    /// Sets an attribute of all devices that have it. Returns how many these are.
    pub fn set(&self, attribute: &str, microseconds: u32) -> usize {
        self.core.devices.set(attribute, microseconds)
    }
}
