// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Geometric means of the rows of a system, in one place, with one number of vCPUs.

use super::super::bars::Verdict;
use super::super::stats;
use super::description::App;
use super::measured::Measured;
use super::peers::System;
use super::promise::Promise;
use crate::arguments::Place;
use paravane_user_io::text;
use serde::Serialize;
use std::fmt::Write;

/// The least mean of all programs of the root. Applications with a promise of their own mean are
/// not in it.
const PROGRAMS: Promise = Promise::by_vcpus(0.95, 0.92);
/// The name of that mean.
const NAME: &str = "programs";
/// The only place whose means are promised.
const PROMISED: Place = Place::Rootfs;

/// A mean.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mean {
    /// `programs`, or an application that has a mean of its own.
    of: String,
    system: &'static str,
    place: Place,
    vcpus: u32,
    /// Of how many rows.
    rows: usize,
    /// The geometric mean of the rows' ratios.
    ratio: f64,
    /// The ends of the 95 % interval, of the geometric means of the rounds.
    low: f64,
    high: f64,
    rounds: usize,
    /// The least mean that is promised of all rows. Without one of them it promises nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    bar: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
}

impl Mean {
    /// What it misses, in words.
    pub fn missed(&self) -> Option<String> {
        let bar = self.bar.filter(|_| self.verdict == Some(Verdict::Missed))?;
        let vcpus = text::count(self.vcpus.try_into().unwrap_or_default(), "vCPU");
        Some(format!(
            "mean of {} ({}, {vcpus}): {:.2} ({:.2} to {:.2}), bar {bar}",
            self.of, self.place, self.ratio, self.low, self.high
        ))
    }
}

/// The means of all rows, in their order.
pub fn of(rows: &[Measured], apps: &[App]) -> Vec<Mean> {
    let mut means: Vec<Mean> = Vec::new();
    let rows: Vec<&Measured> = rows.iter().filter(|row| counts(row)).collect();
    for row in &rows {
        let name = name(apps, &row.app);
        let key = |mean: &Mean| (mean.system, mean.place, mean.vcpus);
        let known =
            |mean: &Mean| mean.of == name && key(mean) == (row.system, row.place, row.vcpus);
        if means.iter().any(known) {
            continue;
        }
        let same = |other: &&Measured| {
            let key = (other.system, other.place, other.vcpus);
            key == (row.system, row.place, row.vcpus) && self::name(apps, &other.app) == name
        };
        let all: Vec<&Measured> = rows.iter().copied().filter(same).collect();
        if all.len() > 1 {
            means.push(mean(name, row, &all, apps));
        }
    }
    means
}

/// Whether a row is part of a mean.
fn counts(row: &Measured) -> bool {
    row.own && row.not_in_mean.is_none()
}

/// The mean of rows. `row` is one of them.
fn mean(name: &str, row: &Measured, all: &[&Measured], apps: &[App]) -> Mean {
    let rounds = all.iter().map(|row| row.speeds.len()).min().unwrap_or(0);
    let round = |round: usize| {
        let speeds = all.iter().filter_map(|row| row.speeds.get(round).copied());
        stats::geometric_mean(speeds)
    };
    let speeds: Vec<f64> = (0..rounds).map(round).collect();
    let [low, high] = stats::interval(&speeds);
    let ratio = stats::geometric_mean(all.iter().map(|row| row.ratio));
    let (system, place, vcpus) = (row.system, row.place, row.vcpus);
    let promised = system == System::Paravane.name() && place == PROMISED;
    let bar = promise(apps, name)
        .of(vcpus, "")
        .filter(|_| promised && all.len() == expected(apps, name, vcpus));
    Mean {
        of: name.to_string(),
        system,
        place,
        vcpus,
        rows: all.len(),
        ratio,
        low,
        high,
        rounds,
        bar,
        verdict: bar.map(|bar| Verdict::of_speed(ratio, [low, high], bar, rounds)),
    }
}

/// The name of the mean of which an application is part.
fn name<'a>(apps: &'a [App], app: &str) -> &'a str {
    let own = apps.iter().find(|own| own.name == app);
    own.filter(|own| own.mean.is_some())
        .map_or(NAME, |own| &own.name)
}

fn promise(apps: &[App], name: &str) -> Promise {
    let own = apps.iter().find(|app| app.name == name);
    own.and_then(|app| app.mean).unwrap_or(PROGRAMS)
}

/// The number of all rows of a mean.
fn expected(apps: &[App], name: &str, vcpus: u32) -> usize {
    apps.iter()
        .filter(|app| self::name(apps, &app.name) == name)
        .flat_map(|app| &app.rows)
        .filter(|row| row.places.contains(&PROMISED) && row.vcpus.contains(&vcpus))
        .filter(|row| !row.not_in_mean.contains_key(&PROMISED))
        .count()
}

/// Rows of the table.
pub fn markdown(means: &[Mean]) -> String {
    let mut out = String::new();
    for mean in means {
        let bar = mean.bar.map(|bar| bar.to_string()).unwrap_or_default();
        let verdict = mean.verdict.map(|verdict| verdict.to_string());
        let interval = match mean.rounds {
            1 => "-".to_string(),
            _ => format!("{:.2} to {:.2}", mean.low, mean.high),
        };
        let _ = writeln!(
            out,
            "| mean of {} | {} | {} | {} | | | | {:.2} | {interval} | {bar} | {} | \
             geometric, of {} rows |",
            mean.of,
            mean.system,
            mean.place,
            mean.vcpus,
            mean.ratio,
            verdict.unwrap_or_default(),
            mean.rows
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::super::turns::Pairs;
    use super::super::description;
    use super::super::plan::Group;
    use super::*;

    /// Rows of all applications of the root, whose guest is that much slower than the host.
    fn rows(apps: &[App], vcpus: u32, slower: f64) -> Vec<Measured> {
        let mut pairs = Pairs::default();
        (0..6).for_each(|_| pairs.add(1.0, 1.0));
        let of = |app: &App| {
            let group = Group::of(apps, &app.name, PROMISED, vcpus);
            let rows = app.rows.iter();
            let rows =
                rows.filter(|row| row.places.contains(&PROMISED) && row.vcpus.contains(&vcpus));
            let all = rows.map(|row| {
                let figure = &row.figures()[0];
                let mut row = Measured::new(&group, row, figure, "", System::Paravane, &pairs);
                row.ratio /= slower;
                row.speeds.iter_mut().for_each(|speed| *speed /= slower);
                row
            });
            all.collect::<Vec<_>>()
        };
        apps.iter().flat_map(of).collect()
    }

    fn verdicts(means: &[Mean]) -> Vec<(&str, Option<f64>, Option<Verdict>)> {
        let of = |mean: &'_ Mean| (mean.bar, mean.verdict);
        let all = means
            .iter()
            .map(|mean| (mean.of.as_str(), of(mean).0, of(mean).1));
        all.collect()
    }

    #[test]
    fn all_rows_of_the_root_have_a_mean_with_a_bar() {
        let apps = description::all().unwrap();
        let (met, missed) = (Some(Verdict::Met), Some(Verdict::Missed));
        for (vcpus, slower, expected) in [
            (
                1,
                1.0,
                [("programs", Some(0.95), met), ("stress", Some(1.0), met)],
            ),
            (
                2,
                1.07,
                [("programs", Some(0.92), met), ("stress", Some(1.0), missed)],
            ),
            (
                1,
                1.07,
                [
                    ("programs", Some(0.95), missed),
                    ("stress", Some(1.0), missed),
                ],
            ),
        ] {
            let means = of(&rows(&apps, vcpus, slower), &apps);
            assert_eq!(verdicts(&means), expected, "{vcpus} {slower}");
        }
        let missed = of(&rows(&apps, 1, 1.25), &apps)[0].missed();
        let line = "mean of programs (rootfs, 1 vCPU): 0.80 (0.80 to 0.80), bar 0.95";
        assert_eq!(missed.as_deref(), Some(line));
    }

    #[test]
    fn rows_that_compare_other_things_do_not_count() {
        let apps = description::all().unwrap();
        let mut rows = rows(&apps, 1, 1.0);
        let all = of(&rows, &apps);
        let left: Vec<_> = rows
            .iter()
            .filter(|row| row.not_in_mean.is_some())
            .map(|row| row.name.clone())
            .collect();
        assert_eq!(left, ["git-commit", "untar", "untar-remove"]);
        // However fast they are, and also if they are not measured.
        let other = |row: &&mut Measured| row.not_in_mean.is_some();
        rows.iter_mut().filter(other).for_each(|row| {
            row.ratio = 50.0;
            row.speeds.iter_mut().for_each(|speed| *speed = 50.0);
        });
        assert_eq!(of(&rows, &apps), all);
        rows.retain(|row| row.not_in_mean.is_none());
        assert_eq!(of(&rows, &apps), all);
        assert_eq!(verdicts(&all)[0].2, Some(Verdict::Met));
    }

    #[test]
    fn a_part_of_the_rows_promises_nothing() {
        let apps = description::all().unwrap();
        let mut some = rows(&apps, 1, 1.25);
        some.remove(0);
        let means = of(&some, &apps);
        assert_eq!(verdicts(&means)[0], ("programs", None, None));
        let table = markdown(&means);
        let line =
            "| mean of programs | paravane | rootfs | 1 | | | | 0.80 | 0.80 to 0.80 |  |  | geo";
        assert!(table.starts_with(line), "{table}");
        // Further figures are no rows, and one row has no mean.
        let mut one = vec![some[0].clone(), some[1].clone()];
        one[1].own = false;
        assert_eq!(of(&one, &apps), []);
    }
}
