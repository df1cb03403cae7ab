// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the driver learns that its frames were sent.
//!
//! Linux requests an interrupt after each frame, and uses it only to free memory, and to send more
//! if many frames wait. All queues share a line, and the driver looks at all of them at each
//! interrupt: one for a frame that comes in also reports those that went out. So after few and
//! small frames the interrupt waits a little for another.

use rustix::event::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The number of frames that are reported at once.
const FRAMES: usize = 32;
/// The number of bytes that are reported at once: a program that sends much waits for that.
const BYTES: usize = 32 << 10;
/// The longest that a report waits.
const DELAY: Duration = Duration::from_millis(2);

/// Frames that were sent and not yet reported to the driver.
#[derive(Debug, Default)]
pub struct Completions {
    frames: usize,
    bytes: usize,
    timer: Option<OwnedFd>,
    /// When the timer expires.
    expiry: Option<Instant>,
}

/// The next step for the frames that were sent.
#[derive(Debug)]
pub enum Next<'a> {
    /// Nothing.
    Nothing,
    /// Signal the driver.
    Tell,
    /// Wait for this timer, which was started, and then call [`Completions::expired`].
    Wait(&'a OwnedFd),
}

impl Completions {
    /// Makes the timer. Without it each frame is reported at once.
    ///
    /// # Errors
    /// The host's error.
    pub fn prepare(&mut self) -> io::Result<()> {
        self.timer = Some(timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?);
        Ok(())
    }

    /// A frame was sent.
    pub fn add(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes;
    }

    /// Nothing waits: there is another driver.
    pub fn clear(&mut self) {
        (self.frames, self.bytes) = (0, 0);
    }

    /// What to do after a round of work. `covered`: an interrupt for frames to the driver reports
    /// these, too.
    pub fn end_round(&mut self, covered: bool) -> Next<'_> {
        if self.frames == 0 {
            return Next::Nothing;
        }
        let much = !covered && (self.frames >= FRAMES || self.bytes >= BYTES);
        // If an interrupt reports it, there is a timer, too: the driver may have looked just
        // before.
        if !much && self.expiry.is_some() {
            return Next::Nothing;
        }
        if !much && self.start() {
            return self.timer.as_ref().map_or(Next::Nothing, Next::Wait);
        }
        self.clear();
        Next::Tell
    }

    fn start(&mut self) -> bool {
        let value = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(DELAY.subsec_nanos()),
            },
        };
        // Before the timer's: at its expiry this moment has passed.
        let expiry = Instant::now() + DELAY;
        let started = self.timer.as_ref().is_some_and(|timer| {
            timerfd_settime(timer, TimerfdTimerFlags::empty(), &value).is_ok()
        });
        self.expiry = started.then_some(expiry);
        started
    }

    /// Whether the timer has expired and there is something to report. The timer itself is not
    /// read: its next start resets it.
    pub fn expired(&mut self) -> bool {
        if self.expiry.is_none_or(|at| Instant::now() < at) {
            return false;
        }
        self.expiry = None;
        let any = self.frames > 0;
        self.clear();
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn prepared() -> Completions {
        let mut completions = Completions::default();
        completions.prepare().unwrap();
        completions
    }

    #[test]
    fn few_small_frames_wait_for_another_reason() {
        let mut completions = prepared();
        assert!(matches!(completions.end_round(false), Next::Nothing));
        completions.add(100);
        assert!(matches!(completions.end_round(true), Next::Wait(_)));
        completions.add(100);
        // The timer runs.
        assert!(matches!(completions.end_round(false), Next::Nothing));
        assert!(!completions.expired());
        let begun = Instant::now();
        while !completions.expired() {
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
        assert!(begun.elapsed() >= Duration::from_millis(1));
        // Every completion has been reported to the guest.
        assert!(matches!(completions.end_round(false), Next::Nothing));
        completions.add(1);
        assert!(matches!(completions.end_round(false), Next::Wait(_)));
    }

    /// A program that sends much and receives nothing.
    #[test]
    fn much_is_told_at_once() {
        for (count, bytes) in [(FRAMES, 1), (1, BYTES)] {
            let mut completions = prepared();
            (0..count).for_each(|_| completions.add(bytes));
            assert!(matches!(completions.end_round(false), Next::Tell));
            assert!(matches!(completions.end_round(false), Next::Nothing));
            // An interrupt for another reason is as good.
            (0..count).for_each(|_| completions.add(bytes));
            assert!(matches!(completions.end_round(true), Next::Wait(_)));
        }
    }

    #[test]
    fn without_a_timer_nothing_waits() {
        let mut completions = Completions::default();
        completions.add(1);
        assert!(matches!(completions.end_round(true), Next::Tell));
    }

    #[test]
    fn what_another_driver_sent_is_forgotten() {
        let mut completions = prepared();
        completions.add(BYTES);
        completions.clear();
        assert!(matches!(completions.end_round(false), Next::Nothing));
    }
}
