// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results of a row's turns: figures of the host and of each system, or the reason why there
//! are none.

use super::super::turns::{Named, Pairs};
use super::description::Row;
use super::failure::Failure;
use super::measured::Measured;
use super::peers::System;
use super::plan::Group;

/// The states of a machine that is new for each turn, as parts of a row's name.
pub const STATES: [&str; 2] = ["-cold", "-warm"];

/// The turns of a row. Its sides are numbered: 0 is the host, and the systems follow.
#[derive(Debug)]
pub struct Turns<'a> {
    pub row: &'a Row,
    /// For each system, for each state, for each of the row's figures.
    pairs: Vec<Vec<Pairs>>,
    /// The pairs with the figures of another system in the place of the host's.
    beside: Vec<Vec<Pairs>>,
    /// For each system, the number of that other one among the systems.
    bases: Vec<usize>,
    /// For each side, why the row has no figures there.
    failed: Vec<Option<String>>,
}

impl Named for Turns<'_> {
    fn name(&self) -> &str {
        &self.row.name
    }
}

impl<'a> Turns<'a> {
    pub fn new(row: &'a Row, systems: &[System], states: usize) -> Self {
        let figures = states * row.figures().len();
        let empty = || vec![Pairs::default(); figures];
        let base = |system: &System| systems.iter().position(|other| *other == system.base());
        Turns {
            row,
            pairs: systems.iter().map(|_| empty()).collect(),
            beside: systems.iter().map(|_| empty()).collect(),
            bases: systems.iter().map(|s| base(s).unwrap_or(0)).collect(),
            failed: vec![None; 1 + systems.len()],
        }
    }

    /// Whether the next turn measures a side: the row works there, and on a side to compare it
    /// with.
    pub fn wants(&self, side: usize) -> bool {
        let works = |side: usize| matches!(self.failed.get(side), Some(None));
        works(0) && works(side) && (side > 0 || (1..self.failed.len()).any(works))
    }

    /// Notes that the row does not work on a side.
    pub fn fail(&mut self, side: usize, why: String) {
        if let Some(place) = self.failed.get_mut(side) {
            *place = Some(why);
        }
    }

    /// Adds the figures of one turn: for each side, for each state, each of the row's. A side
    /// without figures has no ratio.
    pub fn add(&mut self, figures: &[Vec<f64>]) {
        let Some((host, systems)) = figures.split_first() else {
            return;
        };
        for (system, pairs) in systems.iter().zip(&mut self.pairs) {
            add(system, host, pairs);
        }
        let beside = self.bases.iter().zip(&mut self.beside);
        for (system, (base, pairs)) in systems.iter().zip(beside) {
            add(system, systems.get(*base).map_or(&[], Vec::as_slice), pairs);
        }
    }

    /// Whether the first system, and so each other one that works, has a turn.
    pub fn any(&self) -> bool {
        let pairs = self.pairs.first().and_then(|figures| figures.first());
        pairs.is_some_and(|pairs| !pairs.ratios().is_empty())
    }

    /// That the row does not work on the host, if so.
    pub fn host_failure(&self, group: &Group<'_>) -> Option<Failure> {
        let why = self.failed.first()?.as_ref()?;
        Some(Failure::of_row(group, self.row, None, why))
    }

    /// The figures on a system, in each state each of the row's, or why there are none. Nothing if
    /// it is the host's fault.
    pub fn on(
        &self,
        group: &Group<'_>,
        index: usize,
        system: System,
    ) -> Result<Vec<Measured>, Failure> {
        if self.host_failure(group).is_some() {
            return Ok(Vec::new());
        }
        if let Some(Some(why)) = self.failed.get(index + 1) {
            return Err(Failure::of_row(group, self.row, Some(system), why));
        }
        let each = self.row.figures();
        let (pairs, beside) = (of(&self.pairs, index), of(&self.beside, index));
        let several = pairs.len() > each.len();
        let names = STATES
            .iter()
            .flat_map(|state| each.iter().map(move |figure| (figure, *state)));
        let figures = pairs.iter().zip(beside).zip(names);
        let figures = figures.map(|((pairs, beside), (figure, state))| {
            let state = if several { state } else { "" };
            let measured = Measured::new(group, self.row, figure, state, system, pairs);
            measured.beside(beside)
        });
        Ok(figures.collect())
    }
}

/// Adds the figures of a turn, if both sides have them.
fn add(guest: &[f64], other: &[f64], pairs: &mut [Pairs]) {
    for ((guest, other), pairs) in guest.iter().zip(other).zip(pairs) {
        pairs.add(*guest, *other);
    }
}

/// The figures of one of the systems.
fn of(systems: &[Vec<Pairs>], index: usize) -> &[Pairs] {
    systems.get(index).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::super::description;
    use super::*;
    use crate::arguments::{Peer, Place};

    const SYSTEMS: [System; 2] = [System::Paravane, System::Peer(Peer::Uml)];

    /// Names of rows with figures, and the sides that failed, with whether that is an error.
    fn results(failed: &[usize]) -> (Vec<String>, Vec<(String, bool)>) {
        let apps = description::all().unwrap();
        let group = Group::of(&apps, "bash", Place::Rootfs, 1);
        let mut turns = Turns::new(group.rows[0], &SYSTEMS, 1);
        turns.add(&[vec![1.0], vec![2.0], vec![3.0]]);
        for &side in failed {
            turns.fail(side, "no luck".to_string());
        }
        let (mut rows, mut failures) = (Vec::new(), Vec::from_iter(turns.host_failure(&group)));
        for (index, system) in SYSTEMS.into_iter().enumerate() {
            match turns.on(&group, index, system) {
                Ok(all) => {
                    rows.extend(all.iter().map(|row| format!("{} {}", row.name, row.system)))
                }
                Err(failure) => failures.push(failure),
            }
        }
        let failures = failures.iter().map(|failure| {
            let json = serde_json::to_value(failure).unwrap();
            let told = (json["name"].as_str(), json["why"].as_str());
            assert_eq!(told, (Some("bash"), Some("no luck")));
            (
                json["system"].as_str().unwrap().to_string(),
                failure.is_error(),
            )
        });
        (rows, failures.collect())
    }

    #[test]
    fn a_row_that_fails_on_one_side_has_no_ratio() {
        let error = |side: &str| (side.to_string(), true);
        assert_eq!(
            results(&[]),
            (vec!["bash paravane".into(), "bash uml".into()], vec![])
        );
        assert_eq!(results(&[0]), (vec![], vec![error("host")]));
        assert_eq!(results(&[0, 1]), (vec![], vec![error("host")]));
        assert_eq!(
            results(&[1]),
            (vec!["bash uml".into()], vec![error("paravane")])
        );
        // A row that another system cannot run is a result.
        assert_eq!(
            results(&[2]),
            (
                vec!["bash paravane".into()],
                vec![("uml".to_string(), false)]
            )
        );
    }

    #[test]
    fn a_side_without_another_is_not_measured() {
        let apps = description::all().unwrap();
        let wanted = |failed: &[usize]| {
            let mut turns = Turns::new(&apps[0].rows[0], &SYSTEMS, 1);
            failed
                .iter()
                .for_each(|&side| turns.fail(side, String::new()));
            [0, 1, 2].map(|side| turns.wants(side))
        };
        assert_eq!(wanted(&[]), [true, true, true]);
        assert_eq!(wanted(&[0]), [false, false, false]);
        assert_eq!(wanted(&[1]), [true, false, true]);
        assert_eq!(wanted(&[1, 2]), [false, false, false]);
    }

    #[test]
    fn a_side_without_figures_has_no_ratio_in_that_turn() {
        let apps = description::all().unwrap();
        let mut turns = Turns::new(&apps[0].rows[0], &SYSTEMS, 1);
        turns.add(&[vec![1.0], vec![2.0], vec![]]);
        turns.add(&[vec![], vec![2.0], vec![3.0]]);
        let count = |index: usize| turns.pairs[index][0].ratios().len();
        assert_eq!((count(0), count(1)), (1, 0));
        assert!(turns.any());
        assert!(!Turns::new(&apps[0].rows[0], &SYSTEMS, 1).any());
    }

    #[test]
    fn each_figure_of_a_run_has_its_row() {
        let apps = description::all().unwrap();
        let group = Group::of(&apps, "nginx", Place::Publish, 1);
        let looks = System::of_name("without card-looks").unwrap();
        let systems = [System::Paravane, System::Venet, looks];
        let mut turns = Turns::new(group.rows[0], &systems, 1);
        // The guest has half of the rate and four times the latency.
        turns.add(&[
            vec![200.0, 1.0, 2.0],
            vec![100.0, 4.0, 8.0],
            vec![50.0, 8.0, 16.0],
            vec![40.0, 10.0, 32.0],
        ]);
        let own = turns.on(&group, 0, System::Paravane).unwrap();
        let found: Vec<_> = own
            .iter()
            .map(|row| (&*row.name, &*row.unit, row.ratio))
            .collect();
        let expected = [
            ("nginx-16", "requests/s", 0.5),
            ("nginx-16-mean", "us", 0.25),
            ("nginx-16-p99", "us", 0.25),
        ];
        assert_eq!(found, expected);
        assert!(own.iter().all(|row| row.beside_virtio_net.is_none()));
        let venet = turns.on(&group, 1, System::Venet).unwrap();
        let beside: Vec<_> = venet
            .iter()
            .map(|row| row.beside_virtio_net.unwrap()[0])
            .collect();
        assert_eq!(beside, [0.5, 0.5, 0.5]);
        // Only the rate has a bar.
        let verdicts: Vec<_> = venet
            .iter()
            .map(|row| row.beside_virtio_net_verdict.is_some())
            .collect();
        assert_eq!(verdicts, [true, false, false]);
        // It is compared with the machine that has the same card.
        let without = turns.on(&group, 2, looks).unwrap();
        let beside: Vec<_> = without
            .iter()
            .map(|row| row.beside_all.unwrap()[0])
            .collect();
        assert_eq!(beside, [0.8, 0.8, 0.5]);
        assert!(without.iter().all(|row| row.beside_virtio_net.is_none()));
    }
}
