// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Being asked to end while a guest runs.
//!
//! The default action would end the monitor without removing its temporary files. So the signals are only noted,
//! and whoever waits for a guest looks at the note; everything then ends by the ordinary way out of `main`.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// An error that says: this signal asked us to end, and so we do, with its exit code and no complaint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted by signal {0}")]
pub struct Interrupted(pub u8);

/// Notes the first of SIGINT, SIGTERM and SIGHUP.
#[derive(Clone, Debug)]
pub struct Signals {
    seen: Arc<AtomicUsize>,
    /// Can be read from when a signal has come: for who waits for a guest and for this at once.
    wake: Arc<UnixStream>,
}

impl Signals {
    /// Starts to take note.
    pub fn install() -> io::Result<Self> {
        let seen = Arc::new(AtomicUsize::new(0));
        let (wake, write) = UnixStream::pair()?;
        let again = Arc::new(AtomicBool::new(false));
        for (signal, value) in [(SIGINT, 2), (SIGTERM, 15), (SIGHUP, 1)] {
            // Whoever asks twice does not want to wait for the tidying.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                Arc::clone(&again),
            )?;
            signal_hook::flag::register(signal, Arc::clone(&again))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&seen), value)?;
            // After the note: who is woken finds it.
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Signals {
            seen,
            wake: Arc::new(wake),
        })
    }

    /// Becomes readable when a signal comes, and stays so.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The signal that came, if one did.
    pub fn pending(&self) -> Option<u8> {
        u8::try_from(self.seen.load(Ordering::Relaxed))
            .ok()
            .filter(|&n| n != 0)
    }
}
