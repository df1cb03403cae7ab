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
        (Some(&high), Some(&low)) if sorted.len().is_multiple_of(2) => f64::midpoint(low, high),
        (Some(&high), _) => high,
        (None, _) => f64::NAN,
    }
}

/// The geometric mean. NaN without values.
pub fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| {
        (sum + value.ln(), count + 1)
    });
    (sum / f64::from(count)).exp()
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

/// A bound that the centre of a symmetric distribution is not above, with a confidence of 95 %, by
/// the signed-rank test of Wilcoxon. That needs about half as many values as the sign test for the
/// same bound. For fewer than five values it is the largest one, which is less certain.
pub fn at_most(values: &[f64]) -> f64 {
    let mut means = Vec::new();
    for (number, a) in values.iter().enumerate() {
        means.extend(values.iter().skip(number).map(|b| f64::midpoint(*a, *b)));
    }
    let means = sorted(&means);
    let bound = means.len().checked_sub(unlikely_ranks(values.len()) + 1);
    bound
        .and_then(|i| means.get(i))
        .copied()
        .unwrap_or(f64::NAN)
}

/// How many of the smallest sums of signed ranks of `count` values have together a probability of
/// at most 5 %, less the first: a sum of that number or less is that unlikely. 0 also if no sum is.
fn unlikely_ranks(count: usize) -> usize {
    // How many of the sets of ranks from 1 to `count` have each sum, in parts of all sets.
    let mut parts = vec![1.0];
    for rank in 1..=count {
        let mut next = parts.clone();
        next.resize(parts.len() + rank, 0.0);
        for (sum, part) in parts.iter().enumerate() {
            if let Some(with) = next.get_mut(sum + rank) {
                *with += part;
            }
        }
        // Here and not at the end, which would be more than a number holds.
        parts = next.iter().map(|part| part / 2.0).collect();
    }
    let sums = parts.iter().scan(0.0, |sum, part| {
        *sum += part;
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= 0.05)
        .count()
        .saturating_sub(1)
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
    fn geometric_means() {
        assert!((geometric_mean([4.0, 0.25, 8.0].into_iter()) - 2.0).abs() < 1e-9);
        assert!(geometric_mean(std::iter::empty()).is_nan());
    }

    #[test]
    fn signed_ranks_are_those_of_the_tables() {
        // Critical values of the signed-rank test, one-sided, 5 %.
        for (count, sum) in [
            (0, 0),
            (4, 0),
            (5, 0),
            (6, 2),
            (8, 5),
            (10, 10),
            (15, 30),
            (20, 60),
        ] {
            assert_eq!(unlikely_ranks(count), sum, "{count}");
        }
        assert!(at_most(&[]).is_nan());
        let many: Vec<f64> = (0..1200).map(f64::from).collect();
        assert!(
            (600.0..640.0).contains(&at_most(&many)),
            "{}",
            at_most(&many)
        );
        assert!((at_most(&[3.0, 1.0]) - 3.0).abs() < 1e-9);
        // The mean of the two largest is the third of the means from above.
        let six = [1.0, 2.0, 3.0, 4.0, 5.0, 7.0];
        assert!((at_most(&six) - 5.5).abs() < 1e-9, "{}", at_most(&six));
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
