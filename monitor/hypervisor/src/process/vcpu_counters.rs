// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layer's counters of each vCPU. A guest can write them, so they are only for display.

use super::shared::Shared;
use crate::Counters;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// What one vCPU has done since the machine's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcpu {
    /// Hidden faults: the layer mapped a page and the guest did not notice.
    pub faults_hidden: u64,
    /// Guest page faults and other exceptions that the guest got.
    pub faults_injected: u64,
    /// System calls and instructions that trapped.
    pub syscalls_trapped: u64,
    /// Interrupts delivered.
    pub interrupts: u64,
    /// Waits for an interrupt.
    pub halts: u64,
    /// Halts that ended while the vCPU looked for an interrupt, without a sleep.
    #[serde(default)]
    pub polls_won: u64,
    /// Halts for which it looked in vain.
    #[serde(default)]
    pub polls_lost: u64,
    /// Pages mapped.
    pub fills: u64,
    /// Flushes.
    pub flushes: u64,
    /// Hand-overs to another address-space process.
    pub switches: u64,
    /// Hand-overs after which the thread that gave the vCPU away slept.
    #[serde(default)]
    pub parks: u64,
    /// Loads of a space whose tables had changed.
    pub resyncs: u64,
    /// Signals to other vCPUs.
    pub kicks_sent: u64,
    /// Host calls of the layer.
    pub host_calls: u64,
    /// Host signals that the layer handled.
    #[serde(default)]
    pub signals: u64,
    /// Steal time in nanoseconds.
    pub stolen_ns: u64,
    /// Exits to the monitor, on KVM only.
    #[serde(default)]
    pub to_monitor: u64,
}

/// Each vCPU's counters. Each word is read once.
pub fn each(shared: &Shared, vcpus: usize) -> Vec<Vcpu> {
    let one = |vcpu: usize| {
        let words = shared.vcpu(vcpu);
        let field = |field: &AtomicU64| field.load(Ordering::Relaxed);
        Vcpu {
            faults_hidden: field(&words.faults_hidden),
            faults_injected: field(&words.faults_injected),
            syscalls_trapped: field(&words.syscalls_trapped),
            interrupts: field(&words.interrupts),
            halts: field(&words.halts),
            polls_won: field(&words.polls_won),
            polls_lost: field(&words.polls_lost),
            fills: field(&words.fills),
            flushes: field(&words.flushes),
            switches: field(&words.switches),
            parks: field(&words.parks),
            resyncs: field(&words.resyncs),
            kicks_sent: field(&words.kicks_sent),
            host_calls: field(&words.host_calls),
            signals: field(&words.signals),
            stolen_ns: field(&words.stolen_ns),
            to_monitor: 0,
        }
    };
    (0..vcpus).map(one).collect()
}

/// The sums over all vCPUs.
pub fn read(shared: &Shared, vcpus: usize) -> Counters {
    let all = each(shared, vcpus);
    let sum = |field: fn(&Vcpu) -> u64| all.iter().map(field).fold(0, u64::wrapping_add);
    Counters {
        host_calls: sum(|v| v.host_calls),
        signals: sum(|v| v.signals),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_figures_have_a_sum(calls: [u64; 3], signals: [u64; 3]) {
            let shared = Shared::new(0).unwrap();
            for vcpu in 0..3 {
                let words = shared.vcpu(vcpu);
                words.host_calls.store(calls[vcpu], Ordering::Relaxed);
                words.signals.store(signals[vcpu], Ordering::Relaxed);
            }
            let sum = |of: &[u64; 3]| of.iter().fold(0, |all: u64, one| all.wrapping_add(*one));
            let read = read(&shared, 3);
            prop_assert_eq!(read.host_calls, sum(&calls));
            prop_assert_eq!(read.signals, sum(&signals));
        }
    }
}
