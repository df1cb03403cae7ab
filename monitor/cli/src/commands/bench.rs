// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench native`: counts what VMI sites cost on bare metal, in instructions.
//!
//! The guest runs under QEMU with one nanosecond of guest time for each instruction, so its clock
//! counts instructions. The counts are exact, and the same on every host.

pub mod apps;
mod bars;
pub mod block;
mod cpu_time;
#[expect(unsafe_code, reason = "host calls")]
mod cpus;
pub mod exits;
mod guest;
pub mod kernel;
pub mod markdown;
pub mod micro;
pub mod net;
pub mod overcommit;
mod plot;
mod program;
#[cfg(test)]
#[expect(unsafe_code, reason = "a filter of system calls")]
mod refuse;
mod stats;
mod table;
mod turns;
pub mod vbus;
pub mod vmi;

use super::conformance::MEMORY_MIB;
use crate::arguments::BenchNative;
use crate::layer_file::LayerFile;
use anyhow::{Context, bail};
use markdown::Page;
use paravane_hypervisor::KernelFile;
use paravane_hypervisor::Layer;
use paravane_hypervisor::qemu::Qemu;
use paravane_hypervisor::{Event, Hypervisor, Machine, Verdict};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::progress::Progress;
use paravane_user_io::signals::Signals;
use paravane_user_io::worker::Limit;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use table::{Row, Table};

const LAYERS: [Layer; 3] = [Layer::None, Layer::Native, Layer::NativeStats];
/// The name of the table's markers in the page.
const MARKER: &str = "native";

/// Runs the guest once for each layer, and prints or writes the table.
pub fn native(args: &BenchNative) -> anyhow::Result<Outcome> {
    let guest = Arc::new(KernelFile::load(args.guest.as_deref())?);
    // Check the page before minutes of work.
    let page = Page::chosen(&args.output, MARKER)?;
    let hypervisor = Qemu::find()?;
    let signals = Signals::install().context("cannot handle signals")?;
    let mut table = Table::default();
    for layer in LAYERS {
        let progress = Progress::new(&format!("counting with layer {}", layer.name()));
        let timeout = Duration::from_secs(args.timeout);
        let rows = measure(&hypervisor, &guest, layer, timeout, &signals);
        drop(progress);
        match rows? {
            Measured::Rows(rows) => table.add(layer.name(), rows)?,
            Measured::Interrupted(signal) => return Ok(Outcome::Interrupted(signal)),
        }
    }
    match page {
        Some(page) => page.replace(&table.markdown())?,
        None if args.output.json => writeln!(io::stdout(), "{}", table.json()?)?,
        None => write!(io::stdout(), "{}", table.markdown())?,
    }
    Ok(Outcome::Passed)
}

enum Measured {
    Rows(Vec<Row>),
    Interrupted(u8),
}

fn measure(
    hypervisor: &dyn Hypervisor,
    guest: &Arc<KernelFile>,
    layer: Layer,
    timeout: Duration,
    signals: &Signals,
) -> anyhow::Result<Measured> {
    let file = LayerFile::built_in(layer);
    let machine = Machine {
        guest,
        layer: file.rom.as_deref(),
        command_line: format!("layer={} bench", file.expect),
        cpus: 1,
        memory_mib: MEMORY_MIB,
        count_instructions: true,
        devices: || Ok(Vec::new()),
    };
    let name = layer.name();
    let deadline = Instant::now() + timeout;
    let limit = Limit {
        signals: Some(signals),
        deadline,
    };
    let mut running = hypervisor.start(&machine, &limit)?;
    let mut rows = Vec::new();
    let mut last = String::new();
    loop {
        match running.next(deadline, signals) {
            Event::Line(line) => {
                if let Some(row) = line.trim().strip_prefix("bench ") {
                    let row = Row::parse(row)
                        .with_context(|| format!("layer {name}: the guest printed `{line}`"))?;
                    rows.push(row);
                }
                if !line.trim().is_empty() {
                    last = line;
                }
            }
            Event::Ended(Verdict::Passed) if rows.is_empty() => {
                bail!("layer {name}: the guest printed no figures")
            }
            Event::Ended(Verdict::Passed) => return Ok(Measured::Rows(rows)),
            Event::Ended(Verdict::Failed) => {
                bail!("layer {name}: the guest says that it failed; it ended with `{last}`")
            }
            Event::Ended(Verdict::Crashed(why)) => {
                bail!("layer {name}: {why}; the guest ended with `{last}`")
            }
            Event::TimedOut => bail!(
                "layer {name}: no end after {} s; the guest's last line is `{last}`",
                timeout.as_secs()
            ),
            Event::Interrupted(signal) => return Ok(Measured::Interrupted(signal)),
        }
    }
}
