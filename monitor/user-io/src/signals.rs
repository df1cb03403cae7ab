// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals that ask the monitor to end while a guest runs.
//!
//! Their default action would end the monitor without removing its temporary files. Therefore the
//! handlers only record the signal. Whatever waits for a guest checks the record, and the monitor
//! then returns from `main` as usual.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The error of a command that a signal asked to end. The exit code says so; no message is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted by signal {0}")]
pub struct Interrupted(pub u8);

/// The record of this process, once its handlers are installed.
static INSTALLED: Mutex<Option<Signals>> = Mutex::new(None);

/// Records the first of SIGINT, SIGTERM and SIGHUP.
#[derive(Clone, Debug)]
pub struct Signals {
    seen: Arc<AtomicUsize>,
    /// Readable once a signal has come: for waiting for a guest and for signals at once.
    wake: Arc<UnixStream>,
}

impl Signals {
    /// Installs the handlers, the first time. The process has one record: a
    /// signal that one part of it did not look for is found by the next.
    ///
    /// # Errors
    /// The host gives no socket pair or refuses a handler.
    pub fn install() -> io::Result<Self> {
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signals) = &*installed {
            return Ok(signals.clone());
        }
        let signals = Self::install_handlers()?;
        *installed = Some(signals.clone());
        Ok(signals)
    }

    fn install_handlers() -> io::Result<Self> {
        let seen = Arc::new(AtomicUsize::new(0));
        let (wake, write) = UnixStream::pair()?;
        let again = Arc::new(AtomicBool::new(false));
        for (signal, value) in [(SIGINT, 2), (SIGTERM, 15), (SIGHUP, 1)] {
            // A second signal ends the program at once, without cleaning up.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                Arc::clone(&again),
            )?;
            signal_hook::flag::register(signal, Arc::clone(&again))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&seen), value)?;
            // After the record, so that whatever is woken finds it.
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Signals {
            seen,
            wake: Arc::new(wake),
        })
    }

    /// Becomes readable when a signal comes, and stays readable.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The recorded signal, if one has come.
    pub fn pending(&self) -> Option<u8> {
        u8::try_from(self.seen.load(Ordering::Relaxed))
            .ok()
            .filter(|&n| n != 0)
    }
}
