// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the layer counts for each vCPU. A guest can write it: these are figures to look at, nothing depends on them.

use super::shared::Shared;
use crate::hypervisor::Counters;
use paravane_abi::process as ph;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

/// The sums over all vCPUs.
pub fn read(shared: &Shared, vcpus: usize) -> Counters {
    let sum = |field: usize| {
        (0..vcpus)
            .map(|vcpu| shared.vcpu_long(vcpu, field).load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    };
    // What reaches the layer as a signal of the host: every fault, every trapped call, every interrupt.
    let signals = [
        offset_of!(ph::PhVcpu, faults_hidden),
        offset_of!(ph::PhVcpu, faults_injected),
        offset_of!(ph::PhVcpu, syscalls_trapped),
        offset_of!(ph::PhVcpu, interrupts),
    ];
    Counters {
        host_calls: sum(offset_of!(ph::PhVcpu, host_calls)),
        signals: signals.into_iter().map(sum).fold(0, u64::wrapping_add),
    }
}
