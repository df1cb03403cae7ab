// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table.

use super::kinds::{Counts, KINDS};
use super::rows::Row;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    unit: &'static str,
    vcpus: usize,
    /// Processors of the host that could be used.
    processors: usize,
    rows: Vec<Column>,
}

/// A row with one layer: the round that has the median of all exits.
#[derive(Debug, Serialize)]
pub struct Column {
    row: &'static str,
    what: &'static str,
    layer: &'static str,
    operations: u64,
    rounds: usize,
    /// Exits for an operation.
    total: f64,
    /// Of the round with the fewest.
    least: f64,
    /// Without those that the host causes: the fewest of a round, the median, the most.
    guest: [f64; 3],
    kinds: BTreeMap<&'static str, f64>,
    /// Of all operations of the round.
    reasons: BTreeMap<String, u64>,
    hypercalls: BTreeMap<u64, u64>,
}

impl Column {
    /// From its rounds.
    pub fn new(
        row: &'static Row,
        layer: &'static str,
        operations: u64,
        mut rounds: Vec<Counts>,
    ) -> Self {
        rounds.sort_by_key(Counts::total);
        let median = rounds.get(rounds.len() / 2).cloned().unwrap_or_default();
        let least = rounds.first().map_or(0, Counts::total);
        let mut guest: Vec<u64> = rounds.iter().map(Counts::by_guest).collect();
        guest.sort_unstable();
        let at = |index: usize| guest.get(index).copied().unwrap_or_default();
        let guest = [
            at(0),
            at(guest.len() / 2),
            at(guest.len().saturating_sub(1)),
        ];
        let each = |count| each(count, operations);
        Column {
            row: row.name,
            what: row.what,
            layer,
            operations,
            rounds: rounds.len(),
            total: each(median.total()),
            least: each(least),
            guest: guest.map(each),
            kinds: KINDS
                .iter()
                .zip(median.kinds)
                .map(|((name, _), count)| (*name, each(count)))
                .collect(),
            reasons: median.reasons,
            hypercalls: median.hypercalls,
        }
    }
}

#[allow(clippy::cast_precision_loss)] // counts of a few seconds
fn each(count: u64, operations: u64) -> f64 {
    count as f64 / operations as f64
}

impl Report {
    pub fn new(processors: usize) -> Self {
        Report {
            unit: "exits for an operation",
            vcpus: super::VCPUS,
            processors,
            rows: Vec::new(),
        }
    }

    pub fn add(&mut self, column: Column) {
        self.rows.push(column);
    }

    /// For each row a line of all exits, and one for each kind that there is.
    pub fn markdown(&self) -> String {
        let mut layers: Vec<&str> = Vec::new();
        let mut names: Vec<&Column> = Vec::new();
        for column in &self.rows {
            if !layers.contains(&column.layer) {
                layers.push(column.layer);
            }
            if names.iter().all(|row| row.row != column.row) {
                names.push(column);
            }
        }
        let mut out = format!("| row | exits | {} | an operation |\n", layers.join(" | "));
        let _ = writeln!(out, "| --- | --- |{} --- |", " ---: |".repeat(layers.len()));
        for row in names {
            let of_row = |layer: &str| {
                let mut columns = self.rows.iter();
                columns.find(|column| column.row == row.row && column.layer == layer)
            };
            let line = |name: &str, kind: &str, what: &str, value: &dyn Fn(&Column) -> f64| {
                let values: Vec<String> = layers
                    .iter()
                    .map(|layer| of_row(layer).map_or("-".to_string(), |row| figure(value(row))))
                    .collect();
                if kind != ALL && values.iter().all(|value| value == "0" || value == "-") {
                    return String::new();
                }
                format!("| {name} | {kind} | {} | {what} |\n", values.join(" | "))
            };
            out += &line(row.row, ALL, row.what, &|column| column.total);
            for (kind, what) in KINDS {
                out += &line("", kind, what, &|column| {
                    column.kinds.get(kind).copied().unwrap_or_default()
                });
            }
        }
        out
    }
}

const ALL: &str = "all";

fn figure(value: f64) -> String {
    let text = match value {
        100.0.. => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    };
    match text.trim_end_matches('0').trim_end_matches('.') {
        _ if value >= 100.0 => text,
        "" => "0".to_string(),
        short => short.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    fn counts(eoi: u64, rest: u64) -> Counts {
        let mut counts = Counts::default();
        counts.kinds[0] = eoi;
        counts.kinds[KINDS.len() - 1] = rest;
        counts
    }

    #[test]
    fn figures_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.001, "0"),
            (2.0, "2"),
            (0.5, "0.5"),
            (10.0, "10"),
            (1234.4, "1234"),
            (200.0, "200"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn the_table_has_the_median_round_and_its_kinds() {
        let mut report = Report::new(2);
        let rounds = vec![counts(40, 0), counts(10, 2), counts(0, 100)];
        report.add(Column::new(&ROWS[4], "native", 10, rounds));
        report.add(Column::new(&ROWS[4], "kvm", 10, vec![counts(0, 2)]));
        let table = report.markdown();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "| row | exits | native | kvm | an operation |");
        assert!(lines[2].starts_with("| pipe | all | 4 | 0.2 |"), "{table}");
        assert_eq!(lines[3], "|  | eoi | 4 | 0 | ends of interrupts |");
        assert_eq!(lines[4], "|  | rest | 0 | 0.2 | all others |");
        assert!((report.rows[0].least - 1.2).abs() < 1e-9);
    }

    #[test]
    fn what_the_host_causes_is_left_out() {
        let interrupt = KINDS.iter().position(|(kind, _)| *kind == "interrupt");
        let mut busy = counts(1, 1);
        busy.kinds[interrupt.unwrap()] = 1000;
        let rounds = vec![busy, counts(30, 0), counts(0, 10)];
        let column = Column::new(&ROWS[4], "kvm", 2, rounds);
        for (guest, expected) in column.guest.iter().zip([1.0, 5.0, 15.0]) {
            assert!((guest - expected).abs() < 1e-9, "{:?}", column.guest);
        }
    }
}
