// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables.

use super::super::turns::Table;
use super::rows::{Pair, Row};
use super::ticket;
use serde::Serialize;
use std::fmt::Write as _;

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

/// The part of its fair share of processors that a load has at least. The rest is the time for
/// starts and ends of the measured scripts.
const LOAD_LEAST: f64 = 0.85;

/// Heads of the table of workloads.
const GAINS: &str = "\n| load | workload | plain locks, s (sd) | paravirtual, s (sd) | gain, % | \
    95 % | rounds | processors: plain, paravirtual, load | \
    of ideal, %: plain, paravirtual (95 %) | bar | met |\n\
    | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |\n";
const LOSSES: &str = "\n| load | workload | plain locks, s (sd) | paravirtual, s (sd) | loss, % | \
    95 % | at most, % | rounds | bar | met |\n\
    | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |\n";

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

    /// Adds a row. Whether the load took its share shows here, and whether the row meets its bar.
    #[allow(clippy::cast_precision_loss)] // few processors
    pub fn add(&mut self, case: u32, workload: &'static str, pair: &Pair) {
        let mut row = Row::new(case, workload, pair);
        // One vCPU of a ticket lock works at a time. So its share is not defined.
        let has_share = workload != ticket::NAME;
        let alone = self.rows.iter();
        let mut alone = alone.filter(|other| other.workload == workload && other.case == "1x");
        if let Some(one) = alone.next().filter(|_| has_share) {
            row.beside(case, one);
        }
        let others = f64::from(case - 1) / f64::from(case);
        let share = self.processors as f64 * others;
        if self.no_loss {
            row.judge_loss();
        } else if row.load_processors < share * LOAD_LEAST {
            self.short.push(Short {
                case: row.case.clone(),
                workload,
                had: row.load_processors,
                share,
            });
        } else if has_share {
            row.judge_gain(case);
        }
        self.rows.push(row);
    }

    /// What rows miss of their bars.
    pub fn missed(&self) -> Vec<String> {
        self.rows.iter().filter_map(Row::missed).collect()
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
            let _ = write!(
                out,
                "| {} | {} | {:.2} ({:.2}) | {:.2} ({:.2}) | ",
                row.case, row.workload, row.base_s, row.base_sd, row.pv_s, row.pv_sd
            );
            if self.no_loss {
                let (loss, [low, high]) = row.loss();
                let most = row.loss_at_most_percent;
                let _ = write!(out, "{loss:.1} | {low:.1} to {high:.1} | {most:.1} | ");
                let _ = write!(out, "{} | ", row.rounds);
            } else {
                let [low, high] = row.ci95;
                let gain = row.gain_percent;
                let _ = write!(out, "{gain:.1} | {low:.1} to {high:.1} | {} | ", row.rounds);
                let (base, pv) = (row.base_processors, row.pv_processors);
                let _ = write!(out, "{base:.2}, {pv:.2}, {:.2} | ", row.load_processors);
                let _ = write!(out, "{} | ", row.of_ideal());
            }
            let verdict = row.verdict.map(|verdict| verdict.to_string());
            let (bar, verdict) = (row.bar.as_deref(), verdict.as_deref());
            let _ = writeln!(
                out,
                "{} | {} |",
                bar.unwrap_or_default(),
                verdict.unwrap_or_default()
            );
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

#[cfg(test)]
mod tests {
    use super::super::rows::Turn;
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

    #[test]
    fn a_load_that_has_less_than_its_share_is_told() {
        let mut report = Report {
            processors: 2,
            ..Report::default()
        };
        report.add(1, "w", &pair());
        report.add(2, "w", &pair());
        assert_eq!(report.rows[0].bar, None);
        assert_eq!(report.rows[1].ideal_percent, Some(50.0));
        assert!(report.rows[1].verdict.is_some());
        assert!(report.short.is_empty(), "{report:?}");
        report.add(3, "w", &pair());
        // The bar does not apply to a row of another load.
        assert_eq!(report.rows[2].verdict, None);
        let text = report.markdown();
        let told = "\n3x, w: the load had 1.00 processors in a round, less than its share of 1.33.";
        assert!(text.contains(told), "{text}");
        assert_eq!(text.matches("This row is not one of").count(), 1);
    }

    #[test]
    fn a_ticket_lock_has_no_share() {
        let mut report = Report {
            processors: 2,
            ..Report::default()
        };
        report.add(1, ticket::NAME, &pair());
        report.add(2, ticket::NAME, &pair());
        let row = &report.rows[1];
        assert_eq!((row.ideal_percent, row.verdict), (None, None));
    }

    #[test]
    fn bars_that_are_missed_are_told() {
        let mut report = Report {
            no_loss: true,
            ..Report::default()
        };
        let mut slow = Pair::default();
        for _ in 0..6 {
            slow.add(turn(1.0, 0.0), turn(1.5, 0.0));
        }
        report.add(1, "fine", &pair());
        assert!(report.missed().is_empty());
        report.add(1, "slow", &slow);
        assert_eq!(
            report.missed(),
            ["1x slow: gain -50.0 % (-50.0 to -50.0), bar: loss at most 3 %"]
        );
        let text = report.markdown();
        let row = "| 1x | slow | 1.00 (0.00) | 1.50 (0.00) | 50.0 | 50.0 to 50.0 | 50.0 | 6 | \
                   loss at most 3 % | not met |\n";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn the_tables_have_their_rows() {
        let mut report = Report {
            vcpus: 8,
            processors: 2,
            idle: Some(Idle {
                guests: 50,
                seconds: 60.0,
                all_percent: 0.4,
                each_percent: 0.008,
                most_percent: 0.01,
            }),
            ..Report::default()
        };
        report.add(2, "w", &pair());
        report.skip("pgbench", "there is none".to_string());
        let text = report.markdown();
        assert!(
            text.contains(
                "| 2x | w | 20.00 (10.00) | 13.33 (14.43) | 50.0 | 0.0 to 75.0 | 3 | \
                 0.90, 0.90, 1.00 |  | gain at least 83 % | not decided |\n"
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
        let json = serde_json::to_value(&report).unwrap();
        let row = &json["rows"][0];
        assert_eq!(
            (&row["case"], &row["workload"]),
            (&"2x".into(), &"w".into())
        );
        assert_eq!(row["ci95"][1], 75.0);
        assert_eq!(row["base_s"], 20.0);
        assert_eq!(row["gain_percent"], 50.0);
        assert!(row["pv_s"].is_number(), "{row}");
        assert_eq!(row["verdict"], "undecided");
    }
}
