// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench vmi`: measures the process hypervisor's mechanisms, each beside what the host
//! does for a process.
//!
//! Each measurement of the guest is a virtual machine of its own, each of the host a process of its
//! own. They take turns on the same CPU many times, and the ratio is taken within each turn. A host
//! that is slower for a minute is slower for both.

#[expect(unsafe_code, reason = "the same work by host calls")]
mod host;
#[expect(unsafe_code, reason = "host calls by hand")]
mod raw;
mod report;
mod rows;

use super::super::conformance::MEMORY_MIB;
use super::markdown::Page;
use super::{cpus, guest, stats, turns};
use crate::arguments::{BenchVmi, BenchVmiHost};
use crate::layer_file::LayerFile;
use anyhow::{Context, bail};
use cpus::Usage;
use paravane_hypervisor::KernelFile;
use paravane_hypervisor::Layer;
use paravane_hypervisor::{Counters, Machine};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use report::{Needs, Report, Turns};
use rows::{Cost, ROWS, Row};
use std::io::{self, Write};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The name of the table's markers in the page.
const MARKER: &str = "vmi";

/// Measures the host's side of one row, and prints the figure.
pub fn host(args: &BenchVmiHost) -> anyhow::Result<Outcome> {
    let nanoseconds = host::measure(&args.what, args.ops, args.batches)?;
    writeln!(io::stdout(), "{nanoseconds:.3}")?;
    Ok(Outcome::Passed)
}

/// Measures, and prints or writes the table.
pub fn run(args: &BenchVmi) -> anyhow::Result<Outcome> {
    let rows = turns::select(&ROWS, &args.row)?;
    let guest = Arc::new(KernelFile::load(args.guest.as_deref())?);
    let page = Page::chosen(&args.output, MARKER)?;
    let signals = Signals::install().context("cannot handle signals")?;
    let bench = Bench {
        guest: &guest,
        signals: &signals,
        timeout: Duration::from_secs(args.timeout),
        cpus: cpus::allowed(),
    };
    let mut turns: Vec<Turns> = rows.into_iter().map(Turns::new).collect();
    if let Some(signal) = turns::alternate("", &mut turns, args.rounds, &signals, |turn, round| {
        bench.turn(turn, round)
    })? {
        return Ok(Outcome::Interrupted(signal));
    }
    let report = Report::new(&turns);
    turns::show(&report, page, args.output.json)?;
    Ok(turns::judge(&report.missed()))
}

/// One run of the guest.
struct GuestRun {
    /// ns per operation by the guest's clock; `None` if the guest cannot measure the row on this
    /// host.
    ns: Option<f64>,
    ops: f64,
    counters: Counters,
    /// Usage of all processes that took part.
    used: Usage,
}

struct Bench<'a> {
    guest: &'a Arc<KernelFile>,
    signals: &'a Signals,
    timeout: Duration,
    cpus: Vec<usize>,
}

impl Bench<'_> {
    /// Measures guest and host once each, in alternating order.
    fn turn(&self, turns: &mut Turns, round: u32) -> anyhow::Result<()> {
        let row = turns.row;
        // CPU time is the difference to a run that does everything except the operations.
        let mut empty = None;
        if row.cost == Cost::Cpu || turns.needs.is_none() {
            empty = Some(self.guest(row, " prepare")?);
        }
        let mut host = if round.is_multiple_of(2) {
            Some(self.host(row)?)
        } else {
            None
        };
        let full = self.guest(row, "")?;
        let host = match host.take() {
            Some(host) => host,
            None => self.host(row)?,
        };
        let Some(mut ns) = full.ns else {
            return Ok(());
        };
        if let Some(empty) = empty {
            if row.cost == Cost::Cpu {
                ns = (full.used.cpu_ns - empty.used.cpu_ns) / full.ops;
            }
            turns.needs.get_or_insert_with(|| needs(row, &full, &empty));
        }
        turns.pairs.add(ns, host);
        Ok(())
    }

    fn guest(&self, row: &Row, word: &str) -> anyhow::Result<GuestRun> {
        let file = LayerFile::built_in(Layer::Process);
        let machine = Machine {
            guest: self.guest,
            layer: None,
            command_line: format!(
                "layer={} bench=vmi row={} batches={}{word}",
                file.expect, row.name, row.batches
            ),
            cpus: row.vcpus,
            memory_mib: MEMORY_MIB,
            count_instructions: false,
            devices: || Ok(Vec::new()),
        };
        self.pinned(row, || {
            let before = cpus::all_usage();
            let (line, counters) = self.run_guest(&machine)?;
            let after = cpus::all_usage();
            let (ns, ops) = line.map_or((None, 0.0), |(ns, ops)| (Some(ns), ops));
            Ok(GuestRun {
                ns,
                ops,
                counters,
                used: Usage {
                    cpu_ns: after.cpu_ns - before.cpu_ns,
                    switches: after.switches - before.switches,
                },
            })
        })
    }

    /// The figures that the guest printed, if it could measure, and the layer's counters.
    fn run_guest(&self, machine: &Machine<'_>) -> anyhow::Result<(Option<(f64, f64)>, Counters)> {
        let mut figures = None;
        let counters = guest::run(machine, self.timeout, self.signals, |line| {
            if let Some(text) = line.strip_prefix("vmi ") {
                let read = read_line(text);
                figures = Some(read.with_context(|| format!("the guest printed `{line}`"))?);
            }
            Ok(())
        })?;
        Ok((figures, counters))
    }

    fn host(&self, row: &Row) -> anyhow::Result<f64> {
        let program = std::env::current_exe().context("cannot find this program's file")?;
        let mut command = Command::new(program);
        command.args(["bench", "vmi-host", row.host.what]);
        command.args([row.host.ops.to_string(), row.host.batches.to_string()]);
        let output = self.pinned(row, || {
            command.output().context("cannot start the host's side")
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        match text.trim().parse() {
            Ok(ns) if output.status.success() => Ok(ns),
            _ => bail!(
                "the host's side failed: {}",
                paravane_user_io::text::one_line(&String::from_utf8_lossy(&output.stderr))
            ),
        }
    }

    /// Runs `act` on as many CPUs as the row takes, always the same ones.
    fn pinned<T>(&self, row: &Row, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let count = if row.vcpus > 1 { 2 } else { 1 };
        cpus::pin(self.cpus.get(..count).unwrap_or(&self.cpus));
        let result = act();
        cpus::pin(&self.cpus);
        result
    }
}

/// What an operation needs of the host.
#[allow(clippy::cast_precision_loss)] // counts
fn needs(row: &Row, full: &GuestRun, empty: &GuestRun) -> Needs {
    let per_op = |difference: f64| difference.max(0.0) / full.ops.max(1.0);
    let counted = full.counters.host_calls > 0;
    let difference =
        |get: fn(&Counters) -> u64| get(&full.counters).saturating_sub(get(&empty.counters)) as f64;
    Needs {
        host_calls: if counted {
            per_op(difference(|c| c.host_calls))
        } else {
            row.host_calls
        },
        counted,
        signals: per_op(difference(|c| c.signals)),
        switches: per_op(full.used.switches - empty.used.switches),
    }
}

/// Parses `NAME NS OPS`.
fn read_line(text: &str) -> anyhow::Result<(f64, f64)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if let [_, ns, ops] = words[..] {
        if let (Ok(ns), Ok(ops)) = (ns.parse::<f64>(), ops.parse::<f64>()) {
            if ns.is_finite() && ops.is_finite() && ns >= 0.0 && ops >= 0.0 {
                return Ok((ns, ops));
            }
        }
    }
    bail!("a name and two numbers were expected")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_strictly() {
        assert!(read_line("flush 12.50 400").is_ok_and(|(ns, ops)| ns > 12.0 && ops > 399.0));
        for bad in [
            "",
            "flush",
            "flush 1",
            "flush 1 2 3",
            "flush x 2",
            "flush -1 2",
            "flush inf 2",
            "flush NaN 2",
        ] {
            assert!(read_line(bad).is_err(), "{bad}");
        }
    }
}
