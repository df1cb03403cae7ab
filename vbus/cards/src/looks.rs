// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When it pays off for a card to poll for frames instead of sleeping.
//!
//! There are two cases. The host may answer the guest's frames, often within microseconds if the
//! program that answers is on this host. And a guest that sends many frames will send more. Frames
//! that the card sees by itself cost no notification. Both are guesses, and each that fails in a
//! row makes the next ones rarer.

use crate::counts::Counts;
use crate::host::Way;
use paravane_vbus::polls::Luck;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The guest sends much if its notification comes so soon after the card began to sleep.
const SOON: Duration = Duration::from_micros(50);
/// Times in a row that it did.
const DENSE: u32 = 3;
/// Most frames of a round that is a part of a round trip, and not of a stream: [`weight`].
pub const FEW: u32 = 2;
/// Such rounds in a row before the guest's vCPU is to look, too: a stream has better uses for its
/// CPU.
const TRIPS: u32 = 32;

/// How many frames one counts for: a long one is several segments of a stream.
#[must_use]
pub fn weight(frame: &[u8]) -> u32 {
    u32::try_from(frame.len() / 2048).map_or(u32::MAX, |more| more.saturating_add(1))
}

/// A card that looks, or sleeps instead.
pub struct Looker {
    looks: Looks,
    may: bool,
    way: Way,
    /// The vCPU comes before the next look.
    yields: bool,
    /// Rounds in a row that passed on few frames.
    few: u32,
    /// The last round that passed on frames did not pass on few.
    streams: bool,
    counts: Arc<Counts>,
}

impl Default for Looker {
    fn default() -> Self {
        Looker {
            looks: Looks::default(),
            may: true,
            way: Way::default(),
            yields: false,
            few: 0,
            streams: false,
            counts: Arc::default(),
        }
    }
}

impl fmt::Debug for Looker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.looks.fmt(f)
    }
}

impl Looker {
    /// It sleeps from now on.
    pub fn forbid(&mut self) {
        self.may = false;
    }

    /// Where it expects the way to the guest.
    #[must_use]
    pub fn way(&self) -> Way {
        Arc::clone(&self.way)
    }

    /// There is another guest, maybe.
    pub fn forget(&mut self) {
        self.looks = Looks::default();
        (self.few, self.streams) = (0, false);
        self.tell(false);
    }

    /// Whether the last frames were a part of a stream.
    #[must_use]
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// Where it counts its looks.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// It counts its looks there from now on.
    pub fn count(&mut self, counts: Arc<Counts>) {
        self.counts = counts;
    }

    /// A round begins. Returns whether the card looks in it.
    pub fn begin(&mut self) -> bool {
        if std::mem::take(&mut self.yields) {
            // It may wait for this CPU.
            std::thread::yield_now();
        }
        self.looks.on()
    }

    /// A round has passed on frames of the guest (`taken`), and frames to it (`given`): the sums of
    /// their weights.
    pub fn passed(&mut self, taken: u32, given: u32) {
        if self.looks.on() {
            self.counts.looked();
        }
        if taken.max(given) > FEW {
            (self.few, self.streams) = (0, true);
            self.tell(false);
        } else if taken.max(given) > 0 {
            self.few = self.few.saturating_add(1);
            self.streams = false;
        }
        if taken > 0 {
            self.looks.sent(Instant::now);
        }
        if given > 0 {
            if self.looks.for_answer() {
                self.counts.answered();
            }
            self.looks.came();
        }
    }

    /// There was nothing. Whether to look again. `quiet` is called before it looks for the host's
    /// answer: a file that wakes the card then would only cost time.
    #[must_use]
    pub fn again(&mut self, quiet: impl FnOnce()) -> bool {
        let busy = self.way.get().is_some_and(|peer| peer.busy());
        if !self.may || !self.looks.again(busy) {
            return false;
        }
        if self.looks.for_answer() {
            quiet();
        }
        self.yields = busy;
        if self.few >= TRIPS {
            self.tell(true);
        }
        true
    }

    /// The card begins to sleep.
    pub fn rested(&mut self) {
        self.looks.rested(Instant::now());
        // One look in vain is no reason.
        if self.looks.answers.vain() > 1 {
            self.tell(false);
        }
    }

    /// Reports to the guest's side whether a wait for this card without a sleep pays off.
    fn tell(&self, pays_off: bool) {
        if let Some(peer) = self.way.get() {
            peer.looks(pays_off);
        }
    }
}

/// Whether it pays off to look, and for what.
#[derive(Debug, Default)]
struct Looks {
    /// Something was passed on to the host, and nothing has come since.
    awaited: bool,
    /// It looks for the host's answer now.
    answer: bool,
    answers: Luck,
    /// When the card began to sleep, unless frames of the guest have come since.
    slept: Option<Instant>,
    /// Times in a row that the guest's frames came soon after that.
    dense: u32,
    /// It looks for frames of the guest now.
    frames: bool,
    /// It has looked in vain for them once, and still looks.
    empty: bool,
    senders: Luck,
}

impl Looks {
    /// Frames of the guest were passed on to the host.
    fn sent(&mut self, now: impl FnOnce() -> Instant) {
        if !self.awaited {
            self.awaited = true;
            self.answer = self.answers.take();
        }
        if let Some(slept) = self.slept.take() {
            let soon = now().saturating_duration_since(slept) < SOON;
            self.dense = if soon {
                self.dense.saturating_add(1)
            } else {
                0
            };
        }
        if self.frames && self.empty {
            self.senders.paid_off();
        }
        if !self.frames && self.dense >= DENSE {
            self.frames = self.senders.take();
        }
        self.empty = false;
    }

    /// The guest has something to work on.
    fn came(&mut self) {
        if std::mem::take(&mut self.answer) {
            self.answers.paid_off();
        }
        self.awaited = false;
    }

    /// There was nothing. Whether to look again, for as long as the attribute says; `busy`: the
    /// guest's vCPU runs, or wants to.
    fn again(&mut self, busy: bool) -> bool {
        self.empty = true;
        // A guest that waits sends nothing.
        self.frames &= busy;
        self.on()
    }

    /// It looks for the host's answer.
    fn for_answer(&self) -> bool {
        self.answer
    }

    /// It looks.
    fn on(&self) -> bool {
        self.answer || self.frames
    }

    /// The card begins to sleep: if it still looked, in vain.
    fn rested(&mut self, now: Instant) {
        if std::mem::take(&mut self.answer) {
            self.answers.was_in_vain();
        }
        if std::mem::take(&mut self.frames) {
            self.senders.was_in_vain();
        }
        self.empty = false;
        self.slept = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paravane_vbus::polls::PAUSE;

    /// The card sleeps and is notified after `after` microseconds. Returns whether it looks.
    fn notified(looks: &mut Looks, after: u64) -> bool {
        let now = Instant::now();
        looks.rested(now);
        looks.sent(|| now + Duration::from_micros(after));
        looks.frames
    }

    #[test]
    fn frames_that_come_soon_again_and_again_are_looked_for() {
        let mut looks = Looks::default();
        for expected in [false, false, true] {
            assert_eq!(notified(&mut looks, 5), expected);
        }
        looks.came();
        assert!(looks.again(true) && !looks.for_answer());
        assert!(!looks.again(false), "its vCPU waits");
        // Once late, and nothing is known any more.
        let mut looks = Looks::default();
        for (after, expected) in [(5, false), (5, false), (900, false), (5, false)] {
            assert_eq!(notified(&mut looks, after), expected);
        }
    }

    /// A program that sends rarely, and one whose host does not answer, cost a look now and then.
    #[test]
    fn looks_in_vain_become_rare() {
        let mut looks = Looks::default();
        let all = 4096;
        let mut looked = 0;
        for _ in 0..all {
            notified(&mut looks, 5);
            looked += u32::from(looks.again(true));
        }
        assert!(looked > 3 && looked < all / 32, "{looked} of {all}");
        let mut looks = Looks::default();
        looked = 0;
        for _ in 0..all {
            notified(&mut looks, 500);
            looked += u32::from(looks.again(true));
            assert!(!looks.frames);
            looks.rested(Instant::now());
            looks.came();
        }
        assert!(looked > 3 && looked < all / 32, "{looked} of {all}");
    }

    /// Looks that pay off go on, also after a time in which they did not.
    #[test]
    fn looks_that_pay_off_go_on() {
        let mut looks = Looks::default();
        let answered = |looks: &mut Looks| {
            looks.sent(Instant::now);
            let looked = looks.again(false);
            looks.came();
            looks.rested(Instant::now());
            looked
        };
        assert!((0..100).all(|_| answered(&mut looks)));
        for _ in 0..100 {
            looks.sent(Instant::now);
            looks.rested(Instant::now());
            looks.came();
        }
        let looked = (0..PAUSE + 100).filter(|_| answered(&mut looks)).count();
        assert!(looked >= 100, "{looked}");
        // Frames: found each time, so the card never sleeps.
        let mut looks = Looks::default();
        (0..DENSE).for_each(|_| {
            notified(&mut looks, 5);
        });
        for _ in 0..100 {
            looks.came();
            assert!(looks.again(true));
            looks.sent(Instant::now);
        }
        assert_eq!(looks.senders.vain(), 0);
    }
}
