// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of a machine in OpenMetrics text, which Prometheus scrapes.

use super::{DEVICE_ROWS, ROWS, Stats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// The media type of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All figures, for one scrape.
///
/// # Errors
/// None in practice: the text is written to memory.
pub fn text(stats: Stats) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("paravane");
    registry.register_collector(Box::new(Figures(stats)));
    let mut out = String::new();
    encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Figures(Stats);

impl Collector for Figures {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let Figures(stats) = self;
        let uptime = seconds(stats.uptime_ms, 1e3);
        gauge(
            &mut out,
            "uptime_seconds",
            "time since the machine started",
            &uptime,
        )?;
        gauge(
            &mut out,
            "memory_bytes",
            "memory of the guest",
            &stats.memory,
        )?;
        let processes = u64::try_from(stats.processes).unwrap_or(u64::MAX);
        gauge(&mut out, "processes", "address-space processes", &processes)?;

        let vcpus = || stats.vcpus.iter().enumerate();
        let exits = ROWS
            .iter()
            .filter(|row| row.1)
            .flat_map(|(name, _, _, value)| {
                vcpus().map(move |(vcpu, figures)| {
                    let labels = [("vcpu", vcpu.to_string()), ("kind", (*name).to_string())];
                    (labels, value(figures))
                })
            });
        counter(
            &mut out,
            "vcpu_exits",
            "exits from guest code, by kind",
            exits,
        )?;
        for (name, _, help, value) in ROWS.iter().filter(|row| !row.1) {
            let samples =
                vcpus().map(|(vcpu, figures)| ([("vcpu", vcpu.to_string())], value(figures)));
            counter(&mut out, &format!("vcpu_{name}"), help, samples)?;
        }
        let stolen = vcpus().map(|(vcpu, figures)| {
            let labels = [("vcpu", vcpu.to_string())];
            (labels, seconds(figures.stolen_ns, 1e9))
        });
        let help = "time that a vCPU was ready to run and did not run";
        counter(&mut out, "vcpu_stolen_seconds", help, stolen)?;

        for (name, help, value) in DEVICE_ROWS {
            let samples = stats.devices.iter().enumerate().map(|(number, device)| {
                let labels = [
                    ("device", device.name.clone()),
                    ("number", number.to_string()),
                ];
                (labels, value(&device.figures))
            });
            counter(&mut out, &format!("device_{name}"), help, samples)?;
        }
        Ok(())
    }
}

#[allow(clippy::cast_precision_loss)] // Prometheus keeps every value as f64.
fn seconds(count: u64, per_second: f64) -> f64 {
    count as f64 / per_second
}

fn gauge(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: &impl EncodeGaugeValue,
) -> fmt::Result {
    out.encode_descriptor(name, help, None, MetricType::Gauge)?
        .encode_gauge(value)
}

/// A family of counters. The library appends `_total` to the name of each sample.
fn counter<L: EncodeLabelSet, V: EncodeCounterValue>(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl Iterator<Item = (L, V)>,
) -> fmt::Result {
    let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in samples {
        family
            .encode_family(&labels)?
            .encode_counter::<NoLabelSet, V, u64>(&value, None)?;
    }
    Ok(())
}
