// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends the monitor when one of its threads makes a host call that its policy does not admit.
//!
//! The kernel does not execute the call and sends the thread a SIGSYS, which cannot be blocked or
//! ignored in that case. The handler restores the terminal, reports the call and ends the process.
//! The kernel then ends the machine's processes. The report may have no reader, so it does not wait
//! for long: otherwise a guest that fills standard error first would keep its machine.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio::stderr;
use rustix::termios::Termios;
use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Exit code: the machine failed.
const FAILED: libc::c_int = 1;
/// `si_code` of a signal that a filter raised.
const SYS_SECCOMP: libc::c_int = 1;

/// How long the report waits for its reader.
const PATIENCE: Duration = Duration::from_millis(100);
/// Bytes that standard error takes without blocking when it is writable: a pipe takes any line, a
/// terminal one byte.
static PIECE: AtomicUsize = AtomicUsize::new(1);

thread_local! {
    /// The name of this thread's policy.
    static NAME: Cell<&'static str> = const { Cell::new("?") };
}

/// The terminal's settings before a guest program got it. Never freed: a handler may read it at any
/// time.
static TERMINAL: AtomicPtr<Termios> = AtomicPtr::new(ptr::null_mut());

/// Sets how to restore the terminal on standard input; `None` if it is unchanged.
pub fn restore_terminal(before: Option<&Termios>) {
    // This leaks once for each time that a guest program gets the terminal.
    let leaked = before.map_or(ptr::null_mut(), |before| {
        Box::into_raw(Box::new(before.clone()))
    });
    TERMINAL.store(leaked, Ordering::Release);
}

/// Installs the handler. It reports violations by this thread under this name.
pub fn watch(name: &'static str) -> io::Result<()> {
    static INSTALLED: OnceLock<Option<i32>> = OnceLock::new();
    NAME.set(name);
    match INSTALLED.get_or_init(|| install().err().and_then(|error| error.raw_os_error())) {
        None => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(*error)),
    }
}

fn install() -> io::Result<()> {
    if !rustix::termios::isatty(stderr()) {
        PIECE.store(Line::LENGTH, Ordering::Relaxed);
    }
    // SAFETY: `sigaction` is plain data, for which zero is valid. The handler only makes system
    // calls and reads memory that is never freed.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut())
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `siginfo_t` of a SIGSYS, as the kernel lays it out.
#[repr(C)]
struct SysInfo {
    signo: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    address: *const libc::c_void,
    call: libc::c_int,
    arch: libc::c_uint,
}

extern "C" fn handler(_: libc::c_int, info: *const libc::siginfo_t, _: *const libc::c_void) {
    // SAFETY: the kernel passes a siginfo, which is larger than `SysInfo`.
    let info = unsafe { &*info.cast::<SysInfo>() };
    let mut line = Line::default();
    if info.code == SYS_SECCOMP {
        let number = usize::try_from(info.call).unwrap_or(usize::MAX);
        line.add(b"paravane: the monitor's thread ");
        line.add(NAME.get().as_bytes());
        line.add(b" made the host call ");
        line.add(
            syscalls::Sysno::new(number)
                .map_or("?", |call| call.name())
                .as_bytes(),
        );
        line.add(b" (");
        line.number(number);
        line.add(b"), or arguments of it, that its policy does not admit; ");
        line.add(b"the virtual machine was ended\n");
    } else {
        line.add(b"paravane: SIGSYS from outside; the virtual machine was ended\n");
    }
    let terminal = TERMINAL.load(Ordering::Acquire);
    if !terminal.is_null() {
        // SAFETY: it is never freed.
        let before = unsafe { &*terminal };
        let _ = rustix::termios::tcsetattr(
            rustix::stdio::stdin(),
            rustix::termios::OptionalActions::Now,
            before,
        );
    }
    line.print();
    // SAFETY: every policy admits it, and it does not return.
    unsafe { libc::_exit(FAILED) }
}

/// A line of text that needs no heap.
struct Line {
    bytes: [u8; Line::LENGTH],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Line {
            bytes: [0; Line::LENGTH],
            length: 0,
        }
    }
}

impl Line {
    const LENGTH: usize = 256;

    /// Writes it to standard error, as far as that has a reader.
    fn print(&self) {
        let end = Instant::now() + PATIENCE;
        let mut rest = self.bytes.get(..self.length).unwrap_or_default();
        while !rest.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or_default();
            let mut file = [PollFd::from_borrowed_fd(stderr(), PollFlags::OUT)];
            if !poll(&mut file, Some(&left)).is_ok_and(|ready| ready > 0) {
                return;
            }
            let piece = rest.len().min(PIECE.load(Ordering::Relaxed));
            match rustix::io::write(stderr(), rest.get(..piece).unwrap_or_default()) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn add(&mut self, text: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(self.length).zip(text) {
            *to = *from;
            self.length += 1;
        }
    }

    fn number(&mut self, number: usize) {
        let mut digits = [0; 20];
        let (mut rest, mut at) = (number, digits.len());
        loop {
            at -= 1;
            digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.add(digits.get(at..).unwrap_or_default());
    }
}

#[cfg(test)]
#[path = "violation_tests.rs"]
mod tests;
