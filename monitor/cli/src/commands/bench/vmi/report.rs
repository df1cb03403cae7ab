// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result as a table and as JSON.

use super::super::bars::Verdict;
use super::super::turns::{Figures, Named, Pairs, Table};
use super::rows::Row;
use serde::Serialize;
use std::fmt::Write;

/// What an operation needs of the host, on average.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// System calls, except for returns from signals.
    pub host_calls: f64,
    /// The layer counted them in this run. Otherwise they are from an earlier count.
    pub counted: bool,
    pub signals: f64,
    /// Context switches.
    pub switches: f64,
}

/// The measurements of a row.
#[derive(Debug)]
pub struct Turns {
    pub row: &'static Row,
    pub needs: Option<Needs>,
    pub pairs: Pairs,
}

impl Turns {
    pub fn new(row: &'static Row) -> Self {
        Turns {
            row,
            needs: None,
            pairs: Pairs::default(),
        }
    }
}

impl Named for Turns {
    fn name(&self) -> &'static str {
        self.row.name
    }
}

/// A row of the result.
#[derive(Debug, Serialize)]
struct Line {
    name: &'static str,
    #[serde(flatten)]
    figures: Figures,
    bar: Option<f64>,
    /// Whether the ratio is at most that.
    verdict: Option<Verdict>,
    host_calls: f64,
    host_calls_counted: bool,
    signals: f64,
    switches: f64,
    host: &'static str,
}

impl Line {
    fn new(turns: &Turns) -> Option<Self> {
        let needs = turns.needs?;
        let figures = turns.pairs.figures();
        Some(Line {
            name: turns.row.name,
            verdict: turns.row.bar.map(|bar| figures.verdict(bar)),
            figures,
            bar: turns.row.bar,
            host_calls: needs.host_calls,
            host_calls_counted: needs.counted,
            signals: needs.signals,
            switches: needs.switches,
            host: turns.row.host.text,
        })
    }
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    rows: Vec<Line>,
    /// Rows that the guest cannot measure on this host.
    missing: Vec<&'static str>,
}

impl Report {
    pub fn new(turns: &[Turns]) -> Self {
        let lines: Vec<(&Turns, Option<Line>)> = turns.iter().map(|t| (t, Line::new(t))).collect();
        Report {
            missing: lines
                .iter()
                .filter(|(_, line)| line.is_none())
                .map(|(t, _)| t.row.name)
                .collect(),
            rows: lines.into_iter().filter_map(|(_, line)| line).collect(),
        }
    }

    /// What rows miss of their bars.
    pub fn missed(&self) -> Vec<String> {
        let missed = |line: &Line| line.figures.missed(line.name, line.bar?);
        self.rows.iter().filter_map(missed).collect()
    }
}

impl Table for Report {
    fn markdown(&self) -> String {
        let [titles, lines] = Figures::TITLES;
        let mut out = format!(
            "| row | {titles} | bar | host calls | signals | switches | on the host |\n\
             | --- | {lines} | ---: | ---: | ---: | ---: | --- |\n"
        );
        for line in &self.rows {
            let bar = line.bar.map_or(String::new(), |bar| format!("{bar:.1}"));
            let read = if line.host_calls_counted { "" } else { " *" };
            let _ = writeln!(
                out,
                "| {} | {} | {bar} | {}{read} | {} | {} | {} |",
                line.name,
                line.figures.cells(),
                count(line.host_calls),
                count(line.signals),
                count(line.switches),
                line.host
            );
        }
        if self.rows.iter().any(|line| !line.host_calls_counted) {
            out.push_str(
                "\n\\* Counted once with perf, not in this run: the layer does not count them.\n",
            );
        }
        if !self.missing.is_empty() {
            let _ = writeln!(
                out,
                "\nNot possible on this host: {}.",
                self.missing.join(", ")
            );
        }
        out
    }
}

/// Formats a count; without decimals if it is a whole number.
fn count(value: f64) -> String {
    if (value - value.round()).abs() < 0.03 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    #[test]
    fn the_table_says_what_was_measured() {
        let mut turns: Vec<Turns> = ROWS.iter().take(2).map(Turns::new).collect();
        for (guest, host) in [(20.0, 100.0), (30.0, 100.0), (400.0, 1000.0)] {
            turns[0].pairs.add(guest, host);
        }
        turns[0].needs = Some(Needs {
            host_calls: 0.0,
            counted: false,
            signals: 1.001,
            switches: 0.5,
        });
        let report = Report::new(&turns);
        let table = report.markdown();
        let line = "| syscall_injected | 30.0 | 100 | 0.30 | 0.20 to 0.40 | 1.0 | 0 * | 1 | 0.50 | \
                    getppid |\n";
        assert!(table.contains(line), "{table}");
        assert!(
            table.contains("Not possible on this host: syscall_trapped."),
            "{table}"
        );
        let json: serde_json::Value = serde_json::to_value(&report).unwrap();
        assert!(
            json["rows"][0]["ratio"]
                .as_f64()
                .is_some_and(|r| (r - 0.3).abs() < 1e-9)
        );
        assert_eq!(json["rows"][0]["ci95"].as_array().map(Vec::len), Some(2));
    }
}
