// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host CPU of each vCPU.

use super::shared::Shared;
use crate::size::size;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Of what is asked for: the vCPU goes back to where it was.
const BACK: u64 = 1 << 63;
/// Nothing is asked for.
const NONE: u64 = u64::MAX;

/// The monitor's own record. The layer has a copy in the shared area, which a guest could change.
#[derive(Debug)]
pub struct VcpuCpus {
    cpus: Vec<AtomicU32>,
    /// A vCPU was moved after the start.
    moved: AtomicBool,
    /// The vCPU, in the upper half, and the CPU that a device has asked for.
    asked: AtomicU64,
}

impl VcpuCpus {
    /// All on CPU 0.
    pub fn new(vcpus: usize) -> Self {
        VcpuCpus {
            cpus: (0..vcpus).map(|_| AtomicU32::new(0)).collect(),
            moved: AtomicBool::new(false),
            asked: AtomicU64::new(NONE),
        }
    }

    /// Sets the host CPU of a vCPU's threads, here and for the layer.
    pub fn set(&self, shared: &Shared, vcpu: usize, cpu: u32) {
        if let Some(entry) = self.cpus.get(vcpu) {
            entry.store(cpu, Ordering::SeqCst);
            shared.header().vcpu_cpu[vcpu].store(cpu, Ordering::SeqCst);
        }
    }

    /// The host CPU of a vCPU; `None` if there is no such vCPU.
    pub fn of(&self, vcpu: usize) -> Option<u32> {
        Some(self.cpus.get(vcpu)?.load(Ordering::SeqCst))
    }

    /// The host CPU of each vCPU.
    pub fn all(&self) -> Vec<u32> {
        let load = |cpu: &AtomicU32| cpu.load(Ordering::SeqCst);
        self.cpus.iter().map(load).collect()
    }

    /// Asks the watch, which the caller wakes, to move a vCPU to a CPU. `back`: it was moved from
    /// there. Only the last call counts.
    pub fn ask(&self, vcpu: usize, cpu: u32, back: bool) {
        let back = if back { BACK } else { 0 };
        let asked = back | (vcpu as u64) << 32 | u64::from(cpu);
        self.asked.store(asked, Ordering::SeqCst);
    }

    /// Takes what was asked for last: the vCPU, its CPU, and whether it goes back.
    pub fn take_asked(&self) -> Option<(usize, u32, bool)> {
        let asked = self.asked.swap(NONE, Ordering::SeqCst);
        let [c0, c1, c2, c3, v0, v1, v2, v3] = (asked & !BACK).to_le_bytes();
        let vcpu = size(u32::from_le_bytes([v0, v1, v2, v3]).into());
        let cpu = u32::from_le_bytes([c0, c1, c2, c3]);
        (asked != NONE).then_some((vcpu, cpu, asked & BACK != 0))
    }

    /// Records that a vCPU was moved after the start.
    pub fn set_moved(&self) {
        self.moved.store(true, Ordering::SeqCst);
    }

    /// Whether a vCPU was moved after the start.
    pub fn moved(&self) -> bool {
        self.moved.load(Ordering::SeqCst)
    }
}
