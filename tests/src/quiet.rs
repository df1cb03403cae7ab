// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tries on a host that may be busy. A failed try counts only if the host was quiet. Most of the
//! tries that count must succeed.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::skip::skip_part;
use crate::tree;
use crate::worker::Worker;
use std::fs;
use std::time::{Duration, Instant};

/// Of so many tries that count, most have to be right.
const ENOUGH: usize = 5;
/// There are no more tries than this.
const TRIES: usize = 20;

/// What the programs of the host do during a try.
#[derive(Debug)]
pub struct Watch {
    begun: Instant,
    others: Duration,
}

impl Watch {
    /// Begins a try with this machine.
    #[must_use]
    pub fn begin(machine: &Worker) -> Self {
        Watch {
            begun: Instant::now(),
            others: time_of_others(machine),
        }
    }

    /// Whether other programs had less than a tenth of the processors in the try, which is over. A
    /// program that this test has started and that has ended since is one of them.
    #[must_use]
    pub fn was_quiet(&self, machine: &Worker) -> bool {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let all = self.begun.elapsed() * u32::try_from(cpus).unwrap();
        time_of_others(machine).saturating_sub(self.others) * 10 < all
    }
}

/// CPU time of all programs of the host but this machine's and this one, and what the host's own
/// host has taken.
///
/// # Panics
/// When the host does not report it.
#[must_use]
pub fn time_of_others(machine: &Worker) -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let words = stat.lines().next().unwrap().split_whitespace().skip(1);
    let ticks: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    // All but idle and iowait: user, nice, system, irq, softirq, steal.
    let busy = ticks[..3].iter().sum::<u64>() + ticks[5..8].iter().sum::<u64>();
    let mut own = tree::everything(machine.pid());
    own.push(std::process::id());
    Duration::from_millis(busy * 10).saturating_sub(Duration::from_nanos(tree::cpu_time(&own)))
}

/// How a try went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try {
    /// The host was quiet.
    pub quiet: bool,
    /// It was right.
    pub right: bool,
}

/// Tries until most of [`ENOUGH`] tries that count were right, or wrong. On a host that is too busy
/// for that, a right one will do, and the test is reported as skipped in part.
///
/// # Panics
/// When most were wrong, or all on a busy host.
pub fn mostly(what: &str, one: impl FnMut() -> Try) {
    let [right, wrong, busy] = tries(one);
    let all = right + wrong;
    let said = format!("{what}: {right} of {all} tries were right; {busy} wrong on a busy host");
    println!("{said}");
    assert!(right > wrong, "{said}");
    if right <= ENOUGH / 2 {
        skip_part(&format!("the host is too busy. {said}"));
    }
}

/// How many tries were right, wrong, and wrong on a busy host.
fn tries(mut one: impl FnMut() -> Try) -> [usize; 3] {
    let [mut right, mut wrong, mut busy] = [0; 3];
    while right.max(wrong) <= ENOUGH / 2 && right + wrong + busy < TRIES {
        match one() {
            Try { right: true, .. } => right += 1,
            Try { quiet: true, .. } => wrong += 1,
            _ => busy += 1,
        }
    }
    [right, wrong, busy]
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: (bool, bool) = (true, true);
    const WRONG: (bool, bool) = (true, false);
    const BUSY: (bool, bool) = (false, false);

    /// The result of tries that go so; the last one repeats.
    fn of(all: &[(bool, bool)]) -> [usize; 3] {
        let mut made = all.iter().chain(all.last().into_iter().cycle());
        tries(|| {
            let &(quiet, right) = made.next().unwrap();
            Try { quiet, right }
        })
    }

    #[test]
    fn most_of_the_tries_that_count_decide() {
        assert_eq!(of(&[RIGHT]), [3, 0, 0]);
        assert_eq!(of(&[WRONG]), [0, 3, 0]);
        assert_eq!(of(&[WRONG, WRONG, RIGHT]), [3, 2, 0]);
        assert_eq!(of(&[RIGHT, RIGHT, WRONG]), [2, 3, 0]);
        // A failure on a busy host does not count; a success does.
        assert_eq!(of(&[BUSY, BUSY, WRONG]), [0, 3, 2]);
        assert_eq!(of(&[BUSY, BUSY, (false, true)]), [3, 0, 2]);
        assert_eq!(of(&[RIGHT, BUSY]), [1, 0, TRIES - 1]);
        assert_eq!(of(&[BUSY]), [0, 0, TRIES]);
    }

    #[test]
    #[should_panic(expected = "it: 0 of 3 tries were right; 0 wrong on a busy host")]
    fn most_have_to_be_right() {
        mostly("it", || Try {
            quiet: true,
            right: false,
        });
    }

    #[test]
    #[should_panic(expected = "it: 0 of 0 tries were right; 20 wrong on a busy host")]
    fn one_has_to_be_right_on_a_busy_host() {
        mostly("it", || Try {
            quiet: false,
            right: false,
        });
    }
}
