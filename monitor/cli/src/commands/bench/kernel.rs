// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench kernel`: counts what the port costs Linux on bare metal, in instructions.
//!
//! The same program (`bench/micro/`) is the first process of Linux without the port, and of
//! VMI-Linux without a ROM and with the native one. QEMU runs them with one nanosecond of guest
//! time for each instruction, so the time-stamp counter counts instructions. There is one vCPU, so
//! only the kernel differs.

use super::markdown::Page;
use super::micro::rows::{Needs, ROWS};
use super::micro::{figure, initramfs, read_static};
use super::stats;
use crate::arguments::BenchKernel;
use anyhow::{Context, bail};
use paravane_hypervisor::Layer;
use paravane_hypervisor::qemu::{Linux, Qemu};
use paravane_hypervisor::{Event, Verdict};
use paravane_kernel as kernel;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::progress::Progress;
use paravane_user_io::signals::Signals;
use paravane_user_io::{files, text};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The name of the table's markers in the page.
const MARKER: &str = "kernel";
const MEMORY_MIB: u32 = 256;
/// The largest ratio of a row. The mean has a bar of its own.
const ROW_BAR: f64 = 1.03;
const MEAN_BAR: f64 = 1.01;
/// The program's name for the row `boot`, which it does not measure itself.
const BOOT: &str = "boot";

/// Rows that are only counted. Together with the rows of `bench micro` they cover all
/// micro-operations of table 2 in "VMI: An Interface for Paravirtualization" (OLS 2006).
const COUNTED: [(&str, &str); 6] = [
    ("open_close", "open and close of /dev/null"),
    ("select_tcp", "select of 100 TCP connections"),
    ("signal_install", "sigaction"),
    ("divide_by_zero", "division by zero, handler, return"),
    ("file_fault", "first read of a page of a file, 128 in a row"),
    ("ring_switch", "a byte to the next of 16 processes"),
];

/// A row of the result, in instructions per operation.
#[derive(Debug, Serialize)]
struct Line {
    name: &'static str,
    unpatched: f64,
    vmi: f64,
    ratio: f64,
    /// With the native ROM.
    native: f64,
    native_ratio: f64,
    what: &'static str,
}

/// The result.
#[derive(Debug, Serialize)]
struct Report {
    unit: &'static str,
    rows: Vec<Line>,
    /// The geometric mean.
    mean: f64,
    native_mean: f64,
    row_bar: f64,
    mean_bar: f64,
}

/// Counts, and prints or writes the table. A row above its bar is a failure.
pub fn run(args: &BenchKernel) -> anyhow::Result<Outcome> {
    let page = Page::chosen(&args.output, MARKER)?;
    let qemu = Qemu::find()?;
    let shell = read_static(&args.shell)?;
    let initrd = initramfs(Some(&shell))?;
    let packed = |folder: &std::path::Path| files::read(&folder.join("bzImage"), "kernel");
    let vmi = match &args.kernel {
        Some(folder) => packed(folder)?,
        None => files::read(&kernel::locate_or_build()?.bzimage, "kernel")?,
    };
    let unpatched = match &args.unpatched {
        Some(folder) => packed(folder)?,
        None => files::read(&kernel::unpatched()?, "kernel")?,
    };
    let signals = Signals::install().context("cannot handle signals")?;
    let mut columns = Vec::new();
    for (name, bzimage, layer) in [
        ("Linux without the port", &unpatched, Layer::None),
        ("VMI-Linux", &vmi, Layer::None),
        ("VMI-Linux with the ROM native", &vmi, Layer::Native),
    ] {
        let progress = Progress::new(&format!("counting {name}"));
        let linux = Linux {
            bzimage,
            initrd: &initrd,
            layer: layer.rom(),
            command_line: &command_line(),
            cpus: 1,
            memory_mib: MEMORY_MIB,
            count_instructions: true,
        };
        let figures = measure(&qemu, &linux, Duration::from_secs(args.timeout), &signals);
        drop(progress);
        if let Some(signal) = signals.pending() {
            return Ok(Outcome::Interrupted(signal));
        }
        columns.push(figures.with_context(|| name.to_string())?);
    }
    let report = Report::new(&columns);
    match page {
        Some(page) => page.replace(&report.markdown())?,
        None if args.output.json => {
            writeln!(io::stdout(), "{}", serde_json::to_string_pretty(&report)?)?
        }
        None => write!(io::stdout(), "{}", report.markdown())?,
    }
    let beyond = report.beyond();
    for line in &beyond {
        eprintln!("paravane: {line}");
    }
    Ok(if beyond.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

/// All rows, except the compiler's and the vDSO's: their instructions are almost all, or all, those
/// of programs.
fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    [(BOOT, "from the machine's start to the first program")]
        .into_iter()
        .chain(
            ROWS.iter()
                .filter(|row| !matches!(row.needs, Needs::Compiler | Needs::Vdso))
                .map(|row| (row.name, row.text)),
        )
        .chain(COUNTED)
}

/// The command line fixes the address layout, because it decides how many page tables exist.
fn command_line() -> String {
    let rows: Vec<&str> = names().map(|(name, _)| name).collect();
    format!(
        "console=ttyS0 quiet panic=-1 nokaslr norandmaps micro_tsc=1 micro={}",
        rows.join(",")
    )
}

/// The figures of all rows, in order.
fn measure(
    qemu: &Qemu,
    linux: &Linux<'_>,
    timeout: Duration,
    signals: &Signals,
) -> anyhow::Result<Vec<f64>> {
    let mut running = qemu.start_linux(linux)?;
    let deadline = Instant::now() + timeout;
    let mut said = String::new();
    loop {
        match running.next(deadline, signals) {
            Event::Line(line) => {
                said.push_str(&line);
                said.push('\n');
            }
            Event::Ended(Verdict::Crashed(_) | Verdict::Passed | Verdict::Failed) => break,
            Event::TimedOut => bail!("no end after {} s", timeout.as_secs()),
            Event::Interrupted(_) => bail!("interrupted"),
        }
    }
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    names()
        .map(|(name, _)| figure(&said, name))
        .collect::<anyhow::Result<_>>()
        .with_context(|| {
            format!(
                "the guest's last line is `{}`",
                text::one_line(last.unwrap_or_default())
            )
        })
}

impl Report {
    /// Builds the result from its three columns.
    fn new(columns: &[Vec<f64>]) -> Self {
        let value = |column: usize, row: usize| {
            columns
                .get(column)
                .and_then(|c| c.get(row))
                .copied()
                .unwrap_or(f64::NAN)
        };
        let rows: Vec<Line> = names()
            .enumerate()
            .map(|(row, (name, what))| Line {
                name,
                unpatched: value(0, row),
                vmi: value(1, row),
                ratio: value(1, row) / value(0, row),
                native: value(2, row),
                native_ratio: value(2, row) / value(0, row),
                what,
            })
            .collect();
        Report {
            unit: "instructions per operation",
            mean: stats::geometric_mean(rows.iter().map(|line| line.ratio)),
            native_mean: stats::geometric_mean(rows.iter().map(|line| line.native_ratio)),
            rows,
            row_bar: ROW_BAR,
            mean_bar: MEAN_BAR,
        }
    }

    /// Describes the figures that are above their bar.
    fn beyond(&self) -> Vec<String> {
        // NaN counts as above the bar.
        let mut beyond: Vec<String> = self
            .rows
            .iter()
            .filter(|line| line.ratio.is_nan() || line.ratio > self.row_bar)
            .map(|line| {
                format!(
                    "{}: {:.3}, the bar is {}",
                    line.name, line.ratio, self.row_bar
                )
            })
            .collect();
        if self.mean.is_nan() || self.mean > self.mean_bar {
            beyond.push(format!(
                "mean: {:.3}, the bar is {}",
                self.mean, self.mean_bar
            ));
        }
        beyond
    }

    fn markdown(&self) -> String {
        let mut out = String::from(
            "| row | unpatched | VMI-Linux | ratio | with the ROM native | ratio | an operation |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | --- |\n",
        );
        for line in &self.rows {
            let _ = writeln!(
                out,
                "| {} | {:.0} | {:.0} | {:.3} | {:.0} | {:.3} | {} |",
                line.name,
                line.unpatched,
                line.vmi,
                line.ratio,
                line.native,
                line.native_ratio,
                line.what
            );
        }
        let _ = writeln!(
            out,
            "| mean | | | {:.3} | | {:.3} | |",
            self.mean, self.native_mean
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_beyond_its_bar_is_named() {
        let count = names().count();
        let mut vmi = vec![100.0; count];
        let report =
            |vmi: &[f64]| Report::new(&[vec![100.0; count], vmi.to_vec(), vec![100.0; count]]);
        assert!(report(&vmi).beyond().is_empty());
        vmi[1] = 103.1;
        let beyond = report(&vmi).beyond();
        assert_eq!(beyond.len(), 1, "{beyond:?}");
        assert!(beyond[0].starts_with("getppid: 1.031"), "{beyond:?}");
        assert_eq!(report(&vec![102.0; count]).beyond().len(), 1);
        assert_eq!(report(&[]).beyond().len(), count + 1);
    }
}
