// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine has done: for people ([`table`]), for programs (JSON), for Prometheus
//! ([`prometheus`]).

mod prometheus;
pub mod serve;
mod table;

pub use serve::Metrics;
pub use table::table;

use anyhow::Context;
use paravane_devices::counters::Figures;
use paravane_hypervisor::process::{Observer, VcpuFigures};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Figures of a machine at one moment, counted since its start. Those of the vCPUs are in memory
/// that the guest can write, so a hostile guest can make them say anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Milliseconds since the machine was created.
    pub uptime_ms: u64,
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
    /// What it has counted.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Stats {
    /// A machine's, now.
    pub fn of(machine: &Observer) -> Self {
        let devices = machine.devices().into_iter();
        Stats {
            uptime_ms: u64::try_from(machine.uptime().as_millis()).unwrap_or(u64::MAX),
            memory: machine.memory(),
            processes: machine.processes(),
            vcpus: machine.vcpus(),
            devices: devices
                .map(|(name, figures)| Device { name, figures })
                .collect(),
        }
    }

    /// As a file that can be given to another program: its content is JSON.
    pub fn to_file(&self) -> anyhow::Result<OwnedFd> {
        let (theirs, mut ours) = UnixStream::pair().context("cannot make a pair of sockets")?;
        // Whoever does not read must not keep us: what a socket holds is far more than this.
        ours.set_nonblocking(true)?;
        ours.write_all(&serde_json::to_vec(self)?)?;
        Ok(theirs.into())
    }
}

/// What vCPUs count: the name, whether it is a kind of exit, what it is, its value.
type Row = (&'static str, bool, &'static str, fn(&VcpuFigures) -> u64);

const ROWS: [Row; 11] = [
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
    ("fills", false, "pages mapped", |v| v.fills),
    ("flushes", false, "flushes of mappings", |v| v.flushes),
    (
        "switches",
        false,
        "hand-overs to another address-space process",
        |v| v.switches,
    ),
    ("resyncs", false, "loads of a space that had changed", |v| {
        v.resyncs
    }),
    ("kicks", false, "signals to other vCPUs", |v| v.kicks_sent),
    (
        "host_calls",
        false,
        "system calls of the layer's to the host",
        |v| v.host_calls,
    ),
];

/// What devices count: the name, what it is, its value.
type DeviceRow = (&'static str, &'static str, fn(&Figures) -> u64);

const DEVICE_ROWS: [DeviceRow; 7] = [
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
        "times that the driver's notifications had the device look",
        |f| f.notifications,
    ),
    (
        "wakeups",
        "times that something on the host had it look",
        |f| f.wakeups,
    ),
    ("interrupts", "interrupts", |f| f.interrupts),
    ("resets", "times that a driver broke a rule", |f| f.resets),
];

#[cfg(test)]
mod tests;
