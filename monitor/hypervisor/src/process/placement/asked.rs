// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves of vCPUs that a device asks for (`device_place/disk_cpu.rs`).

use super::super::core::Core;
use super::super::sys;
use super::{allowed, move_all};

/// Moves take at most one part in this number of the time, in the long run. A machine of many
/// processes is slow to move: a host call for each of them.
const PART: u64 = 100;
/// Moves of this time in ns may come before they are due.
const AHEAD: u64 = 2_000_000;

/// A vCPU that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Move {
    vcpu: usize,
    from: u32,
    to: u32,
}

/// Carries out what devices ask for.
#[derive(Debug, Default)]
pub struct Asked {
    /// The time in ns at which all moves so far are due.
    due: u64,
    /// The last move that was no move back.
    last: Vec<Move>,
}

impl Asked {
    /// Carries out what a device has asked for, or drops it if there were too many moves of late. A
    /// vCPU that goes back is always moved: it was moved away once for that. Returns whether one
    /// asked.
    pub fn carry_out(&mut self, core: &Core) -> bool {
        let Some((vcpu, cpu, back)) = core.cpus.take_asked() else {
            return false;
        };
        let moves = self.moves(&core.cpus.all(), &allowed(), (vcpu, cpu), back);
        self.bounded(back, sys::monotonic, || {
            let all: Vec<_> = moves.iter().map(|one| (one.vcpu, one.to)).collect();
            move_all(core, &all);
        });
        true
    }

    /// The moves that bring a vCPU to a CPU. Back, all that have moved for the last trial go back.
    fn moves(
        &mut self,
        placement: &[u32],
        allowed: &[u32],
        (vcpu, cpu): (usize, u32),
        back: bool,
    ) -> Vec<Move> {
        let last = std::mem::take(&mut self.last);
        let as_they_went = |one: &Move| placement.get(one.vcpu) == Some(&one.to);
        let is_this = last
            .first()
            .is_some_and(|one| one.vcpu == vcpu && one.from == cpu);
        if back && is_this && last.iter().all(as_they_went) {
            let undo = |one: &Move| Move {
                vcpu: one.vcpu,
                from: one.to,
                to: one.from,
            };
            return last.iter().map(undo).collect();
        }
        let moves = exchange(placement, allowed, vcpu, cpu);
        if !back {
            self.last.clone_from(&moves);
        }
        moves
    }

    fn bounded(&mut self, back: bool, now: impl Fn() -> u64, work: impl FnOnce()) {
        let start = now();
        if back || start.saturating_add(AHEAD * PART) >= self.due {
            work();
            let took = now().saturating_sub(start);
            let part = took.saturating_mul(PART);
            self.due = self.due.max(start).saturating_add(part);
        }
    }
}

/// The moves after which `vcpu` is on `cpu`. A vCPU that is there takes its place, so that each CPU
/// has as many as before.
fn exchange(placement: &[u32], allowed: &[u32], vcpu: usize, cpu: u32) -> Vec<Move> {
    let Some(&from) = placement.get(vcpu) else {
        return Vec::new();
    };
    if from == cpu || !allowed.contains(&cpu) || !allowed.contains(&from) {
        return Vec::new();
    }
    let there = placement.iter().position(|&at| at == cpu);
    let there = there.map(|vcpu| Move {
        vcpu,
        from: cpu,
        to: from,
    });
    let first = Move {
        vcpu,
        from,
        to: cpu,
    };
    [first].into_iter().chain(there).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// What moves where.
    fn exchanged(placement: &[u32], allowed: &[u32], vcpu: usize, cpu: u32) -> Vec<(usize, u32)> {
        let all = exchange(placement, allowed, vcpu, cpu);
        all.iter().map(|one| (one.vcpu, one.to)).collect()
    }

    #[test]
    fn vcpus_change_places() {
        assert_eq!(exchanged(&[0, 1], &[0, 1], 0, 1), [(0, 1), (1, 0)]);
        assert_eq!(exchanged(&[0, 1], &[0, 1, 2], 1, 2), [(1, 2)]);
        // Of two that are there, one moves.
        assert_eq!(exchanged(&[0, 1, 1], &[0, 1], 0, 1), [(0, 1), (1, 0)]);
        assert_eq!(exchanged(&[0], &[0, 1], 0, 1), [(0, 1)]);
    }

    #[test]
    fn moves_that_cannot_be_are_dropped() {
        for (vcpu, cpu) in [(0, 0), (2, 1), (0, 2), (usize::MAX, 1), (0, u32::MAX)] {
            assert_eq!(exchanged(&[0, 1], &[0, 1], vcpu, cpu), []);
        }
        // The CPU was taken away: the next look at the placement moves the vCPU.
        assert_eq!(exchanged(&[3, 1], &[0, 1], 0, 1), []);
        assert_eq!(exchanged(&[u32::MAX], &[0, 1], 0, 1), []);
    }

    /// More vCPUs than CPUs: the same ones go back.
    #[test]
    fn a_move_back_restores_what_was() {
        let (before, allowed) = ([0, 1, 1, 0], [0, 1]);
        let mut placement = before;
        let mut asked = Asked::default();
        for (cpu, back) in [(1, false), (0, true)] {
            for one in asked.moves(&placement, &allowed, (3, cpu), back) {
                assert_eq!(placement[one.vcpu], one.from);
                placement[one.vcpu] = one.to;
            }
        }
        assert_eq!(placement, before);
        // The vCPU was moved for another reason since.
        asked.moves(&placement, &allowed, (3, 1), false);
        let back = asked.moves(&[1, 1, 1, 0], &allowed, (3, 1), true);
        assert_eq!(back.len(), 2);
    }

    #[test]
    fn moves_take_little_of_the_time_and_a_move_back_is_made() {
        let clock = Cell::new(1000);
        let (mut asked, mut moves) = (Asked::default(), 0);
        let (each, all) = (400_000, 10_000_000_000);
        let mut ask = |back: bool| {
            let before = clock.get();
            asked.bounded(back, || clock.get(), || clock.set(clock.get() + each));
            clock.get() != before
        };
        while clock.get() < all {
            if ask(false) {
                moves += 1;
            } else {
                clock.set(clock.get() + 100_000);
            }
        }
        let most = (all / PART + AHEAD) / each;
        assert!((most - 1..=most + 1).contains(&moves), "{moves}");
        while ask(false) {}
        assert!(ask(true));
    }
}
