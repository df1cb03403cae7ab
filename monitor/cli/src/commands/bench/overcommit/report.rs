// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables.

use super::super::stats::{at_most, interval, median};
use super::super::turns::Table;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// One run of a workload.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Turn {
    /// The time that it took, in seconds.
    pub seconds: f64,
    /// Processors that its machine had in the mean, and those that the load had.
    pub machine: f64,
    pub load: f64,
}

impl Turn {
    /// This turn and one that follows it, as one.
    pub fn then(self, next: Turn) -> Turn {
        let seconds = self.seconds + next.seconds;
        let mean = |a: f64, b: f64| (a * self.seconds + b * next.seconds) / seconds;
        Turn {
            seconds,
            machine: mean(self.machine, next.machine),
            load: mean(self.load, next.load),
        }
    }
}

/// A workload without paravirtual locks and with them, round by round.
#[derive(Debug, Default)]
pub struct Pair {
    base: Vec<Turn>,
    pv: Vec<Turn>,
}

/// The times of turns, in seconds.
fn seconds(turns: &[Turn]) -> Vec<f64> {
    turns.iter().map(|turn| turn.seconds).collect()
}

impl Pair {
    pub fn add(&mut self, base: Turn, pv: Turn) {
        self.base.push(base);
        self.pv.push(pv);
    }

    pub fn rounds(&self) -> usize {
        self.base.len()
    }

    /// Each round: without them, and with them.
    fn turns(&self) -> impl Iterator<Item = [Turn; 2]> {
        self.base
            .iter()
            .zip(&self.pv)
            .map(|(&base, &pv)| [base, pv])
    }

    /// The gain of each round, in percent of the time without them.
    fn gains(&self) -> Vec<f64> {
        let pairs = self.base.iter().zip(&self.pv);
        pairs
            .map(|(base, pv)| (1.0 - pv.seconds / base.seconds) * 100.0)
            .collect()
    }

    /// The logarithm of the time with them by that without, of each round. Chance makes it larger
    /// as often as smaller; a ratio itself has no such symmetry, which the signed-rank test needs.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.base.iter().zip(&self.pv);
        pairs
            .map(|(base, pv)| (pv.seconds / base.seconds).ln())
            .collect()
    }

    /// The processors that the load had in the turn in which it had fewest. Each is in a row.
    fn least_load(&self) -> f64 {
        let turns = self.base.iter().chain(&self.pv);
        turns.map(|turn| turn.load).fold(f64::INFINITY, f64::min)
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
    /// The loss is not larger than that, with a confidence of 95 %.
    pub loss_at_most_percent: f64,
    /// Each round: without them, and with them.
    pub turns: Vec<[Turn; 2]>,
    pub rounds: usize,
    /// Processors that the machine had in the mean, without them and with them.
    pub base_processors: f64,
    pub pv_processors: f64,
    /// Processors that the load had in the round in which it had fewest.
    pub load_processors: f64,
    /// The median time with them in percent of that at 1x times the load: 100 is the ideal share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ideal_percent: Option<f64>,
    #[serde(skip)]
    pv_median: f64,
}

impl Row {
    pub fn new(case: u32, workload: &'static str, pair: &Pair) -> Self {
        let gains = pair.gains();
        let (base, pv) = (seconds(&pair.base), seconds(&pair.pv));
        let mean = |turns: &[Turn]| {
            let had: Vec<f64> = turns.iter().map(|turn| turn.machine).collect();
            mean_and_deviation(&had).0
        };
        Row {
            case: format!("{case}x"),
            workload,
            base_s: mean_and_deviation(&base).0,
            base_sd: mean_and_deviation(&base).1,
            pv_s: mean_and_deviation(&pv).0,
            pv_sd: mean_and_deviation(&pv).1,
            gain_percent: median(&gains),
            ci95: interval(&gains),
            loss_at_most_percent: (at_most(&pair.ratios()).exp() - 1.0) * 100.0,
            turns: pair.turns().collect(),
            rounds: gains.len(),
            base_processors: mean(&pair.base),
            pv_processors: mean(&pair.pv),
            load_processors: pair.least_load(),
            ideal_percent: None,
            pv_median: median(&pv),
        }
    }
}

/// A row at which the load did not have what is its share.
#[derive(Debug, Serialize)]
pub struct Short {
    case: String,
    workload: &'static str,
    had: f64,
    share: f64,
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

/// The part of its fair share of processors that a load has at least. The rest is what starts and
/// ends of the measured scripts take.
const LOAD_LEAST: f64 = 0.85;

/// Heads of the table of workloads.
const GAINS: &str = "\n| load | workload | plain locks, s (sd) | paravirtual, s (sd) | gain, % | \
    95 % | rounds | processors: plain, paravirtual, load | of ideal, % |\n\
    | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
const LOSSES: &str = "\n| load | workload | plain locks, s (sd) | paravirtual, s (sd) | loss, % | \
    at most, % | rounds |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n";

/// Everything.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub vcpus: u32,
    pub processors: usize,
    pub no_loss: bool,
    /// How `--no-loss` measures.
    pub method: u32,
    pub quick: bool,
    pub rows: Vec<Row>,
    pub skipped: Vec<Skipped>,
    pub short: Vec<Short>,
    pub clocks: Vec<Clock>,
    pub idle: Option<Idle>,
}

impl Report {
    pub fn skip(&mut self, workload: &'static str, why: String) {
        self.skipped.push(Skipped { workload, why });
    }

    /// Adds a row. Whether the load took its share shows here.
    #[allow(clippy::cast_precision_loss)] // few processors
    pub fn add(&mut self, case: u32, workload: &'static str, pair: &Pair) {
        let mut row = Row::new(case, workload, pair);
        let alone = self.rows.iter();
        let alone = alone.filter(|other| other.workload == workload && other.case == "1x");
        row.ideal_percent = alone
            .map(|one| row.pv_median / (one.pv_median * f64::from(case)) * 100.0)
            .next();
        let others = f64::from(case - 1) / f64::from(case);
        let share = self.processors as f64 * others;
        if row.load_processors < share * LOAD_LEAST {
            self.short.push(Short {
                case: row.case.clone(),
                workload,
                had: row.load_processors,
                share,
            });
        }
        self.rows.push(row);
    }

    /// Whether anything was measured.
    pub fn any(&self) -> bool {
        !self.rows.is_empty() || !self.clocks.is_empty() || self.idle.is_some()
    }
}

impl Table for Report {
    fn markdown(&self) -> String {
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
                let ideal = row.ideal_percent.map(|percent| format!("{percent:.0}"));
                writeln!(
                    out,
                    "{:.1} | {low:.1} to {high:.1} | {} | {:.2}, {:.2}, {:.2} | {} |",
                    row.gain_percent,
                    row.rounds,
                    row.base_processors,
                    row.pv_processors,
                    row.load_processors,
                    ideal.unwrap_or_default()
                )
            };
        }
        for Skipped { workload, why } in &self.skipped {
            let _ = writeln!(out, "\n{workload} was not measured: {why}.");
        }
        for short in &self.short {
            let Short {
                case,
                workload,
                had,
                share,
            } = short;
            let _ = writeln!(
                out,
                "\n{case}, {workload}: the load had {had:.2} processors in a round, less than its \
                 share of {share:.2}. This row is not one of {case}."
            );
        }
        if !self.clocks.is_empty() || self.idle.is_some() {
            out.push_str("\n| time | |\n| --- | ---: |\n");
        }
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

    fn turn(seconds: f64, load: f64) -> Turn {
        Turn {
            seconds,
            machine: 0.9,
            load,
        }
    }

    fn pair() -> Pair {
        let mut pair = Pair::default();
        for (base, pv) in [(10.0, 5.0), (20.0, 5.0), (30.0, 30.0)] {
            pair.add(turn(base, 1.0), turn(pv, 1.1));
        }
        pair
    }

    fn row() -> Row {
        Row::new(2, "w", &pair())
    }

    #[test]
    fn a_load_that_has_less_than_its_share_is_told() {
        let mut report = Report {
            processors: 2,
            ..Report::default()
        };
        report.add(1, "w", &pair());
        report.add(2, "w", &pair());
        assert_eq!(report.rows[0].ideal_percent, None);
        assert_eq!(report.rows[1].ideal_percent, Some(50.0));
        assert!(report.short.is_empty(), "{report:?}");
        report.add(3, "w", &pair());
        let text = report.markdown();
        let told = "\n3x, w: the load had 1.00 processors in a round, less than its share of 1.33.";
        assert!(text.contains(told), "{text}");
        assert_eq!(text.matches("This row is not one of").count(), 1);
    }

    #[test]
    fn two_turns_make_one() {
        let turn = |seconds, machine, load| Turn {
            seconds,
            machine,
            load,
        };
        let both = turn(1.0, 2.0, 0.5).then(turn(3.0, 1.0, 0.25));
        assert_eq!((both.seconds, both.machine), (4.0, 1.25));
        assert!((both.load - 0.3125).abs() < 1e-9, "{both:?}");
        let first = Turn::default().then(turn(2.0, 1.0, 0.25));
        assert_eq!((first.seconds, first.machine, first.load), (2.0, 1.0, 0.25));
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
            text.contains(
                "| 2x | w | 20.00 (10.00) | 13.33 (14.43) | 50.0 | 0.0 to 75.0 | 3 | \
                 0.90, 0.90, 1.00 |  |\n"
            ),
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
            text.contains("| 2x | w | 20.00 (10.00) | 13.33 (14.43) | -50.0 | 0.0 | 3 |\n"),
            "{text}"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["rows"][0]["case"], "2x");
        assert_eq!(json["rows"][0]["ci95"][1], 75.0);
    }
}
