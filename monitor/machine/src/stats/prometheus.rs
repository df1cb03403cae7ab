// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prometheus's text format, version 0.0.4.

use super::{DEVICE_ROWS, ROWS, Stats};
use std::fmt::Write;

/// Everything, as a scrape wants it.
pub fn text(stats: &Stats) -> String {
    let mut out = String::new();
    let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    gauge(&mut out, "uptime_seconds", "since the machine's start", {
        format!("{}.{:03}", stats.uptime_ms / 1000, stats.uptime_ms % 1000)
    });
    gauge(
        &mut out,
        "memory_bytes",
        "the guest's memory",
        stats.memory.to_string(),
    );
    gauge(
        &mut out,
        "processes",
        "address-space processes",
        stats.processes.to_string(),
    );

    head(
        &mut out,
        "vcpu_exits_total",
        "counter",
        "times that guest code was left, by kind",
    );
    for (name, _, _, value) in ROWS.iter().filter(|row| row.1) {
        for (vcpu, figures) in stats.vcpus.iter().enumerate() {
            let value = value(figures);
            line(
                &mut out,
                "vcpu_exits_total",
                &format!("vcpu=\"{vcpu}\",kind=\"{name}\""),
                &value.to_string(),
            );
        }
    }
    for (name, _, what, value) in ROWS.iter().filter(|row| !row.1) {
        let name = format!("vcpu_{name}_total");
        head(&mut out, &name, "counter", what);
        for (vcpu, figures) in stats.vcpus.iter().enumerate() {
            line(
                &mut out,
                &name,
                &format!("vcpu=\"{vcpu}\""),
                &value(figures).to_string(),
            );
        }
    }
    let name = "vcpu_stolen_seconds_total";
    head(
        &mut out,
        name,
        "counter",
        "time that a vCPU wanted to run and did not",
    );
    for (vcpu, figures) in stats.vcpus.iter().enumerate() {
        line(
            &mut out,
            name,
            &format!("vcpu=\"{vcpu}\""),
            &seconds(figures.stolen_ns),
        );
    }

    for (name, what, value) in DEVICE_ROWS {
        let name = format!("device_{name}_total");
        head(&mut out, &name, "counter", what);
        for (number, device) in stats.devices.iter().enumerate() {
            // Names of devices are words of this program's.
            let labels = format!("device=\"{}\",number=\"{number}\"", device.name);
            line(
                &mut out,
                &name,
                &labels,
                &value(&device.figures).to_string(),
            );
        }
    }
    out
}

fn gauge(out: &mut String, name: &str, what: &str, value: String) {
    head(out, name, "gauge", what);
    // Writing to a string does not fail, here and below.
    let _ = writeln!(out, "paravane_{name} {value}");
}

fn head(out: &mut String, name: &str, kind: &str, what: &str) {
    let _ = writeln!(
        out,
        "# HELP paravane_{name} {what}\n# TYPE paravane_{name} {kind}"
    );
}

fn line(out: &mut String, name: &str, labels: &str, value: &str) {
    let _ = writeln!(out, "paravane_{name}{{{labels}}} {value}");
}
