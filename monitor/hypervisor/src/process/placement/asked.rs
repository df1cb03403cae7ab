// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves of vCPUs that a device asks for (`device_place/disk_cpu.rs`).

use super::super::core::Core;
use super::super::sys;
use super::{allowed, move_all};

/// Moves take at most one part in this number of the time, in the long run. A machine of many
/// processes is slow to move: a host call for each of them.
const PART: u64 = 100;
/// Moves of this time in ns may come before they are due: a vCPU that has moved in vain moves back
/// soon.
const AHEAD: u64 = 2_000_000;

/// Carries out what devices ask for.
#[derive(Debug, Default)]
pub struct Asked {
    /// The time in ns at which all moves so far are due.
    due: u64,
}

impl Asked {
    /// Carries out what a device has asked for, or drops it if there were too many moves of late.
    /// Returns whether one asked.
    pub fn carry_out(&mut self, core: &Core) -> bool {
        let Some((vcpu, cpu)) = core.cpus.take_asked() else {
            return false;
        };
        self.bounded(sys::monotonic, || {
            move_all(core, &exchange(&core.cpus.all(), &allowed(), vcpu, cpu));
        });
        true
    }

    fn bounded(&mut self, now: impl Fn() -> u64, work: impl FnOnce()) {
        let start = now();
        if start.saturating_add(AHEAD * PART) >= self.due {
            work();
            let took = now().saturating_sub(start);
            self.due = self
                .due
                .max(start)
                .saturating_add(took.saturating_mul(PART));
        }
    }
}

/// The vCPUs that move so that `vcpu` is on `cpu`, and their new CPUs. A vCPU that is there takes
/// its place, so that each CPU has as many as before.
fn exchange(placement: &[u32], allowed: &[u32], vcpu: usize, cpu: u32) -> Vec<(usize, u32)> {
    let Some(&from) = placement.get(vcpu) else {
        return Vec::new();
    };
    if from == cpu || !allowed.contains(&cpu) || !allowed.contains(&from) {
        return Vec::new();
    }
    let there = placement.iter().position(|&at| at == cpu);
    let there = there.map(|other| (other, from));
    [(vcpu, cpu)].into_iter().chain(there).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn vcpus_change_places() {
        assert_eq!(exchange(&[0, 1], &[0, 1], 0, 1), [(0, 1), (1, 0)]);
        assert_eq!(exchange(&[0, 1], &[0, 1, 2], 1, 2), [(1, 2)]);
        // Of two that are there, one moves.
        assert_eq!(exchange(&[0, 1, 1], &[0, 1], 0, 1), [(0, 1), (1, 0)]);
        assert_eq!(exchange(&[0], &[0, 1], 0, 1), [(0, 1)]);
    }

    #[test]
    fn moves_that_cannot_be_are_dropped() {
        for (vcpu, cpu) in [(0, 0), (2, 1), (0, 2), (usize::MAX, 1), (0, u32::MAX)] {
            assert_eq!(exchange(&[0, 1], &[0, 1], vcpu, cpu), []);
        }
        // The CPU was taken away: the next look at the placement moves the vCPU.
        assert_eq!(exchange(&[3, 1], &[0, 1], 0, 1), []);
        assert_eq!(exchange(&[u32::MAX], &[0, 1], 0, 1), []);
    }

    #[test]
    fn moves_take_little_of_the_time() {
        let clock = Cell::new(1000);
        let (mut asked, mut moves) = (Asked::default(), 0);
        let (each, all) = (400_000, 10_000_000_000);
        while clock.get() < all {
            asked.bounded(
                || clock.get(),
                || {
                    clock.set(clock.get() + each);
                    moves += 1;
                },
            );
            clock.set(clock.get() + 100_000);
        }
        let most = (all / PART + AHEAD) / each;
        assert!((most - 1..=most + 1).contains(&moves), "{moves}");
    }
}
