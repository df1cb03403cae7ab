// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench overcommit`: a machine with more vCPUs than it gets processors for, beside
//! machines that burn processor time; with paravirtual spinlocks and without (`nopvspin`).
//!
//! The two machines take turns, and the gain is taken within each turn. The workload `ticket` is a
//! ticket lock of the conformance guest, with its slow path and without. At 1x no other machine is
//! busy. At 2x one, and at 3x two machines with as many vCPUs are busy, and all threads of all
//! machines have equal shares (`shares`). `--no-loss` measures the cost of the locks where they
//! gain nothing (`losses`), `--time` the clocks and accounted time in such machines.

mod idle;
mod losses;
mod machines;
mod plot;
mod processors;
mod report;
mod rows;
mod shares;
mod ticket;
mod time;
mod workloads;

use super::plot::check_file;
use super::{cpus, turns};
use crate::arguments::BenchOvercommit;
use anyhow::{Context, bail};
use machines::{Hog, Machine};
use paravane_hypervisor::KernelFile;
use paravane_kernel as kernel;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::progress::Progress;
use paravane_user_io::signals::Signals;
use report::{Clock, Report};
use rows::{Pair, Turn};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use workloads::Workload;

pub use super::apps::session::Terms;

/// The loads: how many times the measured machine's vCPUs want to run.
const CASES: [u32; 3] = [1, 2, 3];
/// vCPUs, and machines that idle.
const VCPUS: u32 = 8;
const FEW_VCPUS: u32 = 2;
const IDLE: u32 = 50;
/// Rounds, and machines that idle, with `--quick`.
const QUICK_ROUNDS: u32 = 2;
const QUICK_IDLE: u32 = 4;

/// What all machines share.
#[derive(Debug)]
pub struct Bench<'a> {
    pub args: &'a BenchOvercommit,
    /// Of the measured machine, and of each that is busy.
    pub vcpus: u32,
    pub kernel: PathBuf,
    /// The root of the measured machine: a folder.
    pub root: PathBuf,
    /// A folder with the programs that the root need not have.
    pub tools: tempfile::TempDir,
    pub terms: Terms<'a>,
}

/// Measures, and prints the tables.
pub fn run(args: &BenchOvercommit) -> anyhow::Result<Outcome> {
    let plan = Plan::new(args)?;
    // Before a kernel is built, which takes long.
    if let Some(file) = &args.plot {
        check_file(file)?;
    }
    let root = fs::canonicalize(&args.root);
    let root = root.with_context(|| format!("--root {}", args.root.display()))?;
    let kernel = match &args.kernel {
        Some(file) => file.clone(),
        None => kernel::locate_or_build()?.vmlinux,
    };
    let signals = Signals::install().context("cannot handle signals")?;
    let bench = Bench {
        args,
        vcpus: plan.vcpus,
        kernel,
        root,
        tools: machines::tools()?,
        terms: Terms {
            signals: &signals,
            timeout: Duration::from_secs(args.timeout),
        },
    };
    let mut report = Report {
        vcpus: plan.vcpus,
        processors: cpus::allowed().len(),
        no_loss: args.no_loss,
        method: losses::METHOD,
        quick: args.quick,
        ..Report::default()
    };
    let result = bench.measure(&plan, &mut report);
    if let Some(signal) = signals.pending() {
        // An error is a consequence of the signal.
        return turns::interrupted(signal, report.any().then_some(&report), args.json);
    }
    result?;
    if let Some(file) = &args.plot {
        fs::write(file, plot::draw(&report.rows)).with_context(|| file.display().to_string())?;
    }
    turns::show(&report, None, args.json)?;
    let outcome = turns::judge(&report.missed());
    Ok(if report.short.is_empty() {
        outcome
    } else {
        Outcome::Failed
    })
}

/// What is measured.
struct Plan {
    vcpus: u32,
    cases: Vec<u32>,
    workloads: Vec<&'static Workload>,
    /// Whether the ticket lock is measured, too.
    ticket: bool,
    idle: u32,
    earlier: losses::Earlier,
}

impl Plan {
    fn new(args: &BenchOvercommit) -> anyhow::Result<Self> {
        let (table, others): (&'static [Workload], &[&str]) = if args.no_loss {
            (&workloads::NO_LOSS, &[])
        } else {
            (&workloads::WORKLOADS, &[ticket::NAME])
        };
        let chosen =
            |name: &str| args.workload.is_empty() || args.workload.iter().any(|n| n == name);
        let all = args.case.is_empty() && args.workload.is_empty() && !args.no_loss;
        let idle = args.idle.unwrap_or(if all { IDLE } else { 0 });
        let few = if args.no_loss { FEW_VCPUS } else { VCPUS };
        let vcpus = args.vcpus.unwrap_or(few);
        let earlier = args.add.as_deref();
        Ok(Plan {
            vcpus,
            earlier: earlier
                .map(|file| losses::Earlier::read(file, vcpus, args.quick))
                .transpose()?
                .unwrap_or_default(),
            cases: if args.no_loss {
                vec![1]
            } else {
                cases(&args.case)?
            },
            workloads: if args.time {
                Vec::new()
            } else {
                workloads::select(table, others, &args.workload)?
            },
            ticket: !args.time && others.iter().any(|name| chosen(name)),
            idle: if args.quick {
                QUICK_IDLE.min(idle)
            } else {
                idle
            },
        })
    }
}

/// The loads with these names, in the table's order; all if there are no names.
fn cases(names: &[String]) -> anyhow::Result<Vec<u32>> {
    let name = |case: &u32| format!("{case}x");
    if let Some(unknown) = names
        .iter()
        .find(|n| CASES.iter().all(|case| name(case) != **n))
    {
        bail!("--case {unknown}: there are 1x, 2x and 3x");
    }
    let wanted = |case: &u32| names.is_empty() || names.contains(&name(case));
    Ok(CASES.into_iter().filter(wanted).collect())
}

impl Bench<'_> {
    /// Measures, and adds to the report what is complete, also before an error.
    fn measure(&self, plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
        let progress = Progress::new("starting");
        if self.args.time {
            for &case in &plan.cases {
                progress.step(&format!("clocks at {case}x"));
                report.clocks.push(time::measure(self, case)?);
            }
        } else if self.args.no_loss {
            losses::measure(self, &plan.workloads, &plan.earlier, &progress, report)?;
        } else {
            self.workloads(plan, &progress, report)?;
        }
        if plan.idle > 0 {
            progress.step(&format!("starting {} machines that idle", plan.idle));
            report.idle = Some(idle::measure(self, plan.idle, &progress)?);
        }
        Ok(())
    }

    /// All loads and workloads in each round: a time under a load is compared with that at 1x of
    /// the same round, since hosts are faster in one hour than in another.
    fn workloads(
        &self,
        plan: &Plan,
        progress: &Progress,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let guest = Arc::new(KernelFile::load(None)?);
        let mut machines = self.machines()?;
        let mut ready = Vec::new();
        for &workload in &plan.workloads {
            progress.step(&format!("preparing {}", workload.name));
            match workload.prepare(&mut machines, self.args.quick)? {
                None => ready.push(workload),
                Some(why) => report.skip(workload.name, why),
            }
        }
        let ticket = plan.ticket.then_some(ticket::NAME);
        let names = || ready.iter().map(|workload| workload.name).chain(ticket);
        let mut rows: Vec<(u32, &'static str, Pair)> = Vec::new();
        for &case in &plan.cases {
            rows.extend(names().map(|name| (case, name, Pair::default())));
        }
        let mut clocks = Vec::new();
        let result = (0..self.rounds()).try_for_each(|round| {
            clocks.clear();
            for &case in &plan.cases {
                progress.step(&format!("starting machines for {case}x"));
                let hogs = self.hogs(case, &machines)?;
                for (_, name, pair) in rows.iter_mut().filter(|row| row.0 == case) {
                    let rounds = self.rounds();
                    progress.step(&format!("{case}x, {name}: round {} of {rounds}", round + 1));
                    let found = ready.iter().find(|workload| workload.name == *name);
                    in_turns(round, pair, |locks| match found {
                        Some(workload) => {
                            self.turn(workload, &mut machines[usize::from(locks)], &hogs)
                        }
                        None => ticket::turn(self, &guest, locks, &hogs),
                    })?;
                }
                clocks.push(Clock {
                    case: format!("{case}x"),
                    offset_ns: machines[1].clock_offset()?,
                    accounted_percent: None,
                });
            }
            Ok(())
        });
        // The rounds before an error make rows, too.
        for (case, name, pair) in rows.iter().filter(|row| row.2.rounds() > 0) {
            report.add(*case, name, pair);
        }
        report.clocks.append(&mut clocks);
        result
    }

    /// A machine without paravirtual locks, and one with them.
    fn machines(&self) -> anyhow::Result<[Machine<'_>; 2]> {
        Ok([Machine::start(self, "nopvspin")?, Machine::start(self, "")?])
    }

    fn rounds(&self) -> u32 {
        if self.args.quick {
            QUICK_ROUNDS
        } else {
            self.args.rounds
        }
    }

    /// The machines that make a load, which have equal shares with those that are measured.
    fn hogs(&self, case: u32, measured: &[Machine<'_>]) -> anyhow::Result<Vec<Hog<'_>>> {
        let hogs: Vec<_> = (1..case)
            .map(|_| Hog::start(self))
            .collect::<anyhow::Result<_>>()?;
        let ids = measured.iter().map(Machine::id);
        shares::check(&ids.chain(hogs.iter().map(Hog::id)).collect::<Vec<_>>())?;
        Ok(hogs)
    }

    /// A workload once in a machine, and the processors that it and the load had during the run.
    fn turn(
        &self,
        workload: &Workload,
        machine: &mut Machine<'_>,
        hogs: &[Hog<'_>],
    ) -> anyhow::Result<Turn> {
        let mut ids = vec![machine.id()];
        ids.extend(hogs.iter().map(Hog::id));
        let (before, begun) = (processors::used(&ids)?, Instant::now());
        let seconds = workload.run(machine, self)?;
        let (after, passed) = (processors::used(&ids)?, begun.elapsed());
        let mut used = before
            .iter()
            .zip(&after)
            .map(|(before, after)| after - before);
        let mean = |ns: f64| ns / 1e9 / passed.as_secs_f64();
        Ok(Turn {
            seconds,
            machine: mean(used.next().unwrap_or_default()),
            load: mean(used.sum()),
        })
    }
}

/// A workload without paravirtual locks and with them: each is the first in every second round.
fn in_turns(
    round: u32,
    pair: &mut Pair,
    mut turn: impl FnMut(bool) -> anyhow::Result<Turn>,
) -> anyhow::Result<()> {
    if round.is_multiple_of(2) {
        let base = turn(false)?;
        pair.add(base, turn(true)?);
    } else {
        let with = turn(true)?;
        pair.add(turn(false)?, with);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_chosen_by_name() {
        let choose = |names: &[&str]| {
            cases(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(choose(&[]), Ok(vec![1, 2, 3]));
        assert_eq!(choose(&["3x", "1x"]), Ok(vec![1, 3]));
        assert_eq!(
            choose(&["4x"]),
            Err("--case 4x: there are 1x, 2x and 3x".to_string())
        );
    }
}
