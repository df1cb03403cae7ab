// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals to a restarter, for its monitor.
//!
//! A terminal and timeout(1) send a signal to the whole process group, and so to both. A monitor
//! must get it once: a second one ends it at once. Therefore a monitor with a restarter ignores
//! SIGINT, SIGTERM and SIGHUP, and takes real-time signals for them, which the restarter sends.

#![expect(unsafe_code, reason = "signal masks and signalfd()")]

use paravane_user_io::signals;
use rustix::process::Pid;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// The signals that ask for the end.
const ENDS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// A signal for a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// The signal to this process, if it asks for the end.
    pub asked: Option<u8>,
    /// The signal that a monitor takes for it.
    number: i32,
}

impl Relayed {
    /// Sends it to a monitor that has not been reaped.
    pub fn send(self, monitor: Pid) {
        // SAFETY: kill() takes plain numbers and accesses no memory of this process. It fails if
        // the monitor has just ended.
        unsafe { libc::kill(monitor.as_raw_nonzero().get(), self.number) };
    }
}

/// The signals to this process, which are blocked.
#[derive(Debug)]
pub struct Relay {
    file: OwnedFd,
    before: Mask,
}

/// A set of signals.
#[derive(Clone, Copy)]
struct Mask(libc::sigset_t);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mask")
    }
}

impl Relay {
    /// Blocks the signals. The process must have one thread.
    ///
    /// # Errors
    /// The host gives no descriptor.
    pub fn new() -> io::Result<Self> {
        let (mut wanted, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: each call gets a valid pointer to a set. sigemptyset() initializes `wanted`, and
        // pthread_sigmask() `before`: it fails only for an unknown first argument.
        let (file, before) = unsafe {
            libc::sigemptyset(wanted.as_mut_ptr());
            for signal in ENDS.into_iter().chain([libc::SIGQUIT]) {
                libc::sigaddset(wanted.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, wanted.as_ptr(), before.as_mut_ptr());
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let file = libc::signalfd(-1, wanted.as_ptr(), flags);
            (file, before.assume_init())
        };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Relay {
            // SAFETY: signalfd() has just returned this descriptor, which nothing else owns.
            file: unsafe { OwnedFd::from_raw_fd(file) },
            before: Mask(before),
        })
    }

    /// For poll: readable when [`Relay::next`] may return a signal.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The next signal that has come.
    pub fn next(&self) -> Option<Relayed> {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        loop {
            let mut bytes = [0; SIZE];
            if rustix::io::read(&self.file, &mut bytes) != Ok(SIZE) {
                return None;
            }
            // SAFETY: the structure is plain data of this size, and all its values are valid.
            let came: libc::signalfd_siginfo = unsafe { std::mem::transmute(bytes) };
            let number = i32::try_from(came.ssi_signo).unwrap_or(0);
            if ENDS.contains(&number) {
                return Some(Relayed {
                    asked: u8::try_from(number).ok(),
                    number: number + libc::SIGRTMIN(),
                });
            }
            // A terminal sends SIGQUIT to the monitor, too. A second one does nothing there.
            if came.ssi_code <= 0 {
                return Some(Relayed {
                    asked: None,
                    number,
                });
            }
        }
    }

    /// For a new monitor: unblocks the signals, and takes the restarter's for them.
    pub fn leave(self) {
        signals::are_relayed(libc::SIGRTMIN());
        // SAFETY: the set is initialized, and no old one is asked for.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before.0,
                std::ptr::null_mut(),
            )
        };
    }
}
