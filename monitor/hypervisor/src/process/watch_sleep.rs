// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the watch sleeps: until it is time, a signal comes, or the host's wall clock is set.

use super::sys::{self, SECOND};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Signals that are taken at once. Those that are left end the next sleep.
const SIGNALS: usize = 16;

/// The files on which the watch waits. They are opened before it is confined.
#[derive(Debug)]
pub struct WatchSleep {
    signals: OwnedFd,
    clock_set: OwnedFd,
}

/// What ended a sleep besides the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// [`sys::watch_signal`] came.
    pub by_signal: bool,
    /// The host's wall clock was set, or the host was suspended.
    pub by_clock: bool,
}

impl WatchSleep {
    /// Opens the files. Any thread may do that.
    ///
    /// # Errors
    /// The host has no more descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(WatchSleep {
            signals: signals()?,
            clock_set: clock_set()?,
        })
    }

    /// Blocks the signal for this thread, which is to wait for it.
    pub fn begin(&self) {
        let set = signal_set();
        // SAFETY: changes the mask of this thread.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        }
    }

    /// Waits for at most this time.
    pub fn wait(&self, ns: u64) -> Woken {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let timeout = Timespec {
            tv_sec: signed(ns / SECOND),
            tv_nsec: signed(ns % SECOND),
        };
        let mut files = [
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.clock_set, PollFlags::IN),
        ];
        // An error is the ordinary end by a signal of another kind: the caller looks again.
        if poll(&mut files, Some(&timeout)).unwrap_or(0) == 0 {
            return Woken::default();
        }
        let mut taken = [0; SIGNALS * size_of::<libc::signalfd_siginfo>()];
        let mut expired = [0; size_of::<u64>()];
        Woken {
            by_signal: rustix::io::read(&self.signals, &mut taken).is_ok(),
            // The host cancels the timer when its clock is set. The next time it does so again.
            by_clock: matches!(
                rustix::io::read(&self.clock_set, &mut expired),
                Ok(_) | Err(Errno::CANCELED)
            ),
        }
    }
}

fn signal_set() -> libc::sigset_t {
    // SAFETY: the calls write to the local value, for which zero is valid.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, sys::watch_signal());
        set
    }
}

fn signals() -> io::Result<OwnedFd> {
    let set = signal_set();
    // SAFETY: reads the local value only. The result is a new descriptor or an error.
    unsafe {
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            file => Ok(OwnedFd::from_raw_fd(file)),
        }
    }
}

/// A timer of the wall clock that never expires. Setting the clock cancels it, and so does the end
/// of a suspend, which makes it readable.
fn clock_set() -> io::Result<OwnedFd> {
    #[cfg(feature = "test-hooks")]
    if let Some(at) = super::host_clocks::bent::event() {
        return timer(TimerfdClockId::Monotonic, TimerfdTimerFlags::ABSTIME, at);
    }
    timer(
        TimerfdClockId::Realtime,
        TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET,
        // Centuries away.
        i64::MAX.unsigned_abs(),
    )
}

fn timer(clock: TimerfdClockId, flags: TimerfdTimerFlags, at: u64) -> io::Result<OwnedFd> {
    let timer = timerfd_create(clock, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    let value = Itimerspec {
        it_interval: Timespec::default(),
        it_value: sys::timespec(at),
    };
    match timerfd_settime(&timer, flags, &value) {
        // The clock was set at this very moment. The timer is set nevertheless.
        Ok(_) | Err(Errno::CANCELED) => Ok(timer),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread_signal;

    #[test]
    fn a_sleep_ends_by_a_signal_by_the_clock_or_in_time() {
        let mut sleep = WatchSleep::new().unwrap();
        sleep.begin();
        let start = sys::monotonic();
        assert_eq!(sleep.wait(2_000_000), Woken::default());
        assert!(sys::monotonic() >= start + 2_000_000);
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        thread_signal::send(std::process::id(), id.unsigned_abs(), sys::watch_signal());
        let woken = sleep.wait(60 * SECOND);
        assert!(woken.by_signal && !woken.by_clock);
        assert_eq!(sleep.wait(0), Woken::default());
        // No test sets the host's clock. A timer that expires looks the same to poll.
        let soon = sys::monotonic() + 1_000_000;
        sleep.clock_set =
            timer(TimerfdClockId::Monotonic, TimerfdTimerFlags::ABSTIME, soon).unwrap();
        let woken = sleep.wait(60 * SECOND);
        assert!(woken.by_clock && !woken.by_signal);
        assert_eq!(sleep.wait(0), Woken::default());
    }
}
