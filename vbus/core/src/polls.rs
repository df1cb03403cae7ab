// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long and how often a device polls for work before it asks for a notification again.
//!
//! A poll is a guess that work comes soon. A poll that wins costs nothing: the thread would
//! have slept, and a notification would have woken it. A poll in vain costs CPU time. So polls
//! continue while they win, and each poll in vain makes the next ones rarer. Nothing here reads a
//! clock or makes a host call.

use crate::device::Attribute;
use std::time::{Duration, Instant};

/// The largest number of opportunities that are left out after polls in vain.
pub const PAUSE: u32 = 64;
/// That number after polls in which another program got the CPU: each costs as much as a time
/// slice.
pub const LONG_PAUSE: u32 = 4096;
/// Polls that win before the pause after the next such poll is half as long.
const WINS: u32 = 16;

/// How often opportunities are used.
#[derive(Clone, Debug, Default)]
pub struct Luck {
    /// Times in a row that one was used in vain.
    vain: u32,
    /// Opportunities to leave out.
    pause: u32,
}

impl Luck {
    /// Whether to use an opportunity.
    pub fn take(&mut self) -> bool {
        let used = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        used
    }

    /// An opportunity that was used paid off.
    pub fn paid_off(&mut self) {
        self.vain = 0;
    }

    /// It was used in vain: after two in a row the next 4 are left out, then 8, and so on up to
    /// [`PAUSE`].
    pub fn was_in_vain(&mut self) {
        self.vain = self.vain.saturating_add(1);
        // One in vain is no reason.
        self.pause = match self.vain {
            0 | 1 => 0,
            n => (1 << n.min(16)).min(PAUSE),
        };
    }

    /// How many were used in vain since one paid off.
    #[must_use]
    pub fn vain(&self) -> u32 {
        self.vain
    }
}

/// A time in which a device polls.
#[derive(Debug, Default)]
pub struct Stretch(Option<Instant>);

impl Stretch {
    /// There was nothing to do. Returns whether to look again: until this time has passed since the
    /// first call.
    pub fn goes_on(&mut self, most: Duration, now: Instant) -> bool {
        let since = *self.0.get_or_insert(now);
        now.saturating_duration_since(since) < most
    }

    /// It has ended, or there was something to do. Returns whether there was one.
    pub fn end(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Whether the device polls.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }
}

/// What the thread of the devices has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Turns in which a device had work.
    pub worked: u64,
    /// Times that it yielded the CPU and got it back late.
    pub late: u64,
}

/// The outcomes of the opportunities of a device's connections to poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polls {
    /// Polls during which the thread got work.
    pub won: u64,
    /// Polls during which it got none.
    pub vain: u64,
    /// Opportunities that were left out since earlier polls were in vain.
    pub skipped: u64,
}

impl Polls {
    /// For an administrator.
    pub(crate) fn attributes(&self) -> [Attribute; 3] {
        [
            Attribute::figure("polls-won", self.won),
            Attribute::figure("polls-vain", self.vain),
            Attribute::figure("polls-skipped", self.skipped),
        ]
    }
}

/// The polls of a connection.
#[derive(Debug, Default)]
pub struct Polling {
    /// For a device that decides by itself whether it polls, this is all.
    pub stretch: Stretch,
    /// What the thread had done when the poll began.
    begun: Thread,
    luck: Luck,
    /// Opportunities to leave out after the thread got the CPU back late.
    pause: u32,
    /// How often that was, and polls that have won since.
    late: u32,
    wins: u32,
}

impl Polling {
    /// The device had work for the connection.
    pub fn found(&mut self, polls: &mut Polls) {
        if self.stretch.end() {
            self.won(polls);
        }
    }

    /// There is nothing more to do. Whether the device looks again, for at most `most` after the
    /// work.
    pub fn again(
        &mut self,
        most: Duration,
        thread: Thread,
        now: impl FnOnce() -> Instant,
        polls: &mut Polls,
    ) -> bool {
        if !self.stretch.is_on() {
            if !self.take() {
                polls.skipped += 1;
                return false;
            }
            self.begun = thread;
        }
        let late = thread.late != self.begun.late;
        if !late && self.stretch.goes_on(most, now()) {
            return true;
        }
        self.stretch.end();
        if late {
            polls.vain += 1;
            self.was_late();
        } else if thread.worked != self.begun.worked {
            // The thread would have slept, and been woken for another connection.
            self.won(polls);
        } else {
            polls.vain += 1;
            self.luck.was_in_vain();
        }
        false
    }

    /// The connection ends its poll for another reason, which says nothing about polls.
    pub fn stop(&mut self) {
        self.stretch.end();
    }

    fn take(&mut self) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        self.luck.take()
    }

    fn won(&mut self, polls: &mut Polls) {
        polls.won += 1;
        self.luck.paid_off();
        self.wins += 1;
        if self.wins == WINS {
            (self.wins, self.late) = (0, self.late.saturating_sub(1));
        }
    }

    fn was_late(&mut self) {
        self.pause = (PAUSE << self.late.min(16)).min(LONG_PAUSE);
        (self.wins, self.late) = (0, self.late.saturating_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: Duration = Duration::from_micros(20);

    /// A connection, its device and its thread, with a clock of their own.
    struct Model {
        now: Instant,
        polling: Polling,
        polls: Polls,
        thread: Thread,
    }

    impl Model {
        fn new() -> Self {
            Model {
                now: Instant::now(),
                polling: Polling::default(),
                polls: Polls::default(),
                thread: Thread::default(),
            }
        }

        /// Work comes, and then nothing until `later`. Returns whether the device polls.
        fn works(&mut self, later: Duration) -> bool {
            self.thread.worked += 1;
            self.polling.found(&mut self.polls);
            self.looks(later)
        }

        /// There is nothing at `later`.
        fn looks(&mut self, later: Duration) -> bool {
            self.now += later;
            let now = self.now;
            let again = self
                .polling
                .again(MOST, self.thread, || now, &mut self.polls);
            if !again {
                self.polling.stop();
            }
            again
        }

        /// Work, and then nothing for longer than a poll. Returns whether the device polled.
        fn in_vain(&mut self) -> bool {
            let polled = self.works(Duration::ZERO);
            assert!(!polled || !self.looks(MOST));
            polled
        }

        /// Work for which the device polls, and more work.
        fn wins(&mut self) {
            assert!(self.works(Duration::ZERO));
            self.works(Duration::ZERO);
        }
    }

    /// How many opportunities are left out before the next poll.
    fn skipped(model: &mut Model) -> u64 {
        let before = model.polls.skipped;
        while !model.in_vain() {}
        model.polls.skipped - before
    }

    #[test]
    fn polls_in_vain_become_rare_and_one_that_wins_resets_that() {
        let mut model = Model::new();
        assert!(model.in_vain() && model.in_vain());
        for pause in [4, 8, 16, 32, 64, 64, 64] {
            assert_eq!(skipped(&mut model), pause);
        }
        // It polls in the end, and that wins: as at the beginning.
        while !model.works(Duration::ZERO) {}
        model.wins();
        model.polling.stop();
        assert!(model.in_vain() && model.in_vain());
        assert_eq!(skipped(&mut model), 4);
    }

    #[test]
    fn polls_that_win_go_on() {
        let mut model = Model::new();
        assert!((0..1000).all(|_| model.works(MOST / 2)));
        assert_eq!(
            (model.polls.won, model.polls.vain, model.polls.skipped),
            (999, 0, 0)
        );
    }

    /// Without the poll, the thread would have slept and been woken for the other connection.
    #[test]
    fn work_for_another_connection_is_won_too() {
        let mut model = Model::new();
        for _ in 0..100 {
            assert!(model.works(Duration::ZERO));
            model.thread.worked += 1;
            assert!(!model.looks(MOST));
        }
        assert_eq!((model.polls.won, model.polls.vain), (100, 0));
    }

    /// Each costs as much as a time slice of another program.
    #[test]
    fn polls_that_other_programs_interrupt_become_rarer() {
        let mut model = Model::new();
        let mut late = |pause: u64| {
            let before = model.polls.skipped;
            while !model.works(Duration::ZERO) {}
            assert_eq!(model.polls.skipped - before, pause);
            model.thread.late += 1;
            assert!(!model.looks(Duration::ZERO), "before its time is over");
        };
        for pause in [0, 64, 128, 256, 512, 1024, 2048, 4096, 4096] {
            late(pause);
        }
        assert_eq!((model.polls.won, model.polls.vain), (0, 9));
        // Polls that win make the next pause shorter, and an interruption while it does not poll
        // is none of its own.
        while !model.works(Duration::ZERO) {}
        (0..9 * WINS).for_each(|_| model.wins());
        model.polling.stop();
        model.thread.late += 1;
        assert!(model.works(Duration::ZERO));
        model.thread.late += 1;
        assert!(!model.looks(Duration::ZERO));
        let before = model.polls.skipped;
        while !model.works(Duration::ZERO) {}
        assert_eq!(model.polls.skipped - before, 64);
    }

    /// What happens to a connection: work, none, another connection's work, a late return.
    fn steps() -> impl Strategy<Value = Vec<(u8, u64)>> {
        proptest::collection::vec((0u8..8, 0u64..60), 0..2000)
    }

    proptest! {
        #[test]
        fn no_poll_is_longer_than_the_bound_and_few_are_in_vain(steps in steps()) {
            let mut model = Model::new();
            let mut since = None;
            let mut opportunities = 0;
            for (what, later) in steps {
                let later = Duration::from_micros(later);
                let again = match what {
                    0..=2 => {
                        opportunities += 1;
                        since = None;
                        model.works(later)
                    }
                    3 => {
                        model.thread.worked += 1;
                        continue;
                    }
                    4 if later > MOST * 2 => {
                        model.thread.late += 1;
                        continue;
                    }
                    // Nothing wakes a device that rests.
                    _ if since.is_none() => continue,
                    _ => model.looks(later),
                };
                if again {
                    let begun = *since.get_or_insert(model.now);
                    prop_assert!(model.now - begun < MOST, "it polls for too long");
                } else {
                    since = None;
                }
                let Polls { won, vain, skipped } = model.polls;
                let under_way = u64::from(since.is_some());
                prop_assert_eq!(won + vain + skipped + under_way, opportunities);
            }
        }

        #[test]
        fn what_never_wins_costs_a_poll_in_65(rounds in 1u64..5000) {
            let mut model = Model::new();
            (0..rounds).for_each(|_| {
                model.in_vain();
            });
            prop_assert!(model.polls.vain <= 7 + rounds / 65);
        }
    }
}
