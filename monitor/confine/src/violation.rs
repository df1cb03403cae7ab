// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends the monitor when one of its threads makes a host call that its policy does not admit.
//!
//! The kernel does not execute the call and sends the thread a SIGSYS, which cannot be blocked or
//! ignored in that case. The handler reports the call, restores the terminal and ends the process.
//! The kernel then ends the machine's processes.

use rustix::termios::Termios;
use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Exit code: the machine failed.
const FAILED: libc::c_int = 1;
/// `si_code` of a signal that a filter raised.
const SYS_SECCOMP: libc::c_int = 1;

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
    // SAFETY: writes from a buffer of that length. The second call, which every policy admits, does
    // not return.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.length);
        libc::_exit(FAILED)
    }
}

/// A line of text that needs no heap.
struct Line {
    bytes: [u8; 256],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Line {
            bytes: [0; 256],
            length: 0,
        }
    }
}

impl Line {
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
