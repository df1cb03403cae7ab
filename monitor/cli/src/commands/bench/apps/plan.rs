// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is measured, in which order: the rows that share two sides are one group.

use super::description::{App, Figure, Row};
use super::failure::Failure;
use super::views::View;
use crate::arguments::{BenchApps, Place};
use anyhow::bail;
use std::fmt::Write;

/// Rows of an application that are measured in the same machine.
#[derive(Debug)]
pub struct Group<'a> {
    pub app: &'a App,
    pub place: Place,
    pub vcpus: u32,
    pub rows: Vec<&'a Row>,
}

#[cfg(test)]
impl<'a> Group<'a> {
    /// All rows of an application, for tests.
    pub fn of(apps: &'a [App], name: &str, place: Place, vcpus: u32) -> Self {
        let app = apps.iter().find(|app| app.name == name).unwrap();
        Group {
            app,
            place,
            vcpus,
            rows: app.rows.iter().collect(),
        }
    }
}

/// The groups that the user has chosen, and those that this host cannot measure.
pub fn groups<'a>(
    apps: &'a [App],
    args: &BenchApps,
    view: Option<&View>,
    cpus: usize,
) -> anyhow::Result<(Vec<Group<'a>>, Vec<Failure>)> {
    for name in &args.names {
        let known = |app: &App| app.name == *name || app.rows.iter().any(|row| row.name == *name);
        if !apps.iter().any(known) {
            let names: Vec<&str> = apps.iter().map(|app| app.name.as_str()).collect();
            bail!("no application {name}: there are {}", names.join(", "));
        }
    }
    let mut groups: Vec<Group<'a>> = Vec::new();
    for app in apps {
        for row in &app.rows {
            let chosen = |name: &String| *name == app.name || *name == row.name;
            if !args.names.is_empty() && !args.names.iter().any(chosen) {
                continue;
            }
            for &place in &row.places {
                for &vcpus in &row.vcpus {
                    if view.is_some_and(|view| !view.shows(&row.name, place, vcpus))
                        || args.vcpus.is_some_and(|n| n != vcpus)
                        || !args.place.is_empty() && !args.place.contains(&place)
                    {
                        continue;
                    }
                    let same = |group: &&mut Group<'_>| {
                        group.app.name == app.name && group.place == place && group.vcpus == vcpus
                    };
                    match groups.iter_mut().find(same) {
                        Some(group) => group.rows.push(row),
                        None => groups.push(Group {
                            app,
                            place,
                            vcpus,
                            rows: vec![row],
                        }),
                    }
                }
            }
        }
    }
    if groups.is_empty() {
        bail!("nothing to measure: no row has these vCPUs and this place (--list shows them)");
    }
    let mut skipped = Vec::new();
    let user = !rustix::process::geteuid().is_root();
    groups.retain(|group| {
        let why = if user && group.app.users {
            "it changes to another user, which on the host only root can"
        } else if usize::try_from(group.vcpus).is_ok_and(|n| n > cpus) {
            "this host has too few processors for it"
        } else {
            return true;
        };
        skipped.push(Failure::skipped(group, why));
        false
    });
    Ok((groups, skipped))
}

/// The groups that take turns with each other: each alone or, if `together`, those that differ only
/// in the number of vCPUs.
pub fn batches<'a>(groups: Vec<Group<'a>>, together: bool) -> Vec<Vec<Group<'a>>> {
    let mut batches: Vec<Vec<Group<'a>>> = Vec::new();
    for group in groups {
        let same = |batch: &&mut Vec<Group<'_>>| {
            let first = batch.first().filter(|_| together);
            first.is_some_and(|first| {
                (&first.app.name, first.place) == (&group.app.name, group.place)
            })
        };
        match batches.iter_mut().find(same) {
            Some(batch) => batch.push(group),
            None => batches.push(vec![group]),
        }
    }
    batches
}

/// All rows, for the user.
pub fn list(apps: &[App]) -> String {
    let mut out = String::new();
    for app in apps {
        let _ = writeln!(out, "{}: {}", app.name, app.about);
        for row in &app.rows {
            let places: Vec<String> = row.places.iter().map(Place::to_string).collect();
            let vcpus: Vec<String> = row.vcpus.iter().map(u32::to_string).collect();
            let (places, vcpus) = (places.join(", "), vcpus.join(", "));
            for Figure {
                name, about, unit, ..
            } in row.figures()
            {
                let _ = writeln!(
                    out,
                    "    {name}: {about} ({unit}; {places}; vCPUs: {vcpus})"
                );
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{description, views};
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchApps,
    }

    fn chosen<'a>(
        apps: &'a [App],
        words: &[&str],
        cpus: usize,
    ) -> anyhow::Result<(Vec<Group<'a>>, Vec<Failure>)> {
        let line = Line::parse_from(["apps"].iter().chain(words));
        let view = line.args.view.as_deref().map(views::find).transpose()?;
        groups(apps, &line.args, view.as_ref(), cpus)
    }

    #[test]
    fn rows_with_the_same_sides_are_one_group() {
        let apps = description::all().unwrap();
        let (all, skipped) = chosen(&apps, &[], 64).unwrap();
        let rows = all.iter().map(|g| g.rows.len()).sum::<usize>() + skipped.len();
        assert!(all.len() < rows);
        let (some, _) = chosen(&apps, &["redis", "--vcpus", "1"], 64).unwrap();
        let rows: Vec<&str> = some[0].rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(
            (some.len(), rows),
            (1, vec!["redis-plain", "redis-pipelined"])
        );
        let (some, _) = chosen(&apps, &["redis-plain", "--vcpus", "1"], 64).unwrap();
        assert_eq!(some[0].rows.len(), 1);
    }

    #[test]
    fn groups_with_different_vcpus_take_turns_if_asked() {
        let apps = description::all().unwrap();
        let sizes = |together| {
            let words = ["hackbench", "kernel-build"];
            let (groups, _) = chosen(&apps, &words, 64).unwrap();
            let batches = batches(groups, together);
            let sizes = batches.iter().map(|batch| {
                let vcpus: Vec<u32> = batch.iter().map(|group| group.vcpus).collect();
                (batch[0].app.name.as_str(), batch[0].place, vcpus)
            });
            sizes.map(|of| format!("{of:?}")).collect::<Vec<_>>()
        };
        assert_eq!(sizes(false).len(), 8);
        let together = sizes(true);
        assert_eq!(together.len(), 4, "{together:?}");
        assert_eq!(together[0], r#"("hackbench", Rootfs, [1, 2])"#);
    }

    #[test]
    fn a_view_has_its_rows() {
        let apps = description::all().unwrap();
        let (some, skipped) = chosen(&apps, &["--view", "seed"], 64).unwrap();
        assert_eq!(
            some.iter().map(|g| g.rows.len()).sum::<usize>() + skipped.len(),
            7
        );
        assert!(chosen(&apps, &["--view", "paper"], 64).is_err());
    }

    #[test]
    fn what_is_not_there_is_named() {
        let apps = description::all().unwrap();
        let error = chosen(&apps, &["rediss"], 64).unwrap_err().to_string();
        assert!(
            error.starts_with("no application rediss: there are "),
            "{error}"
        );
        assert!(error.contains("python, redis, sqlite"), "{error}");
        let error = chosen(&apps, &["python", "--place", "publish"], 64)
            .unwrap_err()
            .to_string();
        assert!(error.contains("nothing to measure"), "{error}");
        let (some, skipped) = chosen(&apps, &["python"], 1).unwrap();
        assert_eq!((some.len(), skipped.len()), (1, 1));
    }
}
