// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench overcommit`: a machine with more vCPUs than it gets processors for, beside
//! machines that burn processor time; with paravirtual spinlocks and without (`nopvspin`).
//!
//! The two machines take turns, and the gain is taken within each turn. At 1x no other machine is
//! busy; at 2x and 3x one and two machines with as many vCPUs are.

mod idle;
mod machines;
mod plot;
mod report;
mod workloads;

use super::cpus;
use crate::arguments::BenchOvercommit;
use anyhow::Context;
use machines::{Hog, Machine};
use paravane_kernel as kernel;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::progress::Progress;
use paravane_user_io::signals::Signals;
use report::{Clock, Pair, Report, Row};
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;
use workloads::Workload;

pub use super::apps::session::Terms;

/// The loads: how many times the measured machine's vCPUs want to run.
const CASES: [u32; 3] = [1, 2, 3];
/// Rounds, and machines that idle, with `--quick`.
const QUICK_ROUNDS: u32 = 2;
const QUICK_IDLE: u32 = 4;

/// What all machines share.
#[derive(Debug)]
pub struct Bench<'a> {
    pub args: &'a BenchOvercommit,
    pub kernel: PathBuf,
    /// The root of the measured machine: a folder.
    pub root: PathBuf,
    /// A folder with the programs that the root need not have.
    pub tools: tempfile::TempDir,
    pub terms: Terms<'a>,
}

/// Measures, and prints the tables.
pub fn run(args: &BenchOvercommit) -> anyhow::Result<Outcome> {
    let chosen = workloads::select(&args.workload)?;
    let kernel = match &args.kernel {
        Some(file) => file.clone(),
        None => kernel::locate_or_build()?.vmlinux,
    };
    if let Some(file) = &args.plot {
        // Before hours of work.
        fs::write(file, "").with_context(|| format!("--plot {}", file.display()))?;
    }
    let signals = Signals::install().context("cannot handle signals")?;
    let bench = Bench {
        args,
        kernel,
        root: fs::canonicalize(&args.root)
            .with_context(|| format!("--root {}", args.root.display()))?,
        tools: machines::tools()?,
        terms: Terms {
            signals: &signals,
            timeout: Duration::from_secs(args.timeout),
        },
    };
    let result = bench.measure(&chosen);
    if let Some(signal) = signals.pending() {
        return Ok(Outcome::Interrupted(signal));
    }
    let report = result?;
    if let Some(file) = &args.plot {
        fs::write(file, plot::draw(&report.rows)).with_context(|| file.display().to_string())?;
    }
    let text = if args.json {
        format!("{}\n", serde_json::to_string_pretty(&report)?)
    } else {
        report.markdown()
    };
    write!(io::stdout(), "{text}").context(crate::commands::OUTPUT)?;
    Ok(Outcome::Passed)
}

impl Bench<'_> {
    fn measure(&self, chosen: &[&'static Workload]) -> anyhow::Result<Report> {
        let rounds = if self.args.quick {
            QUICK_ROUNDS
        } else {
            self.args.rounds
        };
        let mut report = Report {
            vcpus: self.args.vcpus,
            processors: cpus::allowed().len(),
            ..Report::default()
        };
        let progress = Progress::new("starting two machines");
        let mut machines = [Machine::start(self, "nopvspin")?, Machine::start(self, "")?];
        let mut ready = Vec::new();
        for &workload in chosen {
            progress.step(&format!("preparing {}", workload.name));
            match workload.prepare(&mut machines, self.args.quick)? {
                None => ready.push(workload),
                Some(why) => report.skip(workload.name, why),
            }
        }
        for case in CASES {
            progress.step(&format!("starting machines for {case}x"));
            let hogs = (1..case)
                .map(|_| Hog::start(self))
                .collect::<anyhow::Result<Vec<_>>>()?;
            for workload in &ready {
                let mut pair = Pair::default();
                for round in 0..rounds {
                    progress.step(&format!(
                        "{case}x, {}: round {} of {rounds}",
                        workload.name,
                        round + 1
                    ));
                    let [plain, locks] = &mut machines;
                    if round.is_multiple_of(2) {
                        let base = workload.run(plain, self.args)?;
                        pair.add(base, workload.run(locks, self.args)?);
                    } else {
                        let with = workload.run(locks, self.args)?;
                        pair.add(workload.run(plain, self.args)?, with);
                    }
                }
                report.rows.push(Row::new(case, workload.name, &pair));
            }
            report.clocks.push(Clock {
                case: format!("{case}x"),
                offset_ns: machines[1].clock_offset()?,
            });
            drop(hogs);
        }
        drop(machines);
        let count = if self.args.quick {
            QUICK_IDLE.min(self.args.idle)
        } else {
            self.args.idle
        };
        if count > 0 {
            progress.step(&format!("starting {count} machines that idle"));
            report.idle = Some(idle::measure(self, count, &progress)?);
        }
        Ok(report)
    }
}
