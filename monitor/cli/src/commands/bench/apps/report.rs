// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result as a table and as JSON.

use super::super::bars::Verdict;
use super::super::stats;
use super::super::turns::{Pairs, Table};
use super::description::{App, Figure, Row};
use super::failure::Failure;
use super::means::{self, Mean};
use super::peers::System;
use super::plan::Group;
use super::views::{self, Line, View};
use crate::arguments::Place;
use paravane_user_io::text;
use serde::Serialize;
use std::fmt::Write;

/// The figures of a row in one place, with one number of vCPUs, on one system.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub name: String,
    pub system: &'static str,
    pub place: Place,
    pub vcpus: u32,
    /// The median of the host's figures.
    pub host: f64,
    /// The median of the guest's.
    pub guest: f64,
    pub unit: String,
    /// The guest's speed, where the host's is 1: the median of the ratios within each turn.
    pub ratio: f64,
    /// The ends of its 95 % interval.
    pub low: f64,
    pub high: f64,
    pub rounds: usize,
    /// The least speed that is promised, and whether it is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bar: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// For venet: the same with the figures over virtio-net in the place of the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_virtio_net: Option<[f64; 3]>,
    /// For a disk on the virtual bus: the same with those of virtio-blk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_virtio_blk: Option<[f64; 3]>,
    /// For a machine without a guess: the same with those of the machine that has all. Below 1 the
    /// guess gains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_all: Option<[f64; 3]>,
    /// For several vCPUs: the speed, divided by that with one vCPU in the same round. The bar is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_one_vcpu: Option<[f64; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_one_verdict: Option<Verdict>,
    /// The speed in each round.
    #[serde(skip)]
    pub speeds: Vec<f64>,
    #[serde(skip)]
    what: String,
    /// Whether it is a row's own figure, and not a further one of the same run.
    #[serde(skip)]
    pub own: bool,
    /// The application.
    #[serde(skip)]
    pub app: String,
}

impl Measured {
    /// `state` is part of the name.
    pub fn new(
        group: &Group<'_>,
        row: &Row,
        figure: &Figure,
        state: &str,
        system: System,
        pairs: &Pairs,
    ) -> Measured {
        let (guest, host) = pairs.medians();
        let speeds = speeds(pairs, figure.is_rate());
        let (ratio, [low, high]) = (stats::median(&speeds), stats::interval(&speeds));
        // What other systems do is no promise.
        let bar = row.bars.get(&group.place);
        let bar = bar.and_then(|bar| bar.of(group.vcpus, state));
        let bar = bar.filter(|_| figure.own && system == System::Paravane);
        Measured {
            name: format!("{}{state}", figure.name),
            system: system.name(),
            place: group.place,
            vcpus: group.vcpus,
            host,
            guest,
            unit: figure.unit.clone(),
            ratio,
            low,
            high,
            rounds: speeds.len(),
            bar,
            verdict: bar.map(|bar| Verdict::of_speed(ratio, [low, high], bar, speeds.len())),
            beside_virtio_net: None,
            beside_virtio_blk: None,
            beside_all: None,
            beside_one_vcpu: None,
            beside_one_verdict: None,
            speeds,
            what: figure.about.clone(),
            own: figure.own,
            app: group.app.name.clone(),
        }
    }

    /// Adds the comparison with the first system, for those that differ from it in one thing.
    pub fn beside(mut self, system: System, figure: &Figure, pairs: &Pairs) -> Measured {
        let speeds = speeds(pairs, figure.is_rate());
        let [low, high] = stats::interval(&speeds);
        let compared = (!speeds.is_empty()).then(|| [stats::median(&speeds), low, high]);
        match system {
            System::Venet => self.beside_virtio_net = compared,
            System::Vblk => self.beside_virtio_blk = compared,
            System::Without(_) => self.beside_all = compared,
            System::Paravane | System::Peer(_) => {}
        }
        self
    }

    /// Adds the comparison with the same row of one vCPU, measured in the same rounds.
    pub fn beside_one(&mut self, one: &Measured) {
        let both = self.speeds.iter().zip(&one.speeds);
        let speeds: Vec<f64> = both.map(|(several, one)| several / one).collect();
        if speeds.is_empty() {
            return;
        }
        let (median, interval) = (stats::median(&speeds), stats::interval(&speeds));
        self.beside_one_vcpu = Some([median, interval[0], interval[1]]);
        let verdict = Verdict::of_speed(median, interval, ONE_VCPU_BAR, speeds.len());
        self.beside_one_verdict = self.own.then_some(verdict);
    }

    /// Whether both are the same figure of the same system in the same place.
    pub fn is_like(&self, other: &Measured) -> bool {
        (&self.name, self.system, self.place) == (&other.name, other.system, other.place)
    }

    /// What it misses, in words.
    fn missed(&self) -> Vec<String> {
        let of = |words: &str, [ratio, low, high]: [f64; 3], bar: f64| {
            let vcpus = text::count(self.vcpus.try_into().unwrap_or_default(), "vCPU");
            format!(
                "{} ({}, {vcpus}){words}: {ratio:.2} ({low:.2} to {high:.2}), bar {bar}",
                self.name, self.place
            )
        };
        let is_missed = |verdict: Option<Verdict>| verdict == Some(Verdict::Missed);
        let bar = self.bar.filter(|_| is_missed(self.verdict));
        let one = self.beside_one_vcpu;
        let one = one.filter(|_| is_missed(self.beside_one_verdict));
        let missed = bar.map(|bar| of("", [self.ratio, self.low, self.high], bar));
        let one = one.map(|one| of(" beside one vCPU", one, ONE_VCPU_BAR));
        missed.into_iter().chain(one).collect()
    }

    /// The interval, for a table. One turn has none.
    pub fn interval(&self) -> String {
        match self.rounds {
            1 => "-".to_string(),
            _ => format!("{:.2} to {:.2}", self.low, self.high),
        }
    }
}

/// A machine with several vCPUs reaches at least what one with one vCPU reaches of the host.
const ONE_VCPU_BAR: f64 = 1.0;

/// The guest's speed in each turn, where the host's is 1.
fn speeds(pairs: &Pairs, rate: bool) -> Vec<f64> {
    let ratios = pairs.ratios().into_iter();
    if rate {
        ratios.collect()
    } else {
        ratios.map(|ratio| 1.0 / ratio).collect()
    }
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    pub rows: Vec<Measured>,
    means: Vec<Mean>,
    missing: Vec<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<Vec<Line>>,
}

impl Report {
    /// `apps` are all that there are.
    pub fn new(
        rows: Vec<Measured>,
        missing: Vec<Failure>,
        view: Option<&View>,
        apps: &[App],
    ) -> Self {
        Report {
            view: view.map(|view| view.lines(&rows)),
            means: means::of(&rows, apps),
            rows,
            missing,
        }
    }

    /// What rows miss of their bars.
    pub fn missed(&self) -> Vec<String> {
        let rows = self.rows.iter().flat_map(Measured::missed);
        rows.chain(self.means.iter().filter_map(Mean::missed))
            .collect()
    }
}

impl Table for Report {
    fn markdown(&self) -> String {
        let mut out = match &self.view {
            Some(lines) => views::markdown(lines),
            None => rows(&self.rows) + &means::markdown(&self.means),
        };
        for failure in &self.missing {
            let _ = writeln!(out, "\n{failure}");
        }
        out
    }
}

fn rows(all: &[Measured]) -> String {
    let mut out = "| row | system | place | vCPUs | host | guest | unit | speed | 95 % | \
        bar | met | what |\n\
        | --- | --- | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | --- | --- |\n"
        .to_string();
    for row in all {
        let bar = row.bar.map(|bar| bar.to_string()).unwrap_or_default();
        let verdict = row.verdict.map(|verdict| verdict.to_string());
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {:.2} | {} | {bar} | {} | {} |",
            row.name,
            row.system,
            row.place,
            row.vcpus,
            figure(row.host),
            figure(row.guest),
            row.unit,
            row.ratio,
            row.interval(),
            verdict.unwrap_or_default(),
            row.what
        );
    }
    for row in all {
        let compared = [
            ("virtio-net", row.beside_virtio_net),
            ("virtio-blk", row.beside_virtio_blk),
            ("all guesses", row.beside_all),
        ];
        for (with, compared) in compared {
            if let Some([ratio, low, high]) = compared {
                let _ = writeln!(
                    out,
                    "| {}, beside {with} | {} | {} | {} | | | | {ratio:.2} \
                     | {low:.2} to {high:.2} | | | |",
                    row.name, row.system, row.place, row.vcpus
                );
            }
        }
        if let Some([ratio, low, high]) = row.beside_one_vcpu {
            let verdict = row.beside_one_verdict.map(|verdict| verdict.to_string());
            let bar = verdict.as_ref().map(|_| ONE_VCPU_BAR.to_string());
            let _ = writeln!(
                out,
                "| {}, beside one vCPU | {} | {} | {} | | | | {ratio:.2} \
                 | {low:.2} to {high:.2} | {} | {} | |",
                row.name,
                row.system,
                row.place,
                row.vcpus,
                bar.unwrap_or_default(),
                verdict.unwrap_or_default()
            );
        }
    }
    out
}

/// Three significant digits at least.
fn figure(value: f64) -> String {
    let decimals = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::super::{description, guesses};
    use super::*;

    #[test]
    fn a_speed_is_better_when_it_is_larger() {
        let mut pairs = Pairs::default();
        pairs.add(200.0, 100.0);
        pairs.add(50.0, 100.0);
        assert_eq!(speeds(&pairs, true), [2.0, 0.5]);
        assert_eq!(speeds(&pairs, false), [0.5, 2.0]);
    }

    #[test]
    fn figures_are_short() {
        let all = [145_000.4, 63.04, 2.5, 0.1234, 0.00123].map(figure);
        assert_eq!(all, ["145000", "63.0", "2.50", "0.123", "0.0012"]);
    }

    /// A row of `python` with these figures of guest and host.
    fn python(group: &Group<'_>, turns: &[(f64, f64)]) -> Measured {
        let mut pairs = Pairs::default();
        turns
            .iter()
            .for_each(|&(guest, host)| pairs.add(guest, host));
        let row = group.rows[0];
        let figure = &row.figures()[0];
        Measured::new(group, row, figure, "", System::Paravane, &pairs)
    }

    #[test]
    fn a_bar_that_is_missed_is_told() {
        let apps = description::all().unwrap();
        let group = Group::of(&apps, "python", Place::Rootfs, 1);
        let fast = python(&group, &[(1.0, 1.0); 6]);
        let slow = python(&group, &[(2.0, 1.0); 6]);
        let few = python(&group, &[(2.0, 1.0); 2]);
        let elsewhere = Group::of(&apps, "python", Place::Disk, 1);
        let disk = python(&elsewhere, &[(2.0, 1.0); 6]);
        assert_eq!((disk.bar, disk.verdict), (None, None));
        let report = |rows: &[&Measured]| {
            let rows = rows.iter().map(|row| (*row).clone()).collect();
            Report::new(rows, vec![], None, &apps)
        };
        assert!(report(&[&fast, &few, &disk]).missed().is_empty());
        let missed = report(&[&fast, &slow]);
        assert_eq!(
            missed.missed(),
            ["python (rootfs, 1 vCPU): 0.50 (0.50 to 0.50), bar 0.85"]
        );
        let table = missed.markdown();
        for words in ["| 1.00 to 1.00 | 0.85 | met |", "| 0.85 | not met |"] {
            assert!(table.contains(words), "{table}");
        }
        let json = serde_json::to_value(&missed).unwrap();
        assert_eq!(json["rows"][0]["verdict"], "met");
    }

    #[test]
    fn a_machine_without_a_guess_is_compared_with_the_one_that_has_all() {
        let apps = description::all().unwrap();
        let group = Group::of(&apps, "python", Place::Rootfs, 1);
        let system = System::Without(guesses::chosen(&["populate".to_string()]).unwrap()[0]);
        let row = group.rows[0];
        let figure = &row.figures()[0];
        let mut pairs = Pairs::default();
        pairs.add(4.0, 2.0);
        let row = Measured::new(&group, row, figure, "", system, &pairs);
        assert_eq!(row.bar, None, "the promise is of a machine with all");
        let row = row.beside(system, figure, &pairs);
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(json["system"], "without populate");
        assert_eq!(json["beside_all"], serde_json::json!([0.5, 0.5, 0.5]));
        let table = Report::new(vec![row], vec![], None, &apps).markdown();
        let line = "| python, beside all guesses | without populate | rootfs | 1 | | | | 0.50 ";
        assert!(table.contains(line), "{table}");
    }

    #[test]
    fn several_vcpus_are_compared_with_one() {
        let apps = description::all().unwrap();
        let one = Group::of(&apps, "python", Place::Rootfs, 1);
        let several = Group::of(&apps, "python", Place::Rootfs, 2);
        let of = |turns: &[(f64, f64)]| {
            let mut row = python(&several, turns);
            row.beside_one(&python(&one, &[(2.0, 1.0); 6]));
            row
        };
        let (same, slower) = (of(&[(1.0, 0.5); 6]), of(&[(2.5, 1.0); 6]));
        assert_eq!(same.beside_one_vcpu, Some([1.0; 3]));
        let report = |row| Report::new(vec![row], vec![], None, &apps);
        let line = "| python, beside one vCPU | paravane | rootfs | 2 | | | | 1.00 \
                    | 1.00 to 1.00 | 1 | met | |\n";
        let table = report(same).markdown();
        assert!(table.contains(line), "{table}");
        let missed = report(slower);
        assert_eq!(
            missed.missed()[1],
            "python (rootfs, 2 vCPUs) beside one vCPU: 0.80 (0.80 to 0.80), bar 1"
        );
        let json = serde_json::to_value(&missed).unwrap();
        assert_eq!(json["rows"][0]["beside_one_verdict"], "missed");
        // A further figure has no bar.
        let mut further = python(&several, &[(4.0, 1.0); 6]);
        further.own = false;
        further.beside_one(&python(&one, &[(2.0, 1.0); 6]));
        assert_eq!(further.beside_one_verdict, None);
        assert!(further.is_like(&python(&one, &[(1.0, 1.0)])));
    }

    #[test]
    fn the_table_says_what_was_measured() {
        let apps = description::all().unwrap();
        let group = Group::of(&apps, "python", Place::Rootfs, 2);
        assert_eq!(python(&group, &[(2.0, 1.5)]).interval(), "-");
        let row = python(&group, &[(2.0, 1.5), (4.0, 4.0)]);
        let mut slow = row.clone();
        slow.ratio = row.ratio / 4.0;
        let mut alone = row.clone();
        alone.place = Place::Disk;
        let mut further = row.clone();
        further.own = false;
        let report = Report::new(
            vec![row, alone, slow, further],
            vec![Failure::of(&group, System::Paravane, "no\nluck")],
            None,
            &apps,
        );
        let table = report.markdown();
        let line = "| python | paravane | rootfs | 2 | 2.75 | 3.00 | s | 0.88 | 0.75 to 1.00 \
                    | 0.8 | not decided | ";
        assert!(table.contains(line), "{table}");
        assert!(
            table.ends_with("\npython (paravane, rootfs, 2 vCPUs) was not measured: no luck.\n")
        );
        let json = serde_json::to_value(&report).unwrap();
        let keys: Vec<&str> = json["rows"][0]
            .as_object()
            .unwrap()
            .keys()
            .map(|k| &**k)
            .collect();
        let expected = [
            "bar", "guest", "high", "host", "low", "name", "place", "ratio", "rounds", "system",
            "unit", "vcpus", "verdict",
        ];
        assert_eq!(keys, expected);
        assert_eq!(json["missing"][0]["why"], "no luck");
    }
}
