// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of `bench block`.

use super::super::plot::Bar;
use super::super::stats::{interval, median};
use super::super::turns::Table;
use super::fio::{Unit, WORKLOADS, Workload};
use super::measure::{Route, Turn};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The paths that the others are compared with.
const BASES: [&str; 3] = ["host", "virtio-blk", "vbusd-pread"];
/// The workloads whose CPU time is a figure of its own.
const STREAMS: [&str; 2] = ["read", "write"];
/// That figure.
const CPU: &str = "cpu_s_per_gb";
/// The workload whose times the row has, too.
const FIRST: &str = "read4k_qd1";

/// The turns of one path.
#[derive(Debug)]
pub struct Row {
    path: &'static str,
    direct: bool,
    turns: Vec<Turn>,
}

impl Row {
    pub fn new(route: &Route) -> Self {
        Row {
            path: route.name,
            direct: route.direct(),
            turns: Vec::new(),
        }
    }

    pub fn add(&mut self, turn: Turn) {
        self.turns.push(turn);
    }

    /// Whether it has a turn.
    pub fn is_measured(&self) -> bool {
        !self.turns.is_empty()
    }

    fn median(&self, figure: impl Fn(&Turn) -> f64) -> f64 {
        median(&self.turns.iter().map(figure).collect::<Vec<_>>())
    }

    /// The ratios to another row's figures, round by round.
    fn ratio(&self, base: &Row, figure: impl Fn(&Turn) -> f64) -> Ratio {
        let pairs = self.turns.iter().zip(&base.turns);
        let all: Vec<f64> = pairs
            .map(|(own, base)| figure(own) / figure(base))
            .collect();
        Ratio {
            median: median(&all),
            ci95: interval(&all),
        }
    }

    /// What is published of it.
    fn figures(&self) -> Figures {
        let workloads: Vec<WorkloadFigures> = (0..WORKLOADS.len())
            .map(|index| self.workload(index))
            .collect();
        let rates = (0..WORKLOADS.len())
            .map(|index| (WORKLOADS[index].figure, self.median(|t| rate(t, index))))
            .collect();
        let first = workloads.iter().find(|one| one.name == FIRST);
        Figures {
            path: self.path,
            direct: self.direct,
            rates,
            read4k_us: first.map_or(f64::NAN, |one| one.median_us),
            read4k_p99_us: first.map_or(f64::NAN, |one| one.p99_us),
            cpu_s_per_gb: self.median(streams_cpu),
            rounds: self.turns.len(),
            workloads,
        }
    }

    fn workload(&self, index: usize) -> WorkloadFigures {
        WorkloadFigures {
            name: WORKLOADS[index].name,
            requests_s: self.median(|turn| turn[index].fio.requests),
            mb_s: self.median(|turn| turn[index].fio.mb),
            mean_us: self.median(|turn| turn[index].fio.mean),
            median_us: self.median(|turn| turn[index].fio.median),
            p99_us: self.median(|turn| turn[index].fio.p99),
            cpu_s_per_gb: self.median(|turn| turn[index].cpu_for_gb()),
        }
    }
}

/// The rate of a workload, in its unit.
fn rate(turn: &Turn, index: usize) -> f64 {
    match WORKLOADS[index].unit {
        Unit::Requests => turn[index].fio.requests,
        Unit::Megabytes => turn[index].fio.mb,
    }
}

/// CPU seconds for each 10^9 bytes of both streams.
fn streams_cpu(turn: &Turn) -> f64 {
    let streams = WORKLOADS.iter().zip(turn);
    let streams = streams.filter(|(workload, _)| STREAMS.contains(&workload.name));
    let (cpu, bytes) = streams.fold((0.0, 0.0), |(cpu, bytes), (_, one)| {
        (cpu + one.cpu, bytes + one.fio.bytes)
    });
    cpu * 1e9 / bytes
}

/// The median of ratios, with its 95 % interval.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratio {
    median: f64,
    ci95: [f64; 2],
}

/// A published row: medians of the turns.
#[derive(Debug, Serialize)]
struct Figures {
    path: &'static str,
    /// Whether fio opened the file or disk with O_DIRECT.
    direct: bool,
    /// Of each workload, by the name of its figure.
    #[serde(flatten)]
    rates: BTreeMap<&'static str, f64>,
    read4k_us: f64,
    read4k_p99_us: f64,
    cpu_s_per_gb: f64,
    rounds: usize,
    workloads: Vec<WorkloadFigures>,
}

/// All figures of a workload.
#[derive(Debug, Serialize)]
struct WorkloadFigures {
    name: &'static str,
    requests_s: f64,
    mb_s: f64,
    mean_us: f64,
    median_us: f64,
    p99_us: f64,
    cpu_s_per_gb: f64,
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
        let mut ratios = Vec::new();
        let mut compare = |figure, of: &dyn Fn(&Turn) -> f64| {
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
        };
        for (index, workload) in WORKLOADS.iter().enumerate() {
            compare(workload.figure, &|turn| rate(turn, index));
        }
        compare(CPU, &streams_cpu);
        Report {
            rows: rows.iter().map(Row::figures).collect(),
            ratios,
        }
    }

    /// A bar for each ratio to the host but that of CPU time.
    pub fn bars(&self) -> Vec<Bar> {
        let to_host = |ratio: &&Comparison| ratio.to == BASES[0] && ratio.figure != CPU;
        let bar = |ratio: &Comparison| Bar {
            label: format!("{}, {}", ratio.path, ratio.figure),
            own: ratio.path == "vblk",
            value: ratio.ratio.median,
            low: ratio.ratio.ci95[0],
            high: ratio.ratio.ci95[1],
        };
        self.ratios.iter().filter(to_host).map(bar).collect()
    }

    /// The bases that are measured.
    fn bases(&self) -> impl Iterator<Item = &'static str> {
        let measured = |base: &&str| self.rows.iter().any(|row| row.path == *base);
        BASES.into_iter().filter(measured)
    }

    /// The cells with the ratios of a figure of a path.
    fn compared(&self, figure: &str, path: &str) -> String {
        let mut cells = String::new();
        for base in self.bases() {
            let is_it = |one: &&Comparison| (one.figure, one.path, one.to) == (figure, path, base);
            let _ = match self.ratios.iter().find(is_it).map(|one| one.ratio) {
                Some(Ratio {
                    median,
                    ci95: [low, high],
                }) => write!(cells, " {median:.2} ({low:.2} to {high:.2}) |"),
                None => write!(cells, " - |"),
            };
        }
        cells
    }
}

impl Table for Report {
    fn markdown(&self) -> String {
        let mut text = String::from("| workload | path | rate | mean, us | p99, us | CPU, s/GB |");
        let mut line = String::from("| --- | --- | ---: | ---: | ---: | ---: |");
        for base in self.bases() {
            let _ = write!(text, " rate / {base} (95 %) |");
            line += " ---: |";
        }
        text = format!("{text}\n{line}\n");
        for (index, workload) in WORKLOADS.iter().enumerate() {
            for row in &self.rows {
                let Workload { about, figure, .. } = workload;
                let Some(found) = row.workloads.get(index) else {
                    continue;
                };
                let rate = match workload.unit {
                    Unit::Requests => format!("{:.0}/s", found.requests_s),
                    Unit::Megabytes => format!("{:.0} MB/s", found.mb_s),
                };
                let _ = writeln!(
                    text,
                    "| {about} | {} | {rate} | {:.1} | {:.1} | {:.2} |{}",
                    row.path,
                    found.mean_us,
                    found.p99_us,
                    found.cpu_s_per_gb,
                    self.compared(figure, row.path)
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::fio;
    use super::super::measure::{Measured, ROUTES};
    use super::*;

    /// A turn in which everything goes at this speed.
    fn turn(speed: f64) -> Turn {
        let one = Measured {
            fio: fio::Figures {
                requests: speed,
                bytes: 1e9,
                mb: speed * 2.0,
                mean: 1.5,
                median: 1.0,
                p99: 7.0,
            },
            cpu: 1.0 / speed,
        };
        [one; WORKLOADS.len()]
    }

    fn report() -> Report {
        let speeds = [[100.0, 200.0], [50.0, 100.0], [60.0, 120.0]];
        let rows = ROUTES.iter().zip(speeds).map(|(route, speeds)| {
            let mut row = Row::new(route);
            speeds.into_iter().for_each(|speed| row.add(turn(speed)));
            row
        });
        Report::new(&rows.collect::<Vec<_>>())
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let report = report();
        let found = |figure, to| {
            let mut all = report.ratios.iter();
            let found = all.find(|r| r.figure == figure && r.path == "vblk" && r.to == to);
            found.unwrap().ratio.median
        };
        assert!((found("read4k_qd1_s", "host") - 0.6).abs() < 1e-9);
        assert!((found("write_mb_s", "virtio-blk") - 1.2).abs() < 1e-9);
        assert!((found("durable4k_s", "virtio-blk") - 1.2).abs() < 1e-9);
        assert!((found("cpu_s_per_gb", "virtio-blk") - 1.0 / 1.2).abs() < 1e-9);
        assert_eq!(report.bars().len(), 2 * WORKLOADS.len());
        let table = report.markdown();
        assert!(
            table.starts_with(
                "| workload | path | rate | mean, us | p99, us | CPU, s/GB | rate / host (95 %) | \
                 rate / virtio-blk (95 %) |\n"
            ),
            "{table}"
        );
        for line in [
            "| random reads of 4 KiB, 1 at a time | host | 150/s | 1.5 | 7.0 | 0.01 | - | - |\n",
            "| writing in order, 256 KiB, 4 at a time | vblk | 180 MB/s | 1.5 | 7.0 | 0.01 | \
             0.60 (0.60 to 0.60) | 1.20 (1.20 to 1.20) |\n",
        ] {
            assert!(table.contains(line), "{table}");
        }
    }

    #[test]
    fn a_row_has_the_names_that_it_always_had() {
        let json = serde_json::to_value(report()).unwrap();
        let vblk = &json["rows"][2];
        for (field, value) in [
            ("read4k_qd1_s", 90.0),
            ("read4k_us", 1.0),
            ("read4k_p99_us", 7.0),
            ("read4k_qd16_s", 90.0),
            ("read_mb_s", 180.0),
            ("write_mb_s", 180.0),
        ] {
            assert_eq!(vblk[field], value, "{field}");
        }
        let cpu = vblk["cpu_s_per_gb"].as_f64().unwrap();
        assert!((cpu - (1.0 / 60.0 + 1.0 / 120.0) / 2.0).abs() < 1e-9);
        assert_eq!(
            (&vblk["rounds"], &vblk["direct"]),
            (&2.into(), &true.into())
        );
        assert_eq!(json["rows"][0]["direct"], false);
        assert_eq!(vblk["workloads"][4]["name"], "durable4k");
        assert_eq!(vblk["workloads"][4]["mean_us"], 1.5);
    }
}
