// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of paravirtual spinlocks where they gain nothing: on processors without other load.
//!
//! Two machines differ by chance, and by more than the locks cost. So one machine turns its locks
//! on and off (`vmi.pv_locks`), which takes the other slow path. Where the scheduler puts the
//! threads of a run is chance, too, so a machine has many short turns. Their total time is one
//! value: turns of one machine may have something in common. Each round has a new machine.

use super::machines::Machine;
use super::report::Report;
use super::rows::{Pair, Turn};
use super::workloads::Workload;
use super::{Bench, Progress};
use anyhow::{Context, bail};
use serde::Deserialize;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// How long a machine runs one workload, at least, in seconds.
const WORK: f64 = 15.0;

/// The way of measuring, which a report carries. The rounds of two ways are not of one kind.
pub const METHOD: u32 = 2;

/// The rounds of each workload of an earlier run.
#[derive(Debug, Default)]
pub struct Earlier(HashMap<String, Vec<[Turn; 2]>>);

/// What counts of an earlier run's report.
#[derive(Deserialize)]
struct Printed {
    no_loss: bool,
    #[serde(default)]
    method: u32,
    #[serde(default)]
    quick: bool,
    vcpus: u32,
    rows: Vec<PrintedRow>,
}

#[derive(Deserialize)]
struct PrintedRow {
    workload: String,
    turns: Vec<[Turn; 2]>,
}

impl Earlier {
    /// Reads what a run with as many vCPUs and as much work has printed.
    pub fn read(file: &Path, vcpus: u32, quick: bool) -> anyhow::Result<Self> {
        let name = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("--add {name}"))?;
        let printed: Printed = serde_json::from_str(&text)
            .with_context(|| format!("--add {name}: not what --no-loss --json prints"))?;
        if !printed.no_loss || printed.vcpus != vcpus {
            bail!("--add {name}: not of --no-loss with {vcpus} vCPUs");
        }
        if printed.method != METHOD || printed.quick != quick {
            bail!("--add {name}: measured in another way: by another version, or with --quick");
        }
        let rows = printed
            .rows
            .into_iter()
            .map(|row| (row.workload, row.turns));
        Ok(Earlier(rows.collect()))
    }

    /// The rounds of a workload.
    fn pair(&self, workload: &str) -> Pair {
        let mut pair = Pair::default();
        for [base, pv] in self.0.get(workload).into_iter().flatten() {
            pair.add(*base, *pv);
        }
        pair
    }
}

/// Measures each workload in each round, and adds a row for each to the report. The rounds before
/// an error make rows, too.
pub fn measure(
    bench: &Bench<'_>,
    workloads: &[&'static Workload],
    earlier: &Earlier,
    progress: &Progress,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut pairs: Vec<_> = workloads
        .iter()
        .map(|workload| (*workload, earlier.pair(workload.name)))
        .collect();
    let result = measure_pairs(bench, &mut pairs, progress, report);
    for (workload, pair) in &pairs {
        if pair.rounds() > 0 {
            report.add(1, workload.name, pair);
        }
    }
    result
}

fn measure_pairs(
    bench: &Bench<'_>,
    pairs: &mut [(&'static Workload, Pair)],
    progress: &Progress,
    report: &mut Report,
) -> anyhow::Result<()> {
    let rounds = bench.rounds();
    for round in 0..rounds {
        progress.step(&format!("round {} of {rounds}: starting", round + 1));
        let mut machines = [Machine::start(bench, "")?];
        for (workload, pair) in &mut *pairs {
            let name = workload.name;
            progress.step(&format!("round {} of {rounds}: {name}", round + 1));
            if let Some(why) = workload.prepare(&mut machines, bench.args.quick)? {
                // The root is the same in all rounds.
                if round == 0 {
                    report.skip(name, why);
                }
                continue;
            }
            let [base, pv] = turns(bench, workload, &mut machines[0], round.is_multiple_of(2))?;
            pair.add(base, pv);
        }
    }
    Ok(())
}

/// All turns of a workload in a machine: what they took without paravirtual locks, and with them.
fn turns(
    bench: &Bench<'_>,
    workload: &Workload,
    machine: &mut Machine<'_>,
    plain_first: bool,
) -> anyhow::Result<[Turn; 2]> {
    let mut turns = [Turn::default(); 2];
    if !bench.args.quick {
        // The first run in a machine finds nothing in its caches.
        bench.turn(workload, machine, &[])?;
    }
    let mut first = usize::from(!plain_first);
    loop {
        // A change of the host from turn to turn is in both sums.
        for locks in [first, 1 - first, 1 - first, first] {
            machine.set_locks(locks == 1)?;
            let turn = bench.turn(workload, machine, &[])?;
            turns[locks] = turns[locks].then(turn);
        }
        first = 1 - first;
        if bench.args.quick || turns.iter().map(|turn| turn.seconds).sum::<f64>() >= WORK {
            return Ok(turns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(file: &Path, vcpus: u32, quick: bool) -> String {
        Earlier::read(file, vcpus, quick).unwrap_err().to_string()
    }

    #[test]
    fn rounds_of_an_earlier_run_are_those_that_it_printed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("earlier.json");
        let turn = |seconds| Turn {
            seconds,
            ..Turn::default()
        };
        let mut pair = Pair::default();
        pair.add(turn(2.0), turn(3.0));
        pair.add(turn(4.0), turn(4.0));
        let mut report = Report {
            vcpus: 2,
            no_loss: true,
            method: METHOD,
            ..Report::default()
        };
        report.add(1, "w", &pair);
        fs::write(&file, serde_json::to_string(&report).unwrap()).unwrap();
        let earlier = Earlier::read(&file, 2, false).unwrap();
        assert_eq!(earlier.pair("other").rounds(), 0);
        let mut again = Report::default();
        again.add(1, "w", &earlier.pair("w"));
        let (first, second) = (&report.rows[0], &again.rows[0]);
        assert_eq!(second.rounds, 2);
        assert!((first.pv_s - second.pv_s).abs() < 1e-9, "{second:?}");
        assert!((first.gain_percent - second.gain_percent).abs() < 1e-9);

        let refused = |vcpus| refused(&file, vcpus, false);
        let name = file.display();
        assert_eq!(
            refused(4),
            format!("--add {name}: not of --no-loss with 4 vCPUs")
        );
        assert!(
            self::refused(&file, 2, true).contains("in another way"),
            "it had all of the work"
        );
        report.method = 1;
        fs::write(&file, serde_json::to_string(&report).unwrap()).unwrap();
        assert!(refused(2).contains("in another way"), "{}", refused(2));
        fs::write(&file, "{}").unwrap();
        assert_eq!(
            refused(2),
            format!("--add {name}: not what --no-loss --json prints")
        );
    }
}
