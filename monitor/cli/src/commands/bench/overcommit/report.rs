// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables.

use super::super::stats::{interval, median};
use serde::Serialize;
use std::fmt::Write as _;

/// The times of a workload without paravirtual locks and with them, round by round, in seconds.
#[derive(Debug, Default)]
pub struct Pair {
    base: Vec<f64>,
    pv: Vec<f64>,
}

impl Pair {
    pub fn add(&mut self, base: f64, pv: f64) {
        self.base.push(base);
        self.pv.push(pv);
    }

    /// The gain of each round, in percent of the time without them.
    fn gains(&self) -> Vec<f64> {
        let pairs = self.base.iter().zip(&self.pv);
        pairs.map(|(base, pv)| (1.0 - pv / base) * 100.0).collect()
    }
}

/// A row of the seed's table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// How many times the machine's vCPUs want to run: 1x, 2x, 3x.
    pub case: String,
    pub workload: &'static str,
    /// Mean and standard deviation without paravirtual locks, in seconds.
    pub base_s: f64,
    pub base_sd: f64,
    /// The same with them.
    pub pv_s: f64,
    pub pv_sd: f64,
    /// The median of the gains of the rounds, and its 95 % interval.
    pub gain_percent: f64,
    pub ci95: [f64; 2],
    /// The loss is not larger than that, with a confidence of 95 % or more.
    pub loss_at_most_percent: f64,
    pub rounds: usize,
}

impl Row {
    pub fn new(case: u32, workload: &'static str, pair: &Pair) -> Self {
        let gains = pair.gains();
        let (base, pv) = (mean_and_deviation(&pair.base), mean_and_deviation(&pair.pv));
        Row {
            case: format!("{case}x"),
            workload,
            base_s: base.0,
            base_sd: base.1,
            pv_s: pv.0,
            pv_sd: pv.1,
            gain_percent: median(&gains),
            ci95: interval(&gains),
            loss_at_most_percent: -interval(&gains)[0],
            rounds: gains.len(),
        }
    }
}

/// A workload that was not measured.
#[derive(Debug, Serialize)]
pub struct Skipped {
    workload: &'static str,
    why: String,
}

/// The error of the measured machine's clock at the end of a case.
#[derive(Debug, Serialize)]
pub struct Clock {
    pub case: String,
    /// Against the hypervisor's time, which is the host's CLOCK_MONOTONIC.
    pub offset_ns: i64,
    /// User, system, idle and stolen time of its busy CPUs in percent of the time that passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accounted_percent: Option<f64>,
}

/// Machines in which nothing happens.
#[derive(Debug, Serialize)]
pub struct Idle {
    pub guests: u32,
    /// Time over which the processor time was taken, in seconds.
    pub seconds: f64,
    /// Processor time of all of them, in percent of one processor.
    pub all_percent: f64,
    /// The median of one, and the largest.
    pub each_percent: f64,
    pub most_percent: f64,
}

/// Heads of the table of workloads.
const GAINS: &str = "\n| load | workload | plain locks, s (sd) | paravirtual, s (sd) | gain, % | \
    95 % | rounds |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n";
const LOSSES: &str = "\n| load | workload | plain locks, s (sd) | paravirtual, s (sd) | loss, % | \
    at most, % | rounds |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n";

/// Everything.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub vcpus: u32,
    pub processors: usize,
    pub no_loss: bool,
    pub rows: Vec<Row>,
    pub skipped: Vec<Skipped>,
    pub clocks: Vec<Clock>,
    pub idle: Option<Idle>,
}

impl Report {
    pub fn skip(&mut self, workload: &'static str, why: String) {
        self.skipped.push(Skipped { workload, why });
    }

    pub fn markdown(&self) -> String {
        let mut out = format!("{} vCPUs on {} processors.\n", self.vcpus, self.processors);
        if !self.rows.is_empty() {
            out.push_str(if self.no_loss { LOSSES } else { GAINS });
        }
        for row in &self.rows {
            let [low, high] = row.ci95;
            let _ = write!(
                out,
                "| {} | {} | {:.2} ({:.2}) | {:.2} ({:.2}) | ",
                row.case, row.workload, row.base_s, row.base_sd, row.pv_s, row.pv_sd
            );
            let _ = if self.no_loss {
                writeln!(
                    out,
                    "{:.1} | {:.1} | {} |",
                    -row.gain_percent, row.loss_at_most_percent, row.rounds
                )
            } else {
                writeln!(
                    out,
                    "{:.1} | {low:.1} to {high:.1} | {} |",
                    row.gain_percent, row.rounds
                )
            };
        }
        for Skipped { workload, why } in &self.skipped {
            let _ = writeln!(out, "\n{workload} was not measured: {why}.");
        }
        out.push_str("\n| time | |\n| --- | ---: |\n");
        for clock in &self.clocks {
            let _ = writeln!(
                out,
                "| error of the clock after {}, ns | {} |",
                clock.case, clock.offset_ns
            );
            if let Some(percent) = clock.accounted_percent {
                let _ = writeln!(
                    out,
                    "| accounted time at {}, % of what passed | {percent:.2} |",
                    clock.case
                );
            }
        }
        if let Some(idle) = &self.idle {
            let _ = write!(
                out,
                "| {} idle machines, % of a processor | {:.3} |\n\
                 | one of them, median (most) | {:.4} ({:.4}) |\n",
                idle.guests, idle.all_percent, idle.each_percent, idle.most_percent
            );
        }
        out
    }
}

/// The mean and the standard deviation of a sample; 0 for a single value.
#[allow(clippy::cast_precision_loss)] // numbers of rounds
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let mut pair = Pair::default();
        for (base, pv) in [(10.0, 5.0), (20.0, 5.0), (30.0, 30.0)] {
            pair.add(base, pv);
        }
        Row::new(2, "w", &pair)
    }

    #[test]
    fn gains_are_those_of_each_round() {
        let row = row();
        assert!((row.gain_percent - 50.0).abs() < 1e-9, "{row:?}");
        assert!((row.ci95[0]).abs() < 1e-9 && (row.ci95[1] - 75.0).abs() < 1e-9);
        assert!((row.base_s - 20.0).abs() < 1e-9 && (row.base_sd - 10.0).abs() < 1e-9);
        assert_eq!((row.case.as_str(), row.rounds), ("2x", 3));
        assert_eq!(mean_and_deviation(&[4.0]), (4.0, 0.0));
    }

    #[test]
    fn the_tables_have_their_rows() {
        let mut report = Report {
            vcpus: 8,
            processors: 2,
            rows: vec![row()],
            idle: Some(Idle {
                guests: 50,
                seconds: 60.0,
                all_percent: 0.4,
                each_percent: 0.008,
                most_percent: 0.01,
            }),
            ..Report::default()
        };
        report.skip("pgbench", "there is none".to_string());
        let text = report.markdown();
        assert!(
            text.contains("| 2x | w | 20.00 (10.00) | 13.33 (14.43) | 50.0 | 0.0 to 75.0 | 3 |\n"),
            "{text}"
        );
        assert!(
            text.contains("pgbench was not measured: there is none."),
            "{text}"
        );
        assert!(
            text.contains("| 50 idle machines, % of a processor | 0.400 |"),
            "{text}"
        );
        report.no_loss = true;
        let text = report.markdown();
        assert!(
            text.contains("| 2x | w | 20.00 (10.00) | 13.33 (14.43) | -50.0 | -0.0 | 3 |\n"),
            "{text}"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["rows"][0]["case"], "2x");
        assert_eq!(json["rows"][0]["ci95"][1], 75.0);
    }
}
