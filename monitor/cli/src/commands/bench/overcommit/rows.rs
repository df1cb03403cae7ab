// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of the table, and whether they meet the bars.

use super::super::bars::Verdict;
use super::super::stats::{at_most, interval, median};
use serde::{Deserialize, Serialize};

/// The required gain at a load, in percent, where plain locks collapse: that of "Paravirt-spinlock
/// support for KVM guests" (Raghavendra K T, 2012).
fn seed(case: u32) -> Option<f64> {
    match case {
        2 => Some(83.0),
        3 => Some(95.0),
        _ => None,
    }
}
/// The time where plain locks do not collapse, in percent of the ideal one, at most.
const IDEAL_MOST: f64 = 110.0;
/// The loss where paravirtual locks gain nothing, in percent, at most.
const LOSS_MOST: f64 = 3.0;

/// One run of a workload.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Turn {
    /// The time that it took, in seconds.
    pub seconds: f64,
    /// Processors that its machine had in the mean, and those that the load had.
    pub machine: f64,
    pub load: f64,
}

impl Turn {
    /// This turn and one that follows it, as one.
    pub fn then(self, next: Turn) -> Turn {
        let seconds = self.seconds + next.seconds;
        let mean = |a: f64, b: f64| (a * self.seconds + b * next.seconds) / seconds;
        Turn {
            seconds,
            machine: mean(self.machine, next.machine),
            load: mean(self.load, next.load),
        }
    }
}

/// A workload without paravirtual locks and with them, round by round.
#[derive(Debug, Default)]
pub struct Pair {
    base: Vec<Turn>,
    pv: Vec<Turn>,
}

/// The times of turns, in seconds.
fn seconds(turns: &[Turn]) -> Vec<f64> {
    turns.iter().map(|turn| turn.seconds).collect()
}

impl Pair {
    pub fn add(&mut self, base: Turn, pv: Turn) {
        self.base.push(base);
        self.pv.push(pv);
    }

    pub fn rounds(&self) -> usize {
        self.base.len()
    }

    /// Each round: without them, and with them.
    fn turns(&self) -> impl Iterator<Item = [Turn; 2]> {
        self.base
            .iter()
            .zip(&self.pv)
            .map(|(&base, &pv)| [base, pv])
    }

    /// The gain of each round, in percent of the time without them.
    fn gains(&self) -> Vec<f64> {
        let pairs = self.base.iter().zip(&self.pv);
        pairs
            .map(|(base, pv)| (1.0 - pv.seconds / base.seconds) * 100.0)
            .collect()
    }

    /// The logarithm of the time with them by that without, of each round. Chance makes it larger
    /// as often as smaller; a ratio itself has no such symmetry, which the signed-rank test needs.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.base.iter().zip(&self.pv);
        pairs
            .map(|(base, pv)| (pv.seconds / base.seconds).ln())
            .collect()
    }

    /// The processors that the load had in the turn in which it had fewest. Each is in a row.
    fn least_load(&self) -> f64 {
        let turns = self.base.iter().chain(&self.pv);
        turns.map(|turn| turn.load).fold(f64::INFINITY, f64::min)
    }
}

/// A row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// How many times the machine's vCPUs want to run: 1x, 2x, 3x.
    pub case: String,
    pub workload: &'static str,
    /// Mean and standard deviation without paravirtual locks, in seconds.
    pub base_s: f64,
    pub base_sd: f64,
    /// Mean and standard deviation with them, in seconds.
    pub pv_s: f64,
    pub pv_sd: f64,
    /// The median of the gains of the rounds, and its 95 % interval.
    pub gain_percent: f64,
    pub ci95: [f64; 2],
    /// The loss is not larger than that, with a confidence of 95 %.
    pub loss_at_most_percent: f64,
    /// Each round: without them, and with them.
    pub turns: Vec<[Turn; 2]>,
    pub rounds: usize,
    /// Processors that the machine had in the mean, without them and with them.
    pub base_processors: f64,
    pub pv_processors: f64,
    /// Processors that the load had in the round in which it had fewest.
    pub load_processors: f64,
    /// The time with them in percent of that at 1x times the load, in the median of the rounds: 100
    /// is the ideal share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ideal_percent: Option<f64>,
    /// Its interval, and the same without them: in percent of the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ideal_ci95: Option<[f64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_ideal_percent: Option<f64>,
    /// What was promised of this row, and whether it is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bar: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl Row {
    pub fn new(case: u32, workload: &'static str, pair: &Pair) -> Self {
        let gains = pair.gains();
        let (base, pv) = (seconds(&pair.base), seconds(&pair.pv));
        let mean = |turns: &[Turn]| {
            let had: Vec<f64> = turns.iter().map(|turn| turn.machine).collect();
            mean_and_deviation(&had).0
        };
        Row {
            case: format!("{case}x"),
            workload,
            base_s: mean_and_deviation(&base).0,
            base_sd: mean_and_deviation(&base).1,
            pv_s: mean_and_deviation(&pv).0,
            pv_sd: mean_and_deviation(&pv).1,
            gain_percent: median(&gains),
            ci95: interval(&gains),
            loss_at_most_percent: (at_most(&pair.ratios()).exp() - 1.0) * 100.0,
            turns: pair.turns().collect(),
            rounds: gains.len(),
            base_processors: mean(&pair.base),
            pv_processors: mean(&pair.pv),
            load_processors: pair.least_load(),
            ideal_percent: None,
            ideal_ci95: None,
            base_ideal_percent: None,
            bar: None,
            verdict: None,
        }
    }

    /// The loss, and its 95 % interval: a gain below zero.
    pub fn loss(&self) -> (f64, [f64; 2]) {
        let [low, high] = self.ci95;
        (-self.gain_percent, [-high, -low])
    }

    /// Compares it with the same workload at 1x, round by round. The last round may have no turn
    /// under this load.
    pub fn beside(&mut self, case: u32, alone: &Row) {
        let load = f64::from(case);
        let percents = |times: Vec<f64>| -> Vec<f64> {
            let [_, one] = alone.times();
            let rounds = times.iter().zip(one);
            rounds
                .map(|(time, ideal)| time / (ideal * load) * 100.0)
                .collect()
        };
        let [base, pv] = self.times().map(percents);
        self.ideal_percent = Some(median(&pv));
        self.ideal_ci95 = Some(interval(&pv));
        self.base_ideal_percent = Some(median(&base));
    }

    /// Compares the row with its bar: the required gain if plain locks collapse, else the ideal
    /// share. Plain locks collapse if the required gain would leave more than the ideal share.
    pub fn judge_gain(&mut self, case: u32) {
        let Some(least) = seed(case) else {
            return;
        };
        let mut verdict = Verdict::at_least(self.ci95, least, self.rounds);
        self.bar = Some(match (self.base_ideal_percent, self.ideal_ci95) {
            (Some(base), Some(ideal)) => {
                verdict = verdict.or(Verdict::at_most(ideal, IDEAL_MOST, self.rounds));
                if base * (1.0 - least / 100.0) > IDEAL_MOST {
                    format!("gain at least {least} %")
                } else {
                    format!("at most {IDEAL_MOST} % of ideal")
                }
            }
            // Without a row at 1x, a small gain can be the ideal share.
            _ => {
                verdict = verdict.or(Verdict::Undecided);
                format!("gain at least {least} %")
            }
        });
        self.verdict = Some(verdict);
    }

    /// Compares it with the bar of the loss. The bound has all of the 5 % on its side, and the
    /// interval half of them.
    pub fn judge_loss(&mut self) {
        let (_, [low, _]) = self.loss();
        let bounds = [low, self.loss_at_most_percent];
        self.bar = Some(format!("loss at most {LOSS_MOST} %"));
        self.verdict = Some(Verdict::at_most(bounds, LOSS_MOST, self.rounds));
    }

    /// The times in percent of the ideal one, for a table.
    pub fn of_ideal(&self) -> String {
        match (self.base_ideal_percent, self.ideal_percent, self.ideal_ci95) {
            (Some(base), Some(pv), Some([low, high])) => {
                format!("{base:.0}, {pv:.0} ({low:.0} to {high:.0})")
            }
            _ => String::new(),
        }
    }

    /// What it misses, in words.
    pub fn missed(&self) -> Option<String> {
        let bar = self
            .bar
            .as_ref()
            .filter(|_| self.verdict == Some(Verdict::Missed))?;
        let [low, high] = self.ci95;
        let ideal = self.ideal_percent.map_or(String::new(), |percent| {
            format!(", {percent:.0} % of ideal")
        });
        Some(format!(
            "{} {}: gain {:.1} % ({low:.1} to {high:.1}){ideal}, bar: {bar}",
            self.case, self.workload, self.gain_percent
        ))
    }

    /// The times of all turns without paravirtual locks and with them, in seconds.
    fn times(&self) -> [Vec<f64>; 2] {
        [0, 1].map(|locks| self.turns.iter().map(|turn| turn[locks].seconds).collect())
    }
}

/// The mean and the standard deviation of a sample; 0 for a single value.
#[allow(clippy::cast_precision_loss)] // numbers of rounds
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(seconds: f64) -> Turn {
        Turn {
            seconds,
            machine: 0.9,
            load: 1.0,
        }
    }

    fn row(case: u32, times: &[(f64, f64)]) -> Row {
        let mut pair = Pair::default();
        for &(base, pv) in times {
            pair.add(turn(base), turn(pv));
        }
        Row::new(case, "w", &pair)
    }

    /// A row of seven rounds, which differ by 1 %.
    fn steady(case: u32, base: f64, pv: f64) -> Row {
        let times: Vec<_> = (0..7)
            .map(|round| 1.0 + f64::from(round) / 700.0)
            .map(|factor| (base * factor, pv * factor))
            .collect();
        row(case, &times)
    }

    #[test]
    fn two_turns_make_one() {
        let turn = |seconds, machine, load| Turn {
            seconds,
            machine,
            load,
        };
        let both = turn(1.0, 2.0, 0.5).then(turn(3.0, 1.0, 0.25));
        assert_eq!((both.seconds, both.machine), (4.0, 1.25));
        assert!((both.load - 0.3125).abs() < 1e-9, "{both:?}");
        let first = Turn::default().then(turn(2.0, 1.0, 0.25));
        assert_eq!((first.seconds, first.machine, first.load), (2.0, 1.0, 0.25));
    }

    #[test]
    fn gains_are_those_of_each_round() {
        let row = row(2, &[(10.0, 5.0), (20.0, 5.0), (30.0, 30.0)]);
        assert!((row.gain_percent - 50.0).abs() < 1e-9, "{row:?}");
        assert!((row.ci95[0]).abs() < 1e-9 && (row.ci95[1] - 75.0).abs() < 1e-9);
        assert!((row.base_s - 20.0).abs() < 1e-9 && (row.base_sd - 10.0).abs() < 1e-9);
        assert_eq!((row.case.as_str(), row.rounds), ("2x", 3));
        assert_eq!(mean_and_deviation(&[4.0]), (4.0, 0.0));
    }

    #[test]
    fn the_ideal_share_has_an_interval() {
        let alone = row(1, &[(1.0, 1.0), (1.0, 1.2)]);
        let mut both = row(2, &[(4.0, 2.0), (4.4, 3.0)]);
        both.beside(2, &alone);
        let close = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-6;
        // 100 and 125 %, and 200 and 183 %.
        assert!(close(both.ideal_percent, 112.5), "{both:?}");
        let base = (2.0 + 4.4 / 2.4) / 2.0 * 100.0;
        assert!(close(both.base_ideal_percent, base), "{both:?}");
        let [low, high] = both.ideal_ci95.unwrap();
        assert!(close(Some(low), 100.0) && close(Some(high), 125.0));
    }

    /// The verdict of a row at this load, beside one second at 1x.
    fn judged(case: u32, base: f64, pv: f64) -> (Option<Verdict>, String) {
        let mut row = steady(case, base, pv);
        row.beside(case, &steady(1, 1.0, 1.0));
        row.judge_gain(case);
        let missed = row.missed();
        assert_eq!(missed.is_some(), row.verdict == Some(Verdict::Missed));
        (row.verdict, row.bar.unwrap_or_default())
    }

    #[test]
    fn a_collapse_asks_for_the_gain_of_the_seed() {
        let gain = |least| format!("gain at least {least} %");
        let (met, missed) = (Some(Verdict::Met), Some(Verdict::Missed));
        assert_eq!(judged(2, 20.0, 3.0), (met, gain(83)));
        assert_eq!(judged(2, 20.0, 4.0), (missed, gain(83)));
        assert_eq!(judged(3, 80.0, 3.9), (met, gain(95)));
        assert_eq!(judged(3, 80.0, 5.0), (missed, gain(95)));
        assert_eq!(judged(1, 20.0, 1.0), (None, String::new()));
    }

    #[test]
    fn where_nothing_collapses_the_share_is_ideal() {
        let ideal = "at most 110 % of ideal".to_string();
        let (met, missed) = (Some(Verdict::Met), Some(Verdict::Missed));
        assert_eq!(judged(2, 3.0, 2.1), (met, ideal.clone()));
        assert_eq!(judged(2, 3.0, 2.4), (missed, ideal.clone()));
        assert_eq!(judged(3, 3.0, 3.0), (met, ideal.clone()));
        // A slower round is slower at 1x, too.
        assert_eq!(judged(2, 3.0, 2.19), (met, ideal));
        // The interval reaches from below the bar to above it.
        let around: Vec<_> = (-3..=3).map(|n| 2.2 + f64::from(n) / 100.0).collect();
        let around: Vec<_> = around.into_iter().map(|pv| (3.0, pv)).collect();
        let mut row = row(2, &around);
        row.beside(2, &steady(1, 1.0, 1.0));
        row.judge_gain(2);
        assert_eq!(row.verdict, Some(Verdict::Undecided));
    }

    #[test]
    fn without_a_row_at_1x_nothing_is_missed() {
        for (pv, verdict) in [(3.0, Verdict::Met), (10.0, Verdict::Undecided)] {
            let mut row = steady(2, 20.0, pv);
            row.judge_gain(2);
            assert_eq!(row.verdict, Some(verdict), "{pv}");
        }
    }

    #[test]
    fn a_loss_has_its_bound() {
        for (pv, verdict) in [
            (1.02, Verdict::Met),
            (0.5, Verdict::Met),
            (1.04, Verdict::Missed),
        ] {
            let mut row = steady(1, 1.0, pv);
            row.judge_loss();
            assert_eq!(row.verdict, Some(verdict), "{pv}");
        }
        let mut wide = row(1, &[(1.0, 0.9), (1.0, 1.1)].repeat(4));
        wide.judge_loss();
        assert_eq!(wide.verdict, Some(Verdict::Undecided));
        let (loss, [low, high]) = wide.loss();
        assert!(low <= loss && loss <= high && high > 9.0, "{wide:?}");
        let mut few = steady(1, 1.0, 2.0);
        few.rounds = 2;
        few.judge_loss();
        assert_eq!(
            (few.verdict, few.missed()),
            (Some(Verdict::Undecided), None)
        );
    }
}
