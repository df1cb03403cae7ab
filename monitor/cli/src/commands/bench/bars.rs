// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a measurement meets a bar, which is a promise in figures.

use serde::Serialize;
use std::fmt;

/// Rounds for an interval of 95 %. One of fewer is the range that was seen, which proves nothing.
pub const LEAST_ROUNDS: usize = 6;

/// Whether a bar is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Met,
    /// The interval lies beyond the bar.
    Missed,
    /// More rounds can show either.
    Undecided,
}

impl Verdict {
    /// Of a figure that is at most `bar`, by its interval alone: met if all of it is.
    pub fn at_most([low, high]: [f64; 2], bar: f64, rounds: usize) -> Self {
        if rounds < LEAST_ROUNDS {
            Verdict::Undecided
        } else if high <= bar {
            Verdict::Met
        } else if low > bar {
            Verdict::Missed
        } else {
            Verdict::Undecided
        }
    }

    /// Of a figure that is at least `bar`, by its interval alone.
    pub fn at_least([low, high]: [f64; 2], bar: f64, rounds: usize) -> Self {
        Self::at_most([-high, -low], -bar, rounds)
    }

    /// Of a speed that is at least `bar`, by its median. A bar of 1 says `no slower`, which an
    /// interval with 1 in it does not refute.
    pub fn of_speed(median: f64, interval: [f64; 2], bar: f64, rounds: usize) -> Self {
        let [_, high] = interval;
        match Self::at_least(interval, bar, rounds) {
            Verdict::Undecided if rounds < LEAST_ROUNDS => Verdict::Undecided,
            _ if median >= bar || (bar >= 1.0 && high >= bar) => Verdict::Met,
            other => other,
        }
    }

    /// Of a ratio of times that is at most `bar`, by its median: the inverse of a speed.
    pub fn of_ratio(median: f64, [low, high]: [f64; 2], bar: f64, rounds: usize) -> Self {
        Self::of_speed(1.0 / median, [1.0 / high, 1.0 / low], 1.0 / bar, rounds)
    }

    /// Of a bar that is met in either of two ways.
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Verdict::Met, _) | (_, Verdict::Met) => Verdict::Met,
            (Verdict::Missed, Verdict::Missed) => Verdict::Missed,
            _ => Verdict::Undecided,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Met => "met",
            Verdict::Missed => "not met",
            Verdict::Undecided => "not decided",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Met, Missed, Undecided};
    use super::*;

    #[test]
    fn the_interval_decides() {
        for (interval, verdict) in [
            ([1.0, 2.9], Met),
            ([1.0, 3.0], Met),
            ([1.0, 3.1], Undecided),
            ([3.0, 4.0], Undecided),
            ([3.1, 4.0], Missed),
            ([f64::NAN; 2], Undecided),
        ] {
            let found = Verdict::at_most(interval, 3.0, LEAST_ROUNDS);
            assert_eq!(found, verdict, "{interval:?}");
            let found = Verdict::at_most(interval, 3.0, LEAST_ROUNDS - 1);
            assert_eq!(found, Undecided, "{interval:?}");
        }
        for (interval, verdict) in [
            ([83.0, 90.0], Met),
            ([82.9, 90.0], Undecided),
            ([70.0, 83.0], Undecided),
            ([70.0, 82.9], Missed),
        ] {
            let found = Verdict::at_least(interval, 83.0, 7);
            assert_eq!(found, verdict, "{interval:?}");
        }
    }

    #[test]
    fn the_median_of_a_speed_decides() {
        for (median, interval, bar, verdict) in [
            (0.87, [0.79, 0.90], 0.85, Met),
            (0.82, [0.80, 0.87], 0.85, Undecided),
            (0.80, [0.70, 0.83], 0.85, Missed),
            (0.98, [0.95, 1.01], 1.0, Met),
            (0.98, [0.95, 0.99], 1.0, Missed),
            (1.20, [1.10, 1.30], 1.0, Met),
        ] {
            assert_eq!(Verdict::of_speed(median, interval, bar, 7), verdict);
            assert_eq!(Verdict::of_speed(median, interval, bar, 5), Undecided);
        }
    }

    #[test]
    fn the_median_of_a_ratio_decides() {
        for (median, interval, bar, verdict) in [
            (1.05, [0.99, 1.20], 1.1, Met),
            (1.15, [1.05, 1.20], 1.1, Undecided),
            (1.15, [1.12, 1.20], 1.1, Missed),
            (1.02, [0.98, 1.20], 1.0, Met),
            (1.02, [1.01, 1.20], 1.0, Missed),
        ] {
            assert_eq!(Verdict::of_ratio(median, interval, bar, 7), verdict);
        }
    }

    #[test]
    fn one_of_two_ways_is_enough() {
        assert_eq!(Missed.or(Met), Met);
        assert_eq!(Met.or(Undecided), Met);
        assert_eq!(Missed.or(Undecided), Undecided);
        assert_eq!(Missed.or(Missed), Missed);
    }
}
