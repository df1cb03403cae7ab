// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of a row, computed from those of its rounds.

use super::super::bars::Verdict;
use super::super::stats;
use super::super::turns::Pairs;
use super::description::{Figure, Row};
use super::peers::System;
use super::plan::Group;
use crate::arguments::Place;
use paravane_user_io::text;
use serde::{Deserialize, Serialize};

/// A machine with several vCPUs reaches at least what one with one vCPU reaches of the host.
pub const ONE_VCPU_BAR: f64 = 1.0;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_virtio_net_verdict: Option<Verdict>,
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
    /// Why it is not part of a mean, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_in_mean: Option<String>,
    /// What all other figures are computed from.
    pub turns: Turns,
    /// The speed in each round.
    #[serde(skip)]
    pub speeds: Vec<f64>,
    #[serde(skip)]
    pub what: String,
    /// Whether it is a row's own figure, and not a further one of the same run.
    #[serde(skip)]
    pub own: bool,
    /// The application.
    #[serde(skip)]
    pub app: String,
    /// Whether a larger figure is the better one.
    #[serde(skip)]
    rate: bool,
    /// The least speed over venet that is promised, where that over virtio-net is 1.
    #[serde(skip)]
    pub venet_bar: Option<f64>,
    #[serde(skip)]
    on: System,
}

/// The figures of each round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turns {
    guest: Vec<f64>,
    host: Vec<f64>,
    /// The speed, where that of the system with which it is compared is 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    beside: Vec<f64>,
    /// The speed, where that with one vCPU is 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    beside_one_vcpu: Vec<f64>,
}

impl Turns {
    /// Whether they can be those of a row.
    pub fn are_right(&self) -> bool {
        let all = [&self.guest, &self.host, &self.beside, &self.beside_one_vcpu];
        let mut figures = all.iter().flat_map(|figures| figures.iter());
        let rounds = self.guest.len();
        rounds > 0
            && self.host.len() == rounds
            && self.beside.len() <= rounds
            && self.beside_one_vcpu.len() <= rounds
            && figures.all(|figure| figure.is_finite() && *figure > 0.0)
    }
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
        // Figures of other systems are no promise.
        let bar = row.bars.get(&group.place);
        let bar = bar.and_then(|bar| bar.of(group.vcpus, state));
        let bar = bar.filter(|_| figure.own && system == System::Paravane);
        let venet = figure.own && system == System::Venet;
        let (guest, host) = pairs.all();
        let mut measured = Measured {
            name: format!("{}{state}", figure.name),
            system: system.name(),
            place: group.place,
            vcpus: group.vcpus,
            host: f64::NAN,
            guest: f64::NAN,
            unit: figure.unit.clone(),
            ratio: f64::NAN,
            low: f64::NAN,
            high: f64::NAN,
            rounds: 0,
            bar,
            verdict: None,
            beside_virtio_net: None,
            beside_virtio_net_verdict: None,
            beside_virtio_blk: None,
            beside_all: None,
            beside_one_vcpu: None,
            beside_one_verdict: None,
            not_in_mean: row.not_in_mean.get(&group.place).cloned(),
            turns: Turns {
                guest: guest.to_vec(),
                host: host.to_vec(),
                ..Turns::default()
            },
            speeds: Vec::new(),
            what: figure.about.clone(),
            own: figure.own,
            app: group.app.name.clone(),
            rate: figure.is_rate(),
            venet_bar: row.beside_virtio_net.filter(|_| venet),
            on: system,
        };
        measured.compute();
        measured
    }

    /// Adds the comparison with the system from which this one differs in one thing.
    pub fn beside(mut self, pairs: &Pairs) -> Measured {
        if !matches!(self.on, System::Paravane | System::Peer(_)) {
            let (guest, other) = pairs.all();
            self.turns.beside = speeds(guest, other, self.rate);
            self.compute();
        }
        self
    }

    /// Adds the comparison with the same row of one vCPU, measured in the same rounds.
    pub fn beside_one(&mut self, one: &Measured) {
        let both = self.speeds.iter().zip(&one.speeds);
        self.turns.beside_one_vcpu = both.map(|(several, one)| several / one).collect();
        self.compute();
    }

    /// Adds rounds of an earlier run, before its own.
    pub fn add(&mut self, earlier: &Turns) {
        let own = &mut self.turns;
        for (all, before) in [
            (&mut own.guest, &earlier.guest),
            (&mut own.host, &earlier.host),
            (&mut own.beside, &earlier.beside),
            (&mut own.beside_one_vcpu, &earlier.beside_one_vcpu),
        ] {
            all.splice(0..0, before.iter().copied());
        }
        self.compute();
    }

    /// Computes all figures from those of the rounds.
    fn compute(&mut self) {
        let turns = &self.turns;
        self.guest = stats::median(&turns.guest);
        self.host = stats::median(&turns.host);
        self.speeds = speeds(&turns.guest, &turns.host, self.rate);
        self.rounds = self.speeds.len();
        let of = |speeds: &[f64]| {
            let [low, high] = stats::interval(speeds);
            [stats::median(speeds), low, high]
        };
        [self.ratio, self.low, self.high] = of(&self.speeds);
        let judge = |[median, low, high]: [f64; 3], bar, rounds| {
            Verdict::of_speed(median, [low, high], bar, rounds)
        };
        let speed = [self.ratio, self.low, self.high];
        self.verdict = self.bar.map(|bar| judge(speed, bar, self.rounds));
        let compared = |speeds: &[f64]| (!speeds.is_empty()).then(|| of(speeds));
        let beside = compared(&turns.beside);
        match self.on {
            System::Venet => {
                self.beside_virtio_net = beside;
                let both = beside.zip(self.venet_bar);
                self.beside_virtio_net_verdict =
                    both.map(|(speed, bar)| judge(speed, bar, turns.beside.len()));
            }
            System::Vblk => self.beside_virtio_blk = beside,
            System::Without(_) => self.beside_all = beside,
            System::Paravane | System::Peer(_) => {}
        }
        self.beside_one_vcpu = compared(&turns.beside_one_vcpu);
        let one = self.beside_one_vcpu.filter(|_| self.own);
        self.beside_one_verdict =
            one.map(|speed| judge(speed, ONE_VCPU_BAR, turns.beside_one_vcpu.len()));
    }

    /// Whether both are the same figure of the same system in the same place.
    pub fn is_like(&self, other: &Measured) -> bool {
        (&self.name, self.system, self.place) == (&other.name, other.system, other.place)
    }

    /// Whether both are figures of the same thing.
    pub fn is_same(&self, other: &Measured) -> bool {
        self.is_like(other) && self.vcpus == other.vcpus
    }

    /// What was measured where, for messages.
    pub fn title(&self) -> String {
        let vcpus = text::count(self.vcpus.try_into().unwrap_or_default(), "vCPU");
        format!("{} ({}, {vcpus})", self.name, self.place)
    }

    /// What it misses, in words.
    pub fn missed(&self) -> Vec<String> {
        let speed = Some([self.ratio, self.low, self.high]);
        let all = [
            ("", speed, self.bar, self.verdict),
            (
                " over venet beside virtio-net",
                self.beside_virtio_net,
                self.venet_bar,
                self.beside_virtio_net_verdict,
            ),
            (
                " beside one vCPU",
                self.beside_one_vcpu,
                Some(ONE_VCPU_BAR),
                self.beside_one_verdict,
            ),
        ];
        let missed = all.into_iter().filter_map(|(words, speed, bar, verdict)| {
            let [ratio, low, high] = speed?;
            let bar = bar.filter(|_| verdict == Some(Verdict::Missed))?;
            let title = self.title();
            Some(format!(
                "{title}{words}: {ratio:.2} ({low:.2} to {high:.2}), bar {bar}"
            ))
        });
        missed.collect()
    }

    /// The interval, for a table. One turn has none.
    pub fn interval(&self) -> String {
        match self.rounds {
            1 => "-".to_string(),
            _ => format!("{:.2} to {:.2}", self.low, self.high),
        }
    }
}

/// The guest's speed in each turn, where the other side's is 1.
fn speeds(guest: &[f64], other: &[f64], rate: bool) -> Vec<f64> {
    let pairs = guest.iter().zip(other);
    let speed = |(guest, other): (&f64, &f64)| {
        if rate { guest / other } else { other / guest }
    };
    pairs.map(speed).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{description, guesses};
    use super::*;

    #[test]
    fn a_speed_is_better_when_it_is_larger() {
        let (guest, host) = ([200.0, 50.0], [100.0, 100.0]);
        assert_eq!(speeds(&guest, &host, true), [2.0, 0.5]);
        assert_eq!(speeds(&guest, &host, false), [0.5, 2.0]);
    }

    fn pairs(turns: &[(f64, f64)]) -> Pairs {
        let mut pairs = Pairs::default();
        turns
            .iter()
            .for_each(|&(guest, other)| pairs.add(guest, other));
        pairs
    }

    /// A row of `python` with these figures of guest and host.
    fn python(vcpus: u32, turns: &[(f64, f64)]) -> Measured {
        let apps = description::all().unwrap();
        let group = Group::of(&apps, "python", Place::Rootfs, vcpus);
        let row = group.rows[0];
        let figure = &row.figures()[0];
        Measured::new(&group, row, figure, "", System::Paravane, &pairs(turns))
    }

    #[test]
    fn a_machine_without_a_guess_is_compared_with_the_one_that_has_all() {
        let apps = description::all().unwrap();
        let group = Group::of(&apps, "python", Place::Rootfs, 1);
        let system = System::Without(guesses::chosen(&["populate".to_string()]).unwrap()[0]);
        let row = group.rows[0];
        let figure = &row.figures()[0];
        let turns = pairs(&[(4.0, 2.0)]);
        let row = Measured::new(&group, row, figure, "", system, &turns);
        assert_eq!(row.bar, None, "the promise is of a machine with all");
        let json = serde_json::to_value(row.beside(&turns)).unwrap();
        assert_eq!(json["system"], "without populate");
        assert_eq!(json["beside_all"], serde_json::json!([0.5, 0.5, 0.5]));
    }

    #[test]
    fn several_vcpus_are_compared_with_one() {
        let of = |turns: &[(f64, f64)]| {
            let mut row = python(2, turns);
            row.beside_one(&python(1, &[(2.0, 1.0); 6]));
            row
        };
        let (same, slower) = (of(&[(1.0, 0.5); 6]), of(&[(2.5, 1.0); 6]));
        assert_eq!(same.beside_one_vcpu, Some([1.0; 3]));
        assert_eq!(same.beside_one_verdict, Some(Verdict::Met));
        assert_eq!(
            slower.missed()[1],
            "python (rootfs, 2 vCPUs) beside one vCPU: 0.80 (0.80 to 0.80), bar 1"
        );
        let json = serde_json::to_value(&slower).unwrap();
        assert_eq!(json["beside_one_verdict"], "missed");
        // A further figure has no bar.
        let mut further = python(2, &[(4.0, 1.0); 6]);
        further.own = false;
        further.beside_one(&python(1, &[(2.0, 1.0); 6]));
        assert_eq!(further.beside_one_verdict, None);
        assert!(further.is_like(&python(1, &[(1.0, 1.0)])));
    }

    /// `nginx-16` at a published port over venet: requests over venet and over virtio-net.
    fn nginx(turns: &[(f64, f64)]) -> Measured {
        let apps = description::all().unwrap();
        let group = Group::of(&apps, "nginx", Place::Publish, 1);
        let row = group.rows[0];
        let figure = &row.figures()[0];
        let beside = pairs(turns);
        Measured::new(&group, row, figure, "", System::Venet, &beside).beside(&beside)
    }

    #[test]
    fn venet_is_no_slower_than_virtio_net() {
        let verdict = |turns: &[(f64, f64)]| nginx(turns).beside_virtio_net_verdict;
        assert_eq!(verdict(&[(1.1, 1.0); 6]), Some(Verdict::Met));
        assert_eq!(verdict(&[(1.0, 1.0); 6]), Some(Verdict::Met));
        // The interval contains 1.
        let mut few = vec![(0.9, 1.0); 5];
        few.push((1.01, 1.0));
        assert_eq!(verdict(&few), Some(Verdict::Met));
        assert_eq!(verdict(&[(0.5, 1.0); 5]), Some(Verdict::Undecided));
        let slow = nginx(&[(0.9, 1.0); 6]);
        assert_eq!(slow.beside_virtio_net_verdict, Some(Verdict::Missed));
        let line = "nginx-16 (publish, 1 vCPU) over venet beside virtio-net: \
                    0.90 (0.90 to 0.90), bar 1";
        // The bar beside the host is one of virtio-net.
        assert_eq!(slow.missed(), [line]);
        let json = serde_json::to_value(&slow).unwrap();
        assert_eq!(json["beside_virtio_net_verdict"], "missed");
        // Nothing is promised of a stream of iperf3.
        let apps = description::all().unwrap();
        let rows = apps.iter().flat_map(|app| &app.rows);
        let promised = rows.filter(|row| row.beside_virtio_net.is_some());
        let names: Vec<_> = promised.map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["nginx-16", "nginx-1"]);
    }

    #[test]
    fn rounds_of_an_earlier_run_come_first() {
        let mut row = python(2, &[(2.0, 1.0)]);
        row.beside_one(&python(1, &[(1.0, 1.0)]));
        let mut earlier = python(2, &[(4.0, 1.0), (1.0, 1.0)]);
        earlier.beside_one(&python(1, &[(1.0, 1.0); 2]));
        row.add(&earlier.turns);
        assert_eq!(row.speeds, [0.25, 1.0, 0.5]);
        assert_eq!((row.rounds, row.ratio, row.guest), (3, 0.5, 2.0));
        assert_eq!((row.low, row.high), (0.25, 1.0));
        assert_eq!(row.beside_one_vcpu, Some([0.5, 0.25, 1.0]));
        let text = serde_json::to_string(&row.turns).unwrap();
        assert_eq!(serde_json::from_str::<Turns>(&text).unwrap(), row.turns);
    }

    #[test]
    fn rounds_are_read_strictly() {
        let right = |text: &str| serde_json::from_str::<Turns>(text).unwrap().are_right();
        assert!(right(r#"{"guest": [1.5], "host": [2]}"#));
        for bad in [
            r#"{"guest": [], "host": []}"#,
            r#"{"guest": [1.5], "host": []}"#,
            r#"{"guest": [0], "host": [1]}"#,
            r#"{"guest": [1], "host": [1], "beside": [1, 1]}"#,
        ] {
            assert!(!right(bad), "{bad}");
        }
    }
}
