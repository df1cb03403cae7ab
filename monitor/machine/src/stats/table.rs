// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table that `paravane stat` prints.

use super::{DEVICE_ROWS, Device, ROWS, Stats};
use paravane_hypervisor::process::VcpuFigures;
use paravane_user_io::text;
use std::fmt::Write;

/// Formats a machine's figures; with earlier ones, also rates per second.
pub fn table(name: &str, now: &Stats, before: Option<&Stats>) -> String {
    let mut out = String::new();
    let ms = before.map(|before| now.uptime_ms.saturating_sub(before.uptime_ms).max(1));
    // Writing to a string does not fail, here and below.
    let _ = writeln!(
        out,
        "{name}: up {}.{} s, {} MiB, {}, {} address-space processes",
        now.uptime_ms / 1000,
        now.uptime_ms % 1000 / 100,
        now.memory >> 20,
        text::count(now.vcpus.len(), "vCPU"),
        now.processes
    );
    let _ = writeln!(
        out,
        "hypervisor {}: {}\n",
        now.hypervisor, now.hypervisor_reason
    );
    let second = if before.is_some() { "a second" } else { "" };
    let _ = writeln!(
        out,
        "{:14}  {:>12}  {second:>10}",
        "all vCPUs", "since start"
    );
    let sum = |stats: &Stats, value: fn(&VcpuFigures) -> u64| {
        stats.vcpus.iter().map(value).fold(0u64, u64::wrapping_add)
    };
    for (name, exit, what, value) in ROWS {
        let total = sum(now, value);
        let rate = rate(total, before.map(|before| sum(before, value)), ms);
        let exit = if exit { "exit: " } else { "" };
        let _ = writeln!(out, "{name:14}  {total:>12}  {rate:>10}  {exit}{what}");
    }
    let stolen = |stats: &Stats| sum(stats, |v| v.stolen_ns) / 1_000_000;
    let rate_stolen = rate(stolen(now), before.map(stolen), ms);
    let _ = writeln!(
        out,
        "{:14}  {:>12}  {rate_stolen:>10}  ms that vCPUs wanted to run and did not",
        "stolen",
        stolen(now)
    );

    let _ = write!(out, "\n{:14}", "device");
    for (name, _, _) in DEVICE_ROWS {
        let _ = write!(out, "  {name:>16}");
    }
    for (number, device) in now.devices.iter().enumerate() {
        let _ = write!(out, "\n{:14}", device.name);
        for (_, _, value) in DEVICE_ROWS {
            let _ = write!(out, "  {:>16}", value(&device.figures));
        }
        for (name, value) in &device.attributes {
            let _ = write!(out, "\n{:14}  {name}={value}", "");
        }
        let earlier: Option<&Device> = before.and_then(|before| before.devices.get(number));
        if let Some(earlier) = earlier {
            let _ = write!(out, "\n{:14}", "  a second");
            for (_, _, value) in DEVICE_ROWS {
                let rate = rate(value(&device.figures), Some(value(&earlier.figures)), ms);
                let _ = write!(out, "  {rate:>16}");
            }
        }
    }
    out.push('\n');
    out
}

/// The increase per second; empty without an earlier value.
fn rate(now: u64, before: Option<u64>, ms: Option<u64>) -> String {
    match (before, ms) {
        (Some(before), Some(ms)) => {
            (u128::from(now.wrapping_sub(before)) * 1000 / u128::from(ms)).to_string()
        }
        _ => String::new(),
    }
}
