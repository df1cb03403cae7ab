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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_figures_have_a_sum(calls: [u64; 3], faults: [u64; 3], interrupts: [u64; 3]) {
            let shared = Shared::new(0).unwrap();
            for vcpu in 0..3 {
                let store = |field, value| shared.vcpu_long(vcpu, field).store(value, Ordering::Relaxed);
                store(offset_of!(ph::PhVcpu, host_calls), calls[vcpu]);
                store(offset_of!(ph::PhVcpu, faults_hidden), faults[vcpu]);
                store(offset_of!(ph::PhVcpu, interrupts), interrupts[vcpu]);
            }
            let sum = |of: &[u64; 3]| of.iter().fold(0, |all: u64, one| all.wrapping_add(*one));
            let read = read(&shared, 3);
            prop_assert_eq!(read.host_calls, sum(&calls));
            prop_assert_eq!(read.signals, sum(&faults).wrapping_add(sum(&interrupts)));
        }
    }
}
