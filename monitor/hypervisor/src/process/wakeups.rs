// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the threads of one machine wake each other: event counters and a signal. The words in the
//! shared area on which other threads sleep are with those threads.

use super::sys;
use crate::thread_signal;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The threads that can be woken.
#[derive(Debug)]
pub struct Wakeups {
    supervisor: OwnedFd,
    /// Thread id of the watch, which sleeps until a signal comes; 0: it does not run.
    watch: AtomicU32,
    /// The debugger's thread, if there is one.
    debugger: OnceLock<OwnedFd>,
}

impl Wakeups {
    /// Makes the supervisor's event counter.
    ///
    /// # Errors
    /// The host gives no event counter.
    pub fn new() -> io::Result<Self> {
        Ok(Wakeups {
            supervisor: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            watch: AtomicU32::new(0),
            debugger: OnceLock::new(),
        })
    }

    /// Wakes the supervisor.
    pub fn wake_supervisor(&self) {
        ring(&self.supervisor);
    }

    /// The event counter that wakes the supervisor.
    pub fn supervisor(&self) -> BorrowedFd<'_> {
        self.supervisor.as_fd()
    }

    /// Sets the thread id of the watch, which sleeps until it gets [`sys::watch_signal`]; 0: it no
    /// longer runs.
    pub fn set_watch(&self, tid: u32) {
        self.watch.store(tid, Ordering::SeqCst);
    }

    /// Wakes the watch, if it runs.
    pub fn wake_watch(&self) {
        let tid = self.watch.load(Ordering::SeqCst);
        if tid != 0 {
            thread_signal::send(std::process::id(), tid, sys::watch_signal());
        }
    }

    /// Sets the event counter that rings whenever a vCPU may have stopped.
    pub fn set_debugger(&self, bell: OwnedFd) {
        let _ = self.debugger.set(bell);
    }

    /// Wakes the debugger's thread. False: there is none.
    pub fn wake_debugger(&self) -> bool {
        let bell = self.debugger.get();
        bell.inspect(|bell| ring(bell)).is_some()
    }
}

fn ring(bell: &OwnedFd) {
    // Fails only when the counter is full: then its reader has not been woken yet.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}
