// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals to single threads.

/// Sends SIGURG to a thread. Does nothing if the process has no such thread.
pub fn interrupt(pid: u32, tid: u32) {
    send(pid, tid, libc::SIGURG);
}

/// Sends a signal to a thread.
pub fn send(pid: u32, tid: u32, signal: i32) {
    // SAFETY: tgkill takes numbers only, and fails for a thread of another process.
    unsafe {
        libc::syscall(libc::SYS_tgkill, i64::from(pid), i64::from(tid), signal);
    }
}
