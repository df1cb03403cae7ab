// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine has done: for people ([`table`]), for programs (JSON), for Prometheus
//! ([`prometheus`]).

mod prometheus;
pub mod serve;
mod table;

pub use serve::Metrics;
pub use table::table;

use crate::run::Choice;
use crate::vm::Observer;
use paravane_devices::counters::Figures;
use paravane_hypervisor::process::VcpuFigures;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Figures of a machine at one moment, counted since its start. Those of the vCPUs are in memory
/// that the guest can write, so a hostile guest can make them say anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Milliseconds since the machine was created.
    pub uptime_ms: u64,
    /// What runs the machine: `process` or `kvm`.
    #[serde(default)]
    pub hypervisor: String,
    /// Why that was chosen.
    #[serde(default)]
    pub hypervisor_reason: String,
    /// Bytes of the guest's memory.
    pub memory: u64,
    /// Address-space processes.
    pub processes: usize,
    /// The vCPUs, by their numbers.
    pub vcpus: Vec<VcpuFigures>,
    /// The devices, in the guest's order.
    pub devices: Vec<Device>,
}

/// A device, in the guest's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name in messages.
    pub name: String,
    /// Its attributes, if it has some.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, u32>,
    /// What it has counted.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Stats {
    /// A machine's, now.
    pub(crate) fn of(machine: &Observer, choice: &Choice) -> Self {
        let devices = machine.devices().into_iter();
        Stats {
            hypervisor: choice.name.clone(),
            hypervisor_reason: choice.why.clone(),
            uptime_ms: u64::try_from(machine.uptime().as_millis()).unwrap_or(u64::MAX),
            memory: machine.memory(),
            processes: machine.processes(),
            vcpus: machine.vcpus(),
            devices: devices
                .map(|device| Device {
                    name: device.name,
                    attributes: device
                        .attributes
                        .into_iter()
                        .map(|(name, value)| (name.to_string(), value))
                        .collect(),
                    figures: device.figures,
                })
                .collect(),
        }
    }

    /// What the vCPUs and the devices have counted since an earlier moment. A counter that a
    /// guest has set back counts as unchanged.
    pub fn since(&self, before: &Stats) -> Vec<Increase> {
        let none = VcpuFigures::default();
        let vcpu_rows = ROWS
            .iter()
            .map(|(name, _, what, value)| (*name, *what, *value));
        let stolen: fn(&VcpuFigures) -> u64 = |v| v.stolen_ns / 1_000_000;
        let stolen = ("stolen", "ms that vCPUs wanted to run and did not", stolen);
        let vcpus = vcpu_rows.chain([stolen]).map(|(name, what, value)| {
            let now = self.vcpus.iter().enumerate();
            let each = now.map(|(number, now)| {
                let before = before.vcpus.get(number).unwrap_or(&none);
                value(now).saturating_sub(value(before))
            });
            let vcpus: Vec<u64> = each.collect();
            Increase {
                name: name.to_string(),
                what: what.to_string(),
                total: vcpus.iter().copied().fold(0, u64::saturating_add),
                vcpus,
            }
        });
        let devices = self.devices.iter().enumerate().flat_map(|(number, now)| {
            let before = before.devices.get(number).map(|d| d.figures);
            let before = before.unwrap_or_default();
            DEVICE_ROWS.iter().map(move |(name, what, value)| Increase {
                name: format!("{} {name}", now.name),
                what: (*what).to_string(),
                total: value(&now.figures).saturating_sub(value(&before)),
                vcpus: Vec::new(),
            })
        });
        vcpus.chain(devices).collect()
    }
}

/// The increase of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Increase {
    /// Its name; for a device, after the device's name.
    pub name: String,
    /// What it counts.
    pub what: String,
    /// The increase of all vCPUs, or of the device.
    pub total: u64,
    /// The increase of each vCPU; empty for a device.
    pub vcpus: Vec<u64>,
}

/// What vCPUs count: the name, whether it is a kind of exit, what it is, its value.
type Row = (&'static str, bool, &'static str, fn(&VcpuFigures) -> u64);

const ROWS: [Row; 16] = [
    (
        "fault_hidden",
        true,
        "a page was mapped, the guest heard nothing",
        |v| v.faults_hidden,
    ),
    (
        "fault_injected",
        true,
        "a fault that is the guest's own",
        |v| v.faults_injected,
    ),
    (
        "trap",
        true,
        "a system call or an instruction that trapped",
        |v| v.syscalls_trapped,
    ),
    ("interrupt", true, "an interrupt was delivered", |v| {
        v.interrupts
    }),
    ("halt", true, "a wait for an interrupt", |v| v.halts),
    (
        "to_monitor",
        true,
        "an access that the monitor served (KVM)",
        |v| v.to_monitor,
    ),
    (
        "polls_won",
        false,
        "halts that ended without a sleep",
        |v| v.polls_won,
    ),
    ("polls_lost", false, "halts that looked in vain", |v| {
        v.polls_lost
    }),
    ("fills", false, "pages mapped", |v| v.fills),
    ("flushes", false, "flushes of mappings", |v| v.flushes),
    (
        "switches",
        false,
        "hand-overs to another address-space process",
        |v| v.switches,
    ),
    (
        "parks",
        false,
        "sleeps of threads that handed their vCPU over",
        |v| v.parks,
    ),
    ("resyncs", false, "loads of a space that had changed", |v| {
        v.resyncs
    }),
    ("kicks", false, "signals to other vCPUs", |v| v.kicks_sent),
    (
        "host_calls",
        false,
        "the layer's system calls to the host",
        |v| v.host_calls,
    ),
    (
        "signals",
        false,
        "signals of the host that the layer handled",
        |v| v.signals,
    ),
];

/// What devices count: the name, what it is, its value.
type DeviceRow = (&'static str, &'static str, fn(&Figures) -> u64);

const DEVICE_ROWS: [DeviceRow; 13] = [
    ("requests", "chains of buffers given back", |f| f.requests),
    (
        "bytes_from_guest",
        "bytes in what the guest gave to read",
        |f| f.bytes_from_guest,
    ),
    ("bytes_to_guest", "bytes written for the guest", |f| {
        f.bytes_to_guest
    }),
    (
        "notifications",
        "wake-ups of the device by the driver",
        |f| f.notifications,
    ),
    (
        "by_vcpu",
        "notifications for which the vCPU did the work (KVM)",
        |f| f.by_vcpu,
    ),
    ("wakeups", "wake-ups of the device by the host", |f| {
        f.wakeups
    }),
    ("interrupts", "interrupts", |f| f.interrupts),
    ("resets", "times that a driver broke a rule", |f| f.resets),
    (
        "cpu_trials",
        "times that a vCPU which waits for the device tried another CPU",
        |f| f.cpu_trials,
    ),
    (
        "cpu_gains",
        "those of them after which it stayed there",
        |f| f.cpu_gains,
    ),
    ("buffers", "buffers of chains that were taken", |f| {
        f.buffers
    }),
    (
        "commands",
        "commands of a driver of the virtual bus, by stores or calls",
        |f| f.commands,
    ),
    (
        "commands_called",
        "those of them that were calls of the layer",
        |f| f.commands_called,
    ),
];

#[cfg(test)]
mod tests;
