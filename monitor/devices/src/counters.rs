// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Statistics of one device.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one device, which its thread and the transport increment.
#[derive(Debug, Default)]
pub struct Counters {
    /// See [`Figures::notifications`].
    pub notifications: AtomicU64,
    /// See [`Figures::by_vcpu`].
    pub by_vcpu: AtomicU64,
    /// See [`Figures::wakeups`].
    pub wakeups: AtomicU64,
    /// See [`Figures::requests`].
    pub requests: AtomicU64,
    /// See [`Figures::buffers`].
    pub buffers: AtomicU64,
    /// See [`Figures::bytes_from_guest`].
    pub bytes_from_guest: AtomicU64,
    /// See [`Figures::bytes_to_guest`].
    pub bytes_to_guest: AtomicU64,
    /// See [`Figures::interrupts`].
    pub interrupts: AtomicU64,
    /// See [`Figures::resets`].
    pub resets: AtomicU64,
    /// See [`Figures::cpu_trials`].
    pub cpu_trials: AtomicU64,
    /// See [`Figures::cpu_gains`].
    pub cpu_gains: AtomicU64,
    /// See [`Figures::commands`].
    pub commands: AtomicU64,
    /// See [`Figures::commands_called`].
    pub commands_called: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Times that the device looked at a queue because of the driver's notification.
    pub notifications: u64,
    /// Those of them for which the vCPU did the work.
    #[serde(default)]
    pub by_vcpu: u64,
    /// Times that it looked because of something on the host.
    pub wakeups: u64,
    /// Chains of buffers returned to the driver.
    pub requests: u64,
    /// Buffers of chains that were taken.
    #[serde(default)]
    pub buffers: u64,
    /// Bytes in the readable buffers of chains that were taken.
    pub bytes_from_guest: u64,
    /// Bytes written to chains.
    pub bytes_to_guest: u64,
    /// Interrupts sent.
    pub interrupts: u64,
    /// Times that a driver broke a rule.
    pub resets: u64,
    /// Times that a vCPU which waits for the device tried another CPU of the host.
    #[serde(default)]
    pub cpu_trials: u64,
    /// Those of them after which it stayed there, because the device was faster.
    #[serde(default)]
    pub cpu_gains: u64,
    /// Commands of a bridge's driver: stores to a register, and calls.
    #[serde(default)]
    pub commands: u64,
    /// Those of them that were calls (`bus.command`), and so no traps.
    #[serde(default)]
    pub commands_called: u64,
}

/// Adds to a counter.
#[inline]
pub fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Counters {
    /// Reads all of them.
    pub fn read(&self) -> Figures {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            notifications: value(&self.notifications),
            by_vcpu: value(&self.by_vcpu),
            wakeups: value(&self.wakeups),
            requests: value(&self.requests),
            buffers: value(&self.buffers),
            bytes_from_guest: value(&self.bytes_from_guest),
            bytes_to_guest: value(&self.bytes_to_guest),
            interrupts: value(&self.interrupts),
            resets: value(&self.resets),
            cpu_trials: value(&self.cpu_trials),
            cpu_gains: value(&self.cpu_gains),
            commands: value(&self.commands),
            commands_called: value(&self.commands_called),
        }
    }
}
