// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU clocks of other processes, and timers on them: a thread can sleep until a process has been
//! busy.

use super::sys::{self, SECOND};
use std::io;

/// The CPU clock of a process: the CPU time of all its threads.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(libc::clockid_t);

impl CpuClock {
    pub fn of(pid: u32) -> io::Result<Self> {
        let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
        let mut clock = 0;
        // SAFETY: writes to the local value only.
        match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
            0 => Ok(CpuClock(clock)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Nanoseconds; `None` once the process has ended.
    pub fn read(self) -> Option<u64> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: writes to the local value only.
        if unsafe { libc::clock_gettime(self.0, &raw mut time) } != 0 {
            return None;
        }
        Some(u64::try_from(time.tv_sec).ok()? * SECOND + u64::try_from(time.tv_nsec).ok()?)
    }
}

/// A timer that sends the watch's signal to the thread that created it, once, after some CPU time
/// of a process.
#[derive(Debug)]
pub struct CpuTimer(libc::timer_t);

impl CpuTimer {
    pub fn new(clock: CpuClock) -> io::Result<Self> {
        // SAFETY: the calls write to local values only; `sigevent` is plain data, for which zero is
        // valid.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = sys::watch_signal();
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer = std::ptr::null_mut();
            if libc::timer_create(clock.0, &raw mut event, &raw mut timer) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(CpuTimer(timer))
        }
    }

    /// Arms the timer: it fires after this much more CPU time. Does nothing once the process has
    /// ended.
    pub fn set(&self, ns: u64) {
        let spec = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: 0,
                tv_nsec: i64::try_from(ns).unwrap_or(i64::MAX),
            },
        };
        // SAFETY: the timer exists until this value is dropped; the new setting is a local value.
        unsafe {
            libc::timer_settime(self.0, 0, &raw const spec, std::ptr::null_mut());
        }
    }
}

impl Drop for CpuTimer {
    fn drop(&mut self) {
        // SAFETY: `new` created the timer, and it is deleted once.
        unsafe {
            libc::timer_delete(self.0);
        }
    }
}
