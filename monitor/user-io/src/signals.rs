// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals that ask the monitor to end while a guest runs.
//!
//! Their default action would end the monitor without removing its temporary files. Therefore the
//! handlers only record the signal. Whatever waits for a guest checks the record, and the monitor
//! then returns from `main` as usual.

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The signal of a terminal that was closed.
pub const HANGUP: u8 = 1;

/// The error of a command that a signal asked to end. The exit code says so; no message is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted by signal {0}")]
pub struct Interrupted(pub u8);

/// The record of this process, once its handlers are installed.
static INSTALLED: Mutex<Option<Installed>> = Mutex::new(None);

struct Installed {
    signals: Signals,
    handlers: Vec<SigId>,
}

/// What is added to the numbers of the signals.
static OFFSET: AtomicI32 = AtomicI32::new(0);

/// Says that another process relays SIGINT, SIGTERM and SIGHUP, as the signals with these numbers
/// plus `offset`. The signals themselves then have no effect. Handlers that were installed before
/// are removed, with their record.
pub fn are_relayed(offset: i32) {
    OFFSET.store(offset, Ordering::Relaxed);
    let before = installed().take();
    for handler in before.into_iter().flat_map(|before| before.handlers) {
        signal_hook::low_level::unregister(handler);
    }
}

/// The signal that this process has recorded, if it has installed its handlers and one has come.
pub fn recorded() -> Option<u8> {
    installed().as_ref()?.signals.pending()
}

fn installed() -> MutexGuard<'static, Option<Installed>> {
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The signals that ask for the end: the number that this process takes, and its meaning.
pub fn numbers() -> [(i32, i32); 3] {
    let offset = OFFSET.load(Ordering::Relaxed);
    [SIGINT, SIGTERM, SIGHUP].map(|signal| (signal + offset, signal))
}

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
        let mut installed = installed();
        if let Some(installed) = &*installed {
            return Ok(installed.signals.clone());
        }
        let new = Self::install_handlers()?;
        let signals = new.signals.clone();
        *installed = Some(new);
        Ok(signals)
    }

    fn install_handlers() -> io::Result<Installed> {
        let mut handlers = Vec::new();
        let seen = Arc::new(AtomicUsize::new(0));
        let (wake, write) = UnixStream::pair()?;
        let again = Arc::new(AtomicBool::new(false));
        for (signal, meaning) in numbers() {
            if signal != meaning {
                // Programs that this one starts do not inherit a handler.
                handlers.push(signal_hook::flag::register(meaning, Arc::default())?);
            }
            let value = usize::try_from(meaning).unwrap_or(0);
            // A second signal ends the program at once, without cleaning up.
            handlers.extend([
                signal_hook::flag::register_conditional_shutdown(
                    signal,
                    128 + meaning,
                    Arc::clone(&again),
                )?,
                signal_hook::flag::register(signal, Arc::clone(&again))?,
                signal_hook::flag::register_usize(signal, Arc::clone(&seen), value)?,
                // After the record, so that whatever is woken finds it.
                signal_hook::low_level::pipe::register(signal, write.try_clone()?)?,
            ]);
        }
        let wake = Arc::new(wake);
        Ok(Installed {
            signals: Signals { seen, wake },
            handlers,
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
