// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals.

/// A write past the largest size of files (`ulimit -f`) fails from now on, and does not end the
/// process: a disk, or a file that a guest writes, may reach there.
pub fn ignore_file_limits() {
    // SAFETY: no handler is installed, and no other thread runs yet. Fails for no signal of this
    // kind.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
