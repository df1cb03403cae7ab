// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pinned thread follows a program that changes its vCPU.
//!
//! A guest's kernel may move a program to another vCPU at any time, and the program then waits for
//! the device there. Each request then needs the starts of two idle CPUs, until the next decision
//! for a place. A move of the thread costs about as much as one such request.

/// The thread moves after at least this many successive interrupts for vCPUs on another CPU.
const AFTER: u32 = 2;
/// The most. After as many interrupts there is a decision for a place.
const AFTER_MOST: u32 = 32;
/// A move came too soon if fewer than this many times [`Hop::after`] interrupts precede it.
const PAYS_OFF: u32 = 8;

/// Interrupts since the last decision for a place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub all: u32,
    /// Those whose vCPU waited.
    pub waited: u32,
}

/// Counts where interrupts go.
#[derive(Debug)]
pub struct Hop {
    /// The counts at the last look.
    seen: Counts,
    /// Successive interrupts for vCPUs on another CPU.
    away: u32,
    /// The thread moves after this many of them.
    after: u32,
    /// Interrupts since the last move. The first move is not too soon.
    stayed: u32,
}

impl Hop {
    /// Without a move so far.
    pub fn new() -> Self {
        Hop {
            seen: Counts::default(),
            away: 0,
            after: AFTER,
            stayed: AFTER_MOST * PAYS_OFF,
        }
    }

    /// Looks at the counts after a round of work; `away`: the vCPU that notified the device last is
    /// on another CPU than the thread. Returns whether the thread is to move there. The interrupts
    /// of one round count as one. Those of a vCPU that computed count as if it was on this CPU:
    /// there, the thread would take time from it.
    pub fn look(&mut self, counts: Counts, away: bool) -> bool {
        let before = std::mem::replace(&mut self.seen, counts);
        if counts.all == before.all {
            return false;
        }
        self.interrupt(away && counts.waited != before.waited)
    }

    /// There was a decision for a place; `counts`: those after it.
    pub fn decided(&mut self, counts: Counts) {
        (self.seen, self.away) = (counts, 0);
    }

    /// Counts an interrupt.
    ///
    /// A program that changes its vCPU all the time makes moves rare: each one that came too soon
    /// doubles the number of interrupts for the next, and each other one halves it.
    fn interrupt(&mut self, away: bool) -> bool {
        self.stayed = self.stayed.saturating_add(1);
        self.away = if away { self.away + 1 } else { 0 };
        if self.away < self.after {
            return false;
        }
        let paid = self.stayed >= PAYS_OFF * self.after;
        self.after = if paid {
            (self.after / 2).max(AFTER)
        } else {
            (self.after * 2).min(AFTER_MOST)
        };
        (self.away, self.stayed) = (0, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Interrupts with the thread on the wrong CPU, and moves, for a program that changes its CPU
    /// after each of these numbers of interrupts.
    fn run(stays: impl IntoIterator<Item = u32>) -> (u32, u32) {
        let (mut hop, mut thread, mut program) = (Hop::new(), 0, 0);
        let (mut wrong, mut moves) = (0, 0);
        for stay in stays {
            for _ in 0..stay {
                let away = thread != program;
                wrong += u32::from(away);
                if hop.interrupt(away) {
                    thread = program;
                    moves += 1;
                }
            }
            program = 1 - program;
        }
        (wrong, moves)
    }

    #[test]
    fn a_thread_follows_after_two_interrupts() {
        assert_eq!(run([50; 11]), (2 * 10, 10));
        assert_eq!(run([1000]), (0, 0));
    }

    #[test]
    fn single_interrupts_of_another_vcpu_move_nothing() {
        assert_eq!(run([7, 1].repeat(100)), (100, 0));
        assert_eq!(run([1, 1].repeat(100)), (100, 0));
    }

    #[test]
    fn a_program_that_changes_its_vcpu_all_the_time_is_not_followed() {
        for stay in 2..16 {
            let (_, moves) = run(vec![stay; 1000]);
            assert!(moves <= 5, "{stay}: {moves}");
        }
    }

    /// Moves become frequent again.
    #[test]
    fn a_program_that_settles_is_followed_soon_again() {
        let mut stays = vec![3; 100];
        stays.extend([600; 20]);
        let (wrong, moves) = run(stays.iter().copied());
        let (before, moves_before) = run(stays[..100].iter().copied());
        assert!(moves - moves_before >= 18);
        assert!(wrong - before < 32 + 16 + 8 + 4 + 17 * 2);
    }

    fn counts(all: u32, waited: u32) -> Counts {
        Counts { all, waited }
    }

    #[test]
    fn a_round_without_an_interrupt_counts_none() {
        let mut hop = Hop::new();
        assert!(!hop.look(counts(1, 1), true));
        assert!(!hop.look(counts(1, 1), true));
        assert!(hop.look(counts(2, 2), true));
    }

    #[test]
    fn a_vcpu_that_computes_is_not_followed() {
        let mut hop = Hop::new();
        for all in 1..100 {
            assert!(!hop.look(counts(all, 0), true), "{all}");
        }
        assert!(!hop.look(counts(100, 1), true));
        assert!(hop.look(counts(101, 2), true));
    }

    /// The counts are 0 after a decision: as many interrupts as before are new ones.
    #[test]
    fn a_decision_begins_again() {
        let mut hop = Hop::new();
        assert!(!hop.look(counts(32, 32), true));
        hop.decided(counts(0, 0));
        assert!(!hop.look(counts(0, 0), true));
        assert!(!hop.look(counts(32, 32), true));
        assert!(hop.look(counts(33, 33), true));
    }

    proptest! {
        /// There is at most one move in twelve interrupts, after a few at first.
        #[test]
        fn moves_are_bounded(stays in prop::collection::vec(1..200u32, 1..200)) {
            let total: u32 = stays.iter().sum();
            let (_, moves) = run(stays);
            prop_assert!(moves <= 5 + total / 12, "{moves} moves in {total} interrupts");
        }
    }
}
