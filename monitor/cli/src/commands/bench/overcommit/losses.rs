// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What paravirtual spinlocks cost where they gain nothing: on processors that nobody else uses.
//!
//! Two machines differ by chance, and by the same for as long as they live. So each round has two
//! new ones, and only a difference of the locks is in all rounds.

use super::report::{Pair, Report, Turn};
use super::workloads::Workload;
use super::{Bench, Progress};

/// Measures each workload in each round, and adds a row for each to the report.
pub fn measure(
    bench: &Bench<'_>,
    workloads: &[&'static Workload],
    progress: &Progress,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut pairs: Vec<_> = workloads.iter().map(|w| (*w, Pair::default())).collect();
    let rounds = bench.rounds();
    for round in 0..rounds {
        progress.step(&format!("round {} of {rounds}: starting", round + 1));
        let mut machines = bench.machines()?;
        for (workload, pair) in &mut pairs {
            let name = workload.name;
            progress.step(&format!("round {} of {rounds}: {name}", round + 1));
            if let Some(why) = workload.prepare(&mut machines, bench.args.quick)? {
                // The root is the same in all rounds.
                if round == 0 {
                    report.skip(name, why);
                }
                continue;
            }
            let first = (round % 2) as usize;
            let mut turns = [Turn::default(); 2];
            // A change of the host from turn to turn is in both sums.
            for machine in [first, 1 - first, 1 - first, first] {
                let turn = bench.turn(workload, &mut machines[machine], &[])?;
                turns[machine] = turns[machine].then(turn);
            }
            let [base, pv] = turns;
            pair.add(base, pv);
        }
    }
    for (workload, pair) in &pairs {
        if pair.rounds() > 0 {
            report.add(1, workload.name, pair);
        }
    }
    Ok(())
}
