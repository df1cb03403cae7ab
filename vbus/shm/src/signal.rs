// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! shm-signal: an edge-triggered notification with three flags in shared memory (Haskins,
//! "virtual-bus", 2009).
//!
//! | | injector | the side itself |
//! |---|---|---|
//! | 1 | stores work, marks `dirty` | clears `dirty` (a wake-up) or sets `enabled` |
//! | 2 | full barrier | full barrier |
//! | 3 | reads `enabled`, sets `pending`, notifies if it was clear | looks for work, for `dirty` |
//!
//! `pending` stays set while the side works, so that the injector does not notify it again. A
//! disabled side still collects `dirty`. A superfluous notification is possible and harmless.
//! Both sides write `dirty` and `pending`, always by an exchange: so one of two writes has seen the
//! other, with all that was stored before it. `tests/loom.rs` runs both sides in every order that
//! the memory model allows.

use crate::atomic::{AtomicU32, Ordering, fence};
use crate::fault::{self, Fault};

/// The notifications to one side. A peer may write any number; it can only make this side look for
/// work too often or too rarely, which harms the peer.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The side wants to be notified.
    pub enabled: &'a AtomicU32,
    /// A notification is on its way.
    pub pending: &'a AtomicU32,
    /// There may be work.
    pub dirty: &'a AtomicU32,
}

/// What a wake-up leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Left {
    /// No work that a notification would not announce, or notifications are disabled.
    Nothing,
    /// Perhaps work, for which no notification will come: the caller wakes up again.
    More,
}

impl<'a> From<&'a crate::layout::Side> for Side<'a> {
    fn from(words: &'a crate::layout::Side) -> Self {
        Side {
            enabled: &words.enabled,
            pending: &words.pending,
            dirty: &words.dirty,
        }
    }
}

impl Side<'_> {
    /// The other side has stored work. Returns whether the caller must notify this side.
    #[must_use]
    pub fn inject(self) -> bool {
        self.dirty.swap(1, Ordering::SeqCst);
        if !fault::is(Fault::InjectWithoutBarrier) {
            fence(Ordering::SeqCst);
        }
        self.enabled.load(Ordering::Relaxed) != 0
            && self.pending.load(Ordering::Relaxed) == 0
            && self.pending.swap(1, Ordering::SeqCst) == 0
    }

    /// Asks for notifications. [`Left::More`]: work came before, so the caller wakes up by itself.
    pub fn enable(self) -> Left {
        self.enabled.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if fault::is(Fault::EnableWithoutLook) {
            return Left::Nothing;
        }
        self.left()
    }

    /// Stops notifications. One that is on its way still comes.
    pub fn disable(self) {
        if !fault::is(Fault::NeverDisables) {
            self.enabled.store(0, Ordering::Relaxed);
        }
    }

    /// Does what a notification asks for: runs `work` while there may be work and notifications are
    /// enabled, at most `rounds` times. `work` may disable them, and goes on by itself then.
    pub fn wake_up(self, rounds: u32, mut work: impl FnMut()) -> Left {
        for _ in 0..rounds {
            if self.left() == Left::Nothing {
                return Left::Nothing;
            }
            // Also when no notification led here: one would be superfluous.
            self.pending.swap(1, Ordering::SeqCst);
            self.look();
            work();
            if fault::is(Fault::DirtyClearedLate) {
                self.dirty.swap(0, Ordering::SeqCst);
            }
            if self.enabled.load(Ordering::Relaxed) == 0 || self.dirty.load(Ordering::Acquire) == 0
            {
                self.pending.swap(0, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                if fault::is(Fault::EndWithoutLook) {
                    return Left::Nothing;
                }
            }
        }
        self.left()
    }

    /// The side is about to look for work by itself: forgets what was announced until now.
    pub fn look(self) {
        if !fault::is(Fault::DirtyClearedLate) {
            self.dirty.swap(0, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
    }

    /// Prepares for sleep after a phase without notifications: clears `pending` and enables them.
    pub fn rest(self) -> Left {
        self.pending.swap(0, Ordering::SeqCst);
        self.enable()
    }

    fn left(self) -> Left {
        let work = self.dirty.load(Ordering::Acquire) | self.pending.load(Ordering::Relaxed);
        if work != 0 && self.enabled.load(Ordering::Relaxed) != 0 {
            Left::More
        } else {
            Left::Nothing
        }
    }
}
