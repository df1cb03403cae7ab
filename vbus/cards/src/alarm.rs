// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A timer that wakes a card.

use crate::host::Waker;
use rustix::event::Timespec;
use rustix::event::epoll::EventFlags;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The timer of a card.
#[derive(Debug)]
pub struct Alarm {
    timer: OwnedFd,
    waker: Waker,
    /// When it expires.
    at: Option<Instant>,
}

impl Alarm {
    /// A timer of the card that this wakes.
    ///
    /// # Errors
    /// The host's error.
    pub fn new(waker: &Waker) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Alarm {
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            waker: waker.clone(),
            at: None,
        })
    }

    /// Wakes the card after this time, unless it will be woken anyway.
    pub fn after(&mut self, time: Duration) {
        let now = Instant::now();
        if self.at.is_some_and(|at| now < at) {
            return;
        }
        let value = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(time.subsec_nanos()).max(1),
            },
        };
        // A start resets one that has expired, so the timer is not read. Before it, or the moment
        // could still be to come when the card is woken.
        let at = now + time;
        let started = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value).is_ok()
            && self.waker.arm(self.timer.as_fd(), EventFlags::IN).is_ok();
        self.at = started.then_some(at);
    }
}
