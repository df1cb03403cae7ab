// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result as a table and as JSON.

use super::super::turns::Table;
use super::description::App;
use super::earlier::Origin;
use super::failure::Failure;
use super::means::{self, Mean};
use super::measured::{Measured, ONE_VCPU_BAR};
use super::peers::System;
use super::views::{self, Line, View};
use serde::Serialize;
use std::fmt::Write;

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// With which program, and how.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
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
            origin: None,
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
            None => rows(&self.rows) + &means::markdown(&self.means) + &left_out(&self.rows),
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
        let own = Some(ONE_VCPU_BAR).filter(|_| row.beside_one_verdict.is_some());
        for (with, compared, bar, verdict) in [
            (
                "virtio-net",
                row.beside_virtio_net,
                row.venet_bar,
                row.beside_virtio_net_verdict,
            ),
            ("virtio-blk", row.beside_virtio_blk, None, None),
            ("all guesses", row.beside_all, None, None),
            ("one vCPU", row.beside_one_vcpu, own, row.beside_one_verdict),
        ] {
            let Some([ratio, low, high]) = compared else {
                continue;
            };
            let bar = bar.map(|bar| format!("{bar} ")).unwrap_or_default();
            let verdict = verdict.map(|verdict| format!("{verdict} "));
            let _ = writeln!(
                out,
                "| {}, beside {with} | {} | {} | {} | | | | {ratio:.2} | {low:.2} to {high:.2} \
                 | {bar}| {}| |",
                row.name,
                row.system,
                row.place,
                row.vcpus,
                verdict.unwrap_or_default()
            );
        }
    }
    out
}

/// Rows that are not part of a mean, and why.
fn left_out(all: &[Measured]) -> String {
    let mut out = String::new();
    let own = |row: &&Measured| row.own && row.system == System::Paravane.name();
    for row in all.iter().filter(own) {
        if let Some(why) = &row.not_in_mean {
            let _ = writeln!(out, "\n{} is not part of the mean: {why}.", row.title());
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
    use super::super::super::turns::Pairs;
    use super::super::description;
    use super::super::plan::Group;
    use super::*;
    use crate::arguments::Place;

    #[test]
    fn figures_are_short() {
        let all = [145_000.4, 63.04, 2.5, 0.1234, 0.00123].map(figure);
        assert_eq!(all, ["145000", "63.0", "2.50", "0.123", "0.0012"]);
    }

    /// The first row of a group, mostly `python`, with these figures of guest and host.
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
    fn comparisons_are_rows_of_the_table() {
        let apps = description::all().unwrap();
        let pairs = |guest| {
            let mut pairs = Pairs::default();
            (0..6).for_each(|_| pairs.add(guest, 1.0));
            pairs
        };
        let of = |name, place, system: &str, guest| {
            let group = Group::of(&apps, name, place, 1);
            let row = group.rows[0];
            let figure = &row.figures()[0];
            let system = System::of_name(system).unwrap();
            let row = Measured::new(&group, row, figure, "", system, &pairs(guest));
            row.beside(&pairs(guest))
        };
        let several = Group::of(&apps, "python", Place::Rootfs, 2);
        let mut two = python(&several, &[(2.0, 1.0); 6]);
        two.beside_one(&of("python", Place::Rootfs, "paravane", 2.0));
        let mut further = two.clone();
        further.beside_one_verdict = None;
        let rows = vec![
            of("python", Place::Rootfs, "without costs", 2.0),
            of("nginx", Place::Publish, "venet", 0.75),
            two,
            further,
        ];
        let table = Report::new(rows, vec![], None, &apps).markdown();
        for line in [
            "\n| python, beside all guesses | without costs | rootfs | 1 | | | | 0.50 \
             | 0.50 to 0.50 | | | |\n",
            "\n| nginx-16, beside virtio-net | venet | publish | 1 | | | | 0.75 \
             | 0.75 to 0.75 | 1 | not met | |\n",
            "\n| python, beside one vCPU | paravane | rootfs | 2 | | | | 1.00 \
             | 1.00 to 1.00 | 1 | met | |\n",
            "| 1.00 | 1.00 to 1.00 | | | |\n",
        ] {
            assert!(table.contains(line), "{line}: {table}");
        }
    }

    #[test]
    fn a_row_that_is_not_in_the_mean_says_why() {
        let apps = description::all().unwrap();
        let group = Group::of(&apps, "untar", Place::Rootfs, 1);
        let row = python(&group, &[(2.0, 1.5)]);
        let elsewhere = Group::of(&apps, "untar", Place::Disk, 1);
        let disk = python(&elsewhere, &[(2.0, 1.5)]);
        assert_eq!(disk.not_in_mean, None);
        let report = Report::new(vec![row, disk], vec![], None, &apps);
        let table = report.markdown();
        let line = "\nuntar (rootfs, 1 vCPU) is not part of the mean: a machine keeps what it \
                    writes in memory, the host writes to its disk.\n";
        assert!(table.ends_with(line), "{table}");
        let json = serde_json::to_value(&report).unwrap();
        assert!(json["rows"][0]["not_in_mean"].is_string(), "{json}");
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
            "turns", "unit", "vcpus", "verdict",
        ];
        assert_eq!(keys, expected);
        assert_eq!(json["missing"][0]["why"], "no luck");
    }
}
