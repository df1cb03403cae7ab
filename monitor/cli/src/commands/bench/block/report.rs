// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of `bench block`.

use super::super::plot::Bar;
use super::super::stats::{interval, median};
use super::measure::Turn;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write as _};

/// The paths that the others are compared with.
pub const BASES: [&str; 3] = ["host", "virtio-blk", "vbusd-pread"];
/// The ratios of the table, where both paths are measured.
const SHOWN: [(&str, &str); 4] = [
    ("vblk", BASES[0]),
    ("vblk", BASES[1]),
    ("vbusd-uring", BASES[2]),
    ("vbusd-auto", BASES[2]),
];

/// A figure of a turn.
type Figure = fn(&Turn) -> f64;

/// Figures whose ratios are published: name, and its words in the table.
const FIGURES: [(&str, &str, Figure); 5] = [
    (
        "read4k_qd1_s",
        "random reads of 4 KiB, 1 at a time, 1/s",
        |t| t.one,
    ),
    (
        "read4k_qd16_s",
        "random reads of 4 KiB, 16 at a time, 1/s",
        |t| t.many,
    ),
    ("read_mb_s", "reading in order, MB/s", |t| t.read),
    ("write_mb_s", "writing in order, MB/s", |t| t.write),
    ("cpu_s_per_gb", "CPU of the last two, s/GB", |t| t.cpu),
];

/// The turns of one path.
#[derive(Debug)]
pub struct Row {
    path: &'static str,
    turns: Vec<Turn>,
}

impl Row {
    pub fn new(path: &'static str) -> Self {
        Row {
            path,
            turns: Vec::new(),
        }
    }

    pub fn add(&mut self, turn: Turn) {
        self.turns.push(turn);
    }

    fn median(&self, figure: Figure) -> f64 {
        median(&self.turns.iter().map(figure).collect::<Vec<_>>())
    }

    /// The ratios to another row's figures, round by round.
    fn ratio(&self, base: &Row, figure: Figure) -> Ratio {
        let pairs = self.turns.iter().zip(&base.turns);
        let all: Vec<f64> = pairs
            .map(|(own, base)| figure(own) / figure(base))
            .collect();
        Ratio {
            median: median(&all),
            ci95: interval(&all),
        }
    }
}

/// The median of ratios, with its 95 % interval.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratio {
    median: f64,
    ci95: [f64; 2],
}

/// A published row.
#[derive(Debug, Serialize)]
struct Figures {
    path: &'static str,
    read4k_qd1_s: f64,
    read4k_us: f64,
    read4k_p99_us: f64,
    read4k_qd16_s: f64,
    read_mb_s: f64,
    write_mb_s: f64,
    cpu_s_per_gb: f64,
    rounds: usize,
}

/// A figure of a path beside that of another path in the same round.
#[derive(Debug, Serialize)]
struct Comparison {
    figure: &'static str,
    path: &'static str,
    to: &'static str,
    #[serde(flatten)]
    ratio: Ratio,
}

/// All rows.
#[derive(Debug, Serialize)]
pub struct Report {
    rows: Vec<Figures>,
    ratios: Vec<Comparison>,
}

impl Report {
    pub fn new(rows: &[Row]) -> Self {
        let figures = |row: &Row| Figures {
            path: row.path,
            read4k_qd1_s: row.median(|turn| turn.one),
            read4k_us: row.median(|turn| turn.us),
            read4k_p99_us: row.median(|turn| turn.p99),
            read4k_qd16_s: row.median(|turn| turn.many),
            read_mb_s: row.median(|turn| turn.read),
            write_mb_s: row.median(|turn| turn.write),
            cpu_s_per_gb: row.median(|turn| turn.cpu),
            rounds: row.turns.len(),
        };
        let mut ratios = Vec::new();
        for (figure, _, of) in FIGURES {
            for (index, row) in rows.iter().enumerate() {
                // Each with those before it.
                for base in rows.iter().take(index) {
                    if BASES.contains(&base.path) {
                        ratios.push(Comparison {
                            figure,
                            path: row.path,
                            to: base.path,
                            ratio: row.ratio(base, of),
                        });
                    }
                }
            }
        }
        Report {
            rows: rows.iter().map(figures).collect(),
            ratios,
        }
    }

    /// A bar for each ratio to the host but that of CPU time.
    pub fn bars(&self) -> Vec<Bar> {
        let to_host = |ratio: &&Comparison| ratio.to == BASES[0] && ratio.figure != "cpu_s_per_gb";
        let bar = |ratio: &Comparison| Bar {
            label: format!("{}, {}", ratio.path, ratio.figure),
            own: ratio.path == "vblk",
            value: ratio.ratio.median,
            low: ratio.ratio.ci95[0],
            high: ratio.ratio.ci95[1],
        };
        self.ratios.iter().filter(to_host).map(bar).collect()
    }

    fn value(row: &Figures, figure: &str) -> f64 {
        match figure {
            "read4k_qd1_s" => row.read4k_qd1_s,
            "read4k_qd16_s" => row.read4k_qd16_s,
            "read_mb_s" => row.read_mb_s,
            "write_mb_s" => row.write_mb_s,
            _ => row.cpu_s_per_gb,
        }
    }

    fn markdown(&self) -> String {
        let mut text = String::from("|");
        let mut line = String::from("\n| ---");
        for row in &self.rows {
            let _ = write!(text, " | {}", row.path);
            line += " | ---:";
        }
        let has = |path: &str| self.rows.iter().any(|row| row.path == path);
        let shown = SHOWN.iter().filter(|(path, base)| has(path) && has(base));
        let shown: Vec<_> = shown.collect();
        for (path, base) in &shown {
            let _ = write!(text, " | {path} / {base} (95 %)");
            line += " | ---:";
        }
        text = format!("{text} |{line} |\n");
        for (figure, words, _) in FIGURES {
            let _ = write!(text, "| {words}");
            for row in &self.rows {
                let value = Self::value(row, figure);
                let digits = if value < 100.0 { 2 } else { 0 };
                let _ = write!(text, " | {value:.digits$}");
            }
            for (path, base) in &shown {
                let found = self
                    .ratios
                    .iter()
                    .find(|r| r.figure == figure && r.path == *path && r.to == *base);
                let _ = match found.map(|found| found.ratio) {
                    Some(Ratio {
                        median,
                        ci95: [low, high],
                    }) => write!(text, " | {median:.2} ({low:.2} to {high:.2})"),
                    None => write!(text, " | -"),
                };
            }
            text += " |\n";
        }
        text
    }

    /// Prints the table, or JSON.
    pub fn show(&self, json: bool) -> anyhow::Result<()> {
        let text = if json {
            serde_json::to_string_pretty(self)? + "\n"
        } else {
            self.markdown()
        };
        Ok(write!(io::stdout(), "{text}")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_round() {
        let turn = |speed: f64| Turn {
            one: speed,
            many: speed * 2.0,
            us: 1.0,
            p99: 1.0,
            read: speed,
            write: speed,
            cpu: 1.0 / speed,
        };
        let mut rows = Vec::new();
        for (path, turns) in [
            ("host", [100.0, 200.0]),
            ("virtio-blk", [50.0, 100.0]),
            ("vblk", [60.0, 120.0]),
        ] {
            let mut row = Row::new(path);
            turns.into_iter().for_each(|speed| row.add(turn(speed)));
            rows.push(row);
        }
        let report = Report::new(&rows);
        let found = |figure, to| {
            let mut all = report.ratios.iter();
            let found = all.find(|r| r.figure == figure && r.path == "vblk" && r.to == to);
            found.unwrap().ratio.median
        };
        assert!((found("read4k_qd1_s", "host") - 0.6).abs() < 1e-9);
        assert!((found("write_mb_s", "virtio-blk") - 1.2).abs() < 1e-9);
        assert!((found("cpu_s_per_gb", "virtio-blk") - 1.0 / 1.2).abs() < 1e-9);
        assert_eq!(report.bars().len(), 8);
        let table = report.markdown();
        assert!(
            table.starts_with(
                "| | host | virtio-blk | vblk | vblk / host (95 %) | vblk / virtio-blk (95 %) |\n"
            ),
            "{table}"
        );
        assert!(
            table.contains("| 150 | 75.00 | 90.00 | 0.60 (0.60 to 0.60) | 1.20 (1.20 to 1.20) |"),
            "{table}"
        );
    }
}
