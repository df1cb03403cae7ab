// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came out, as a table and as JSON.

use super::rows::Row;
use super::stats;
use serde::Serialize;
use std::fmt::Write;

/// The measurements of a row.
#[derive(Debug)]
pub struct Turns {
    pub row: &'static Row,
    /// Why it is not measured.
    pub skipped: Option<String>,
    guest: Vec<f64>,
    host: Vec<f64>,
}

impl Turns {
    pub fn new(row: &'static Row) -> Self {
        Turns {
            row,
            skipped: None,
            guest: Vec::new(),
            host: Vec::new(),
        }
    }

    /// Guest and host in one turn, ns.
    pub fn add(&mut self, guest: f64, host: f64) {
        self.guest.push(guest);
        self.host.push(host);
    }
}

/// A row of the result.
#[derive(Debug, Serialize)]
struct Line {
    name: &'static str,
    guest_ns: f64,
    host_ns: f64,
    /// The median of the ratios within each turn.
    ratio: f64,
    ci95: [f64; 2],
    bar: f64,
    rounds: usize,
    what: &'static str,
}

/// A row that could not be measured here.
#[derive(Debug, Serialize)]
struct Skipped {
    name: &'static str,
    why: String,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    isolation: &'static str,
    rows: Vec<Line>,
    skipped: Vec<Skipped>,
}

impl Report {
    pub fn new(turns: &[Turns]) -> Self {
        let line = |turns: &Turns| {
            let pairs = turns.guest.iter().zip(&turns.host);
            let ratios: Vec<f64> = pairs.map(|(guest, host)| guest / host).collect();
            Line {
                name: turns.row.name,
                guest_ns: stats::median(&turns.guest),
                host_ns: stats::median(&turns.host),
                ratio: stats::median(&ratios),
                ci95: stats::interval(&ratios),
                bar: turns.row.bar,
                rounds: ratios.len(),
                what: turns.row.text,
            }
        };
        let skip = |turns: &Turns| {
            turns.skipped.clone().map(|why| Skipped {
                name: turns.row.name,
                why,
            })
        };
        Report {
            isolation: "vm",
            rows: turns.iter().filter(|t| t.skipped.is_none()).map(line).collect(),
            skipped: turns.iter().filter_map(skip).collect(),
        }
    }

    pub fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    pub fn markdown(&self) -> String {
        let mut out = String::from(
            "| row | guest, ns | host, ns | ratio | 95 % | bar | an operation |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | --- |\n",
        );
        for line in &self.rows {
            let [low, high] = line.ci95;
            let decimals = |value: f64| usize::from(value < 100.0);
            let _ = writeln!(
                out,
                "| {} | {:.*} | {:.*} | {:.2} | {low:.2} to {high:.2} | {} | {} |",
                line.name,
                decimals(line.guest_ns),
                line.guest_ns,
                decimals(line.host_ns),
                line.host_ns,
                line.ratio,
                line.bar,
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
        let mut turns: Vec<Turns> = ROWS.iter().take(2).map(Turns::new).collect();
        for (guest, host) in [(20.0, 100.0), (30.0, 100.0), (400.0, 1000.0)] {
            turns[0].add(guest, host);
        }
        turns[1].skipped = Some("nothing to write to".to_string());
        let report = Report::new(&turns);
        let table = report.markdown();
        let line = "| getppid | 30.0 | 100 | 0.30 | 0.20 to 0.40 | 1 | getppid |\n";
        assert!(table.contains(line), "{table}");
        assert!(
            table.contains("write was not measured: nothing to write to."),
            "{table}"
        );
        let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(1));
        assert_eq!(json["skipped"][0]["name"], "write");
    }
}
