// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The terminal while a program in a guest uses it: in raw mode, and restored on every way out.

use paravane_agent_protocol::Size;
use paravane_confine as confine;
use paravane_user_io::signals;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::SigId;
use signal_hook::consts::SIGWINCH;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The byte that leaves the guest: Ctrl-].
pub const LEAVE: u8 = 0x1d;

/// The terminal on standard input. It is in raw mode until this is dropped.
#[derive(Debug)]
pub struct Terminal {
    before: Termios,
    signals: Vec<SigId>,
    /// Readable when the size may have changed.
    resized: UnixStream,
}

impl Terminal {
    /// Whether standard input and standard output are terminals.
    pub fn is_there() -> bool {
        rustix::termios::isatty(rustix::stdio::stdin())
            && rustix::termios::isatty(rustix::stdio::stdout())
    }

    /// Sets raw mode.
    pub fn take() -> io::Result<Self> {
        let before = tcgetattr(rustix::stdio::stdin())?;
        let (resized, write) = UnixStream::pair()?;
        resized.set_nonblocking(true)?;
        let mut registered = vec![signal_hook::low_level::pipe::register(SIGWINCH, write)?];
        for (signal, _) in signals::numbers() {
            let before = before.clone();
            // A second signal ends the program at once, without running `drop`.
            // SAFETY: one system call, which a signal handler may make, and nothing else.
            let action = unsafe {
                signal_hook::low_level::register(signal, move || {
                    let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &before);
                })
            };
            registered.push(action?);
        }
        confine::restore_terminal(Some(&before));
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw)?;
        Ok(Terminal {
            before,
            signals: registered,
            resized,
        })
    }

    /// The current size.
    pub fn size() -> Size {
        match tcgetwinsize(rustix::stdio::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Size {
                columns: size.ws_col,
                rows: size.ws_row,
            },
            // The terminal does not know its size.
            _ => Size {
                columns: 80,
                rows: 24,
            },
        }
    }

    /// For poll: readable when [`Terminal::was_resized`] may return true.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.resized.as_fd()
    }

    /// Whether the size may have changed since the last call.
    pub fn was_resized(&self) -> bool {
        matches!((&self.resized).read(&mut [0; 64]), Ok(n) if n > 0)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        for signal in self.signals.drain(..) {
            signal_hook::low_level::unregister(signal);
        }
        // Fails if the terminal has hung up.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
        confine::restore_terminal(None);
    }
}
