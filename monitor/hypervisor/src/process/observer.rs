// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A look at a machine, for whoever keeps its figures: it changes nothing, and goes to other threads.

use super::core::Core;
use super::vcpu_counters::{self, Vcpu};
use paravane_devices::counters::Figures;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sees a machine. It does not keep it running.
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

    /// Since the machine was put together.
    pub fn uptime(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Bytes of the guest's memory.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Address-space processes.
    pub fn processes(&self) -> usize {
        self.core.processes.count()
    }

    /// What each vCPU has done, by the layer's account.
    pub fn vcpus(&self) -> Vec<Vcpu> {
        vcpu_counters::each(&self.core.shared, self.core.vcpus)
    }

    /// The devices' names and what they have done, in the guest's order.
    pub fn devices(&self) -> Vec<(String, Figures)> {
        self.core.devices.figures()
    }
}
