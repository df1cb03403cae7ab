// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of `bench net`.

use super::super::plot::Bar;
use super::super::stats::{interval, median};
use super::measure::Turn;
use super::paths::{APART, BASE, SAME_NETWORK};
use super::promises::{self, Promise};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write as _};

/// The turns of one path with one MTU.
#[derive(Debug)]
pub struct Row {
    pub path: &'static str,
    pub mtu: u32,
    turns: Vec<Turn>,
}

impl Row {
    pub fn new(path: &'static str, mtu: u32) -> Self {
        Row {
            path,
            mtu,
            turns: Vec::new(),
        }
    }

    pub fn add(&mut self, turn: Turn) {
        self.turns.push(turn);
    }

    fn values(&self, figure: fn(&Turn) -> f64) -> Vec<f64> {
        self.turns.iter().map(figure).collect()
    }

    fn median(&self, figure: fn(&Turn) -> f64) -> f64 {
        median(&self.values(figure))
    }

    /// The ratios to another row's figures, round by round.
    pub fn ratios(&self, base: &Row, figure: fn(&Turn) -> f64) -> Vec<f64> {
        let pairs = self.turns.iter().zip(&base.turns);
        pairs
            .map(|(own, base)| figure(own) / figure(base))
            .collect()
    }
}

/// A published row.
#[derive(Debug, Serialize)]
struct Figures {
    path: &'static str,
    mtu: u32,
    /// Mbit/s to the server, and from it.
    tput_mbps: f64,
    tput_receive_mbps: f64,
    /// Round trips one after the other, each second.
    requests_s: f64,
    rtt_us: f64,
    rtt_p99_us: f64,
    cpu_s_per_gb: f64,
    /// Medians of the ratios to the host's row in the same round, with 95 % intervals.
    rtt_ratio: f64,
    rtt_ratio_ci95: [f64; 2],
    tput_ratio: f64,
    tput_ratio_ci95: [f64; 2],
    rounds: usize,
}

/// A path beside another one that was measured in the same rounds: medians of the ratios of its
/// figures, with 95 % intervals.
#[derive(Debug, Serialize)]
struct Comparison {
    path: &'static str,
    with: &'static str,
    mtu: u32,
    rtt_ratio: f64,
    rtt_ratio_ci95: [f64; 2],
    /// To the server, and from it.
    tput_ratio: f64,
    tput_ratio_ci95: [f64; 2],
    tput_receive_ratio: f64,
    tput_receive_ratio_ci95: [f64; 2],
}

impl Comparison {
    fn new(row: &Row, with: &Row) -> Self {
        let trips = row.ratios(with, |turn| turn.trip);
        let sends = row.ratios(with, |turn| turn.send);
        let receives = row.ratios(with, |turn| turn.receive);
        Comparison {
            path: row.path,
            with: with.path,
            mtu: row.mtu,
            rtt_ratio: median(&trips),
            rtt_ratio_ci95: interval(&trips),
            tput_ratio: median(&sends),
            tput_ratio_ci95: interval(&sends),
            tput_receive_ratio: median(&receives),
            tput_receive_ratio_ci95: interval(&receives),
        }
    }

    /// All that are of interest: with programs that have a processor each, and of a path over a
    /// virtual bus with that over virtio.
    fn all(rows: &[Row]) -> Vec<Self> {
        let mut all = Vec::new();
        for row in rows {
            let same = SAME_NETWORK.iter().find(|(venet, _)| *venet == row.path);
            let apart = Some(APART).filter(|&apart| apart != row.path);
            for with in apart.into_iter().chain(same.map(|&(_, virtio)| virtio)) {
                let with = rows.iter().find(|r| r.path == with && r.mtu == row.mtu);
                all.extend(with.map(|with| Comparison::new(row, with)));
            }
        }
        all
    }
}

/// All rows.
#[derive(Debug, Serialize)]
pub struct Report {
    rows: Vec<Figures>,
    comparisons: Vec<Comparison>,
    promises: Vec<Promise>,
}

impl Report {
    /// Of these rows, measured over a link with this rate in Mbit/s, if it has one.
    pub fn new(rows: &[Row], rate: Option<u32>) -> Self {
        let figures = |row: &Row| {
            let base = rows.iter().find(|b| b.path == BASE && b.mtu == row.mtu)?;
            let trips = row.ratios(base, |turn| turn.trip);
            // The slower direction counts.
            let rates = row.ratios(base, |turn| turn.send.min(turn.receive));
            Some(Figures {
                path: row.path,
                mtu: row.mtu,
                tput_mbps: row.median(|turn| turn.send),
                tput_receive_mbps: row.median(|turn| turn.receive),
                requests_s: row.median(|turn| 1e6 / turn.trip_mean),
                rtt_us: row.median(|turn| turn.trip),
                rtt_p99_us: row.median(|turn| turn.trip_p99),
                cpu_s_per_gb: row.median(|turn| turn.cpu),
                rtt_ratio: median(&trips),
                rtt_ratio_ci95: interval(&trips),
                tput_ratio: median(&rates),
                tput_ratio_ci95: interval(&rates),
                rounds: row.turns.len(),
            })
        };
        Report {
            rows: rows.iter().filter_map(figures).collect(),
            comparisons: Comparison::all(rows),
            promises: Promise::all(rows, rate),
        }
    }

    /// What the rows miss of their bars.
    pub fn missed(&self) -> Vec<String> {
        self.promises.iter().filter_map(Promise::missed).collect()
    }

    /// A bar for each ratio of round trips.
    pub fn bars(&self) -> Vec<Bar> {
        let bar = |row: &Figures| Bar {
            label: format!("{}, MTU {}", row.path, row.mtu),
            own: row.path.starts_with("venet"),
            value: row.rtt_ratio,
            low: row.rtt_ratio_ci95[0],
            high: row.rtt_ratio_ci95[1],
        };
        self.rows.iter().map(bar).collect()
    }

    fn markdown(&self) -> String {
        let mut text = String::from(
            "| path | MTU | round trip, us | p99, us | ratio (95 %) | to server, Mbit/s | \
             from server, Mbit/s | ratio (95 %) | CPU s/GB |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        for row in &self.rows {
            let ([low, high], [slow, fast]) = (row.rtt_ratio_ci95, row.tput_ratio_ci95);
            let _ = writeln!(
                text,
                "| {} | {} | {:.1} | {:.1} | {:.2} ({low:.2} to {high:.2}) | {:.0} | {:.0} | \
                 {:.2} ({slow:.2} to {fast:.2}) | {:.2} |",
                row.path,
                row.mtu,
                row.rtt_us,
                row.rtt_p99_us,
                row.rtt_ratio,
                row.tput_mbps,
                row.tput_receive_mbps,
                row.tput_ratio,
                row.cpu_s_per_gb
            );
        }
        if !self.comparisons.is_empty() {
            text += "\n| path | beside | MTU | round trip (95 %) | to server (95 %) | \
                     from server (95 %) |\n| --- | --- | ---: | ---: | ---: | ---: |\n";
        }
        for row in &self.comparisons {
            let ratio =
                |middle, [low, high]: [f64; 2]| format!("{middle:.2} ({low:.2} to {high:.2})");
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                row.path,
                row.with,
                row.mtu,
                ratio(row.rtt_ratio, row.rtt_ratio_ci95),
                ratio(row.tput_ratio, row.tput_ratio_ci95),
                ratio(row.tput_receive_ratio, row.tput_receive_ratio_ci95)
            );
        }
        if !self.promises.is_empty() {
            text += "\n";
            text += promises::HEAD;
        }
        for promise in &self.promises {
            text += &promise.markdown();
            text.push('\n');
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

    fn turn(trip: f64, send: f64, receive: f64) -> Turn {
        Turn {
            trip,
            trip_p99: trip * 2.0,
            trip_mean: trip,
            send,
            receive,
            cpu: 1.0,
        }
    }

    #[test]
    fn ratios_are_of_the_same_round_and_mtu() {
        let mut rows = Vec::new();
        for (path, mtu, turns) in [
            (
                "host",
                1500,
                [turn(10.0, 100.0, 200.0), turn(20.0, 50.0, 100.0)],
            ),
            (
                "host-apart",
                1500,
                [turn(24.0, 100.0, 100.0), turn(24.0, 50.0, 50.0)],
            ),
            (
                "virtio-net",
                1500,
                [turn(24.0, 50.0, 90.0), turn(24.0, 50.0, 90.0)],
            ),
            (
                "venet",
                1500,
                [turn(12.0, 100.0, 90.0), turn(24.0, 50.0, 45.0)],
            ),
            (
                "host",
                9000,
                [turn(10.0, 100.0, 100.0), turn(10.0, 100.0, 100.0)],
            ),
        ] {
            let mut row = Row::new(path, mtu);
            turns.into_iter().for_each(|turn| row.add(turn));
            rows.push(row);
        }
        let report = Report::new(&rows, None);
        let venet = &report.rows[3];
        assert!((venet.rtt_ratio - 1.2).abs() < 1e-9);
        assert!((venet.tput_ratio - 0.9).abs() < 1e-9);
        assert_eq!(report.bars().len(), 5);
        assert!(report.bars()[3].own && !report.bars()[0].own);
        assert!(
            report
                .markdown()
                .contains("| venet | 1500 | 18.0 | 36.0 | 1.20 (1.20 to 1.20)")
        );
        // Beside programs with a processor each, and beside virtio, where there are such rows.
        let pairs: Vec<_> = report
            .comparisons
            .iter()
            .map(|c| (c.path, c.with))
            .collect();
        let expected = [
            ("host", "host-apart"),
            ("virtio-net", "host-apart"),
            ("venet", "host-apart"),
            ("venet", "virtio-net"),
        ];
        assert_eq!(pairs, expected);
        let text = report.markdown();
        let line = "| venet | virtio-net | 1500 | 0.75 (0.50 to 1.00) | 1.50 (1.00 to 2.00) | \
                    0.75 (0.50 to 1.00) |";
        assert!(text.contains(line), "{text}");
    }
}
