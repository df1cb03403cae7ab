// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result as a table and as JSON.

use super::super::bars::Verdict;
use super::super::turns::{Figures, Named, Pairs, Table};
use super::rows::Row;
use serde::Serialize;
use std::fmt::Write;

/// The measurements of a row.
#[derive(Debug)]
pub struct Turns {
    pub row: &'static Row,
    pub pairs: Pairs,
}

impl Turns {
    pub fn new(row: &'static Row) -> Self {
        Turns {
            row,
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
    bar: f64,
    /// Whether the ratio is at most that.
    verdict: Verdict,
    what: &'static str,
}

/// A row that this host cannot measure.
#[derive(Debug, Serialize)]
pub struct Skipped {
    name: &'static str,
    why: String,
}

impl Skipped {
    pub fn new(row: &Row, why: String) -> Self {
        Skipped {
            name: row.name,
            why,
        }
    }
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    isolation: &'static str,
    rows: Vec<Line>,
    skipped: Vec<Skipped>,
}

impl Report {
    pub fn new(turns: &[Turns], skipped: Vec<Skipped>) -> Self {
        let line = |turns: &Turns| {
            let figures = turns.pairs.figures();
            Line {
                name: turns.row.name,
                verdict: figures.verdict(turns.row.bar),
                figures,
                bar: turns.row.bar,
                what: turns.row.text,
            }
        };
        Report {
            isolation: "vm",
            rows: turns.iter().map(line).collect(),
            skipped,
        }
    }

    /// What rows miss of their bars.
    pub fn missed(&self) -> Vec<String> {
        let missed = |line: &Line| line.figures.missed(line.name, line.bar);
        self.rows.iter().filter_map(missed).collect()
    }
}

impl Table for Report {
    fn markdown(&self) -> String {
        let [titles, lines] = Figures::TITLES;
        let mut out = format!(
            "| row | {titles} | bar | met | an operation |\n\
                     | --- | {lines} | ---: | --- | --- |\n"
        );
        for line in &self.rows {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} |",
                line.name,
                line.figures.cells(),
                line.bar,
                line.verdict,
                line.what
            );
        }
        for row in &self.skipped {
            let _ = writeln!(out, "\n{} was not measured: {}.", row.name, row.why);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    #[test]
    fn the_table_says_what_was_measured() {
        let mut turns = [Turns::new(&ROWS[0])];
        turns[0].pairs.add(30.0, 100.0);
        let report = Report::new(
            &turns,
            vec![Skipped::new(&ROWS[1], "nothing to write to".to_string())],
        );
        let table = report.markdown();
        let line = "| getppid | 30.0 | 100 | 0.30 | 0.30 to 0.30 | 1 | not decided | getppid |\n";
        assert!(table.contains(line), "{table}");
        assert!(
            table.contains("write was not measured: nothing to write to."),
            "{table}"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(1));
        assert_eq!(json["rows"][0]["host_ns"], 100.0);
        assert_eq!(json["skipped"][0]["name"], "write");
        assert!(report.missed().is_empty());
        // Of nine values the interval leaves the smallest one out.
        for _ in 0..8 {
            turns[0].pairs.add(300.0, 100.0);
        }
        let missed = Report::new(&turns, Vec::new()).missed();
        assert_eq!(missed, ["getppid: 3.00 (3.00 to 3.00), bar 1"]);
    }
}
