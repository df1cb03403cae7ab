// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures groups in the same rounds: mostly one, or those that differ in the number of vCPUs.

use super::super::cpus;
use super::super::turns::{self, Named};
use super::failure::Failure;
use super::figures::Turns;
use super::measure::{Run, Sides};
use super::measured::Measured;
use super::peers::System;
use super::plan::Group;
use super::session::Terms;
use super::sides::Root;
use crate::arguments::BenchApps;
use paravane_images as images;
use paravane_user_io::text;
use std::path::Path;

/// What all groups share.
#[derive(Debug)]
pub struct Bench<'a> {
    pub args: &'a BenchApps,
    /// Where folders for the work are made.
    pub cache: &'a Path,
    pub cpus: &'a [usize],
    pub terms: Terms<'a>,
}

/// The figures of rows, and what has none.
pub type Results = (Vec<Measured>, Vec<Failure>);

/// A row that is measured in one of the groups.
struct Entry<'a> {
    group: usize,
    turns: Turns<'a>,
}

impl Named for Entry<'_> {
    fn name(&self) -> &str {
        self.turns.name()
    }
}

impl Bench<'_> {
    /// Measures the rows of groups of one application in one place, each row once in each round.
    /// After a signal it returns the rows with a complete turn.
    pub fn batch(
        &self,
        groups: &[Group<'_>],
        root: &Root,
        mnt: Option<&Path>,
    ) -> anyhow::Result<Results> {
        let result = self.measure(groups, root, mnt);
        // A run binds this process to its own.
        cpus::pin(self.cpus);
        result
    }

    fn measure(
        &self,
        groups: &[Group<'_>],
        root: &Root,
        mnt: Option<&Path>,
    ) -> anyhow::Result<Results> {
        let folders = groups.iter().map(|_| images::work(self.cache));
        let folders = folders.collect::<Result<Vec<_>, _>>()?;
        let runs = groups.iter().zip(&folders);
        let runs = runs.map(|(group, folder)| Run::new(self, group, root, mnt, folder.path()));
        let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
        let mut started = Vec::new();
        for run in &runs {
            started.push((run, run.start()?));
        }
        let mut entries = entries(&runs);
        let what = what(groups);
        let (rounds, signals) = (self.args.rounds, self.terms.signals);
        let signal =
            turns::alternate(
                &what,
                &mut entries,
                rounds,
                signals,
                |entry, round| match started.get_mut(entry.group) {
                    Some((run, sides)) => run.turn(sides, &mut entry.turns, round),
                    None => Ok(()),
                },
            )?;
        if signal.is_some() {
            entries.retain(|entry| entry.turns.any());
        }
        let mut results = Results::default();
        for (index, (group, (_, sides))) in groups.iter().zip(&started).enumerate() {
            collect(group, index, sides, &entries, &mut results);
        }
        compare(&mut results.0);
        Ok(results)
    }
}

/// All rows, those of the same name one after the other.
fn entries<'a>(runs: &[Run<'a>]) -> Vec<Entry<'a>> {
    let mut entries: Vec<Entry<'a>> = Vec::new();
    for (group, run) in runs.iter().enumerate() {
        for turns in run.rows() {
            let same = |entry: &Entry<'_>| entry.name() == turns.row.name;
            let after = entries.iter().rposition(same);
            let at = after.map_or(entries.len(), |at| at + 1);
            entries.insert(at, Entry { group, turns });
        }
    }
    entries
}

/// What is measured, for messages of progress.
fn what(groups: &[Group<'_>]) -> String {
    let Some(group) = groups.first() else {
        return String::new();
    };
    let vcpus: Vec<String> = groups.iter().map(|g| g.vcpus.to_string()).collect();
    let vcpus = match groups.len() {
        1 => text::count(group.vcpus.try_into().unwrap_or_default(), "vCPU"),
        _ => format!("{} vCPUs", vcpus.join(" and ")),
    };
    format!(" {} ({}, {vcpus})", group.app.name, group.place)
}

/// Adds the results of a group.
fn collect(
    group: &Group<'_>,
    index: usize,
    sides: &Sides<'_>,
    entries: &[Entry<'_>],
    (measured, failures): &mut Results,
) {
    let own = || entries.iter().filter(|entry| entry.group == index);
    failures.extend(own().filter_map(|entry| entry.turns.host_failure(group)));
    for (system, guest) in sides.guests.iter().enumerate() {
        if let Some(why) = &guest.failed {
            failures.push(Failure::of(group, guest.system, why));
            continue;
        }
        for entry in own() {
            match entry.turns.on(group, system, guest.system) {
                Ok(figures) => measured.extend(figures),
                Err(failure) => failures.push(failure),
            }
        }
    }
}

/// Compares the machine's rows of several vCPUs with those of one.
fn compare(measured: &mut [Measured]) {
    let own = |row: &&Measured| row.vcpus == 1 && row.system == System::Paravane.name();
    let ones: Vec<Measured> = measured.iter().filter(own).cloned().collect();
    for row in measured.iter_mut().filter(|row| row.vcpus > 1) {
        if let Some(one) = ones.iter().find(|one| row.is_like(one)) {
            row.beside_one(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::description;
    use super::*;
    use crate::arguments::Place;

    #[test]
    fn progress_says_what_is_measured() {
        let apps = description::all().unwrap();
        let of = |vcpus| Group::of(&apps, "bash", Place::Rootfs, vcpus);
        assert_eq!(what(&[of(1)]), " bash (rootfs, 1 vCPU)");
        assert_eq!(what(&[of(1), of(2)]), " bash (rootfs, 1 and 2 vCPUs)");
    }
}
