// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Medians and their confidence intervals, without assumptions about the distribution of the noise.

/// The median. For an even number of values, the mean of the two in the middle; NaN without values.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match (
        sorted.get(middle),
        middle.checked_sub(1).and_then(|i| sorted.get(i)),
    ) {
        (Some(&high), Some(&low)) if sorted.len() % 2 == 0 => f64::midpoint(low, high),
        (Some(&high), _) => high,
        (None, _) => f64::NAN,
    }
}

/// An interval that contains the true median with a probability of at least 95 %. Its ends are two
/// of the values, chosen by the binomial distribution. For fewer than six values it spans all of
/// them, which is less certain.
pub fn interval(values: &[f64]) -> [f64; 2] {
    let sorted = sorted(values);
    let skip = skipped(sorted.len());
    match (
        sorted.get(skip),
        sorted
            .len()
            .checked_sub(skip + 1)
            .and_then(|i| sorted.get(i)),
    ) {
        (Some(&low), Some(&high)) => [low, high],
        _ => [f64::NAN; 2],
    }
}

/// How many of the smallest and of the largest of `count` values lie outside of the interval.
#[allow(clippy::cast_precision_loss)] // numbers of rounds
fn skipped(count: usize) -> usize {
    // `chance`: the probability that exactly `below` values are smaller than the median. `sum`: the
    // probability of at most that many.
    let mut chance = 0.5_f64.powf(count as f64);
    let (mut sum, mut below) = (chance, 0);
    while sum <= 0.025 && below < count {
        chance *= (count - below) as f64 / (below + 1) as f64;
        below += 1;
        sum += chance;
    }
    // One value fewer than `below` can be left out: `below` smaller ones are already too likely.
    below.saturating_sub(1)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!((median(&[7.0]) - 7.0).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ranks_are_those_of_the_tables() {
        // Ranks of the lower end, from 1, for a two-sided 95 % interval of the median (sign test).
        for (count, rank) in [
            (1, 1),
            (2, 1),
            (5, 1),
            (6, 1),
            (8, 1),
            (9, 2),
            (10, 2),
            (15, 4),
            (20, 6),
            (30, 10),
        ] {
            assert_eq!(skipped(count) + 1, rank, "{count} values");
        }
        let values: Vec<f64> = (1..=15).map(f64::from).collect();
        assert_eq!(interval(&values).map(|v| v.round()), [4.0, 12.0]);
        assert_eq!(interval(&[2.0, 1.0]).map(|v| v.round()), [1.0, 2.0]);
    }
}
