// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether files may come by a local socket. The sender can make the close of such a file take any
//! time: it may be the last reference to a file of FUSE, or to a TCP connection that lingers.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Since Linux 6.16.
pub(crate) const SO_PASSRIGHTS: libc::c_int = 83;

/// Lets files come by a socket of the domain `AF_UNIX`, or has its peers' attempts fail. Sockets
/// that a listener takes begin as it was when their peers connected. False: the host's kernel is
/// older than Linux 6.16, and lets files come.
///
/// # Errors
/// It is no such socket.
pub fn pass_files(socket: &impl AsFd, may_come: bool) -> io::Result<bool> {
    let value = libc::c_int::from(may_come);
    // SAFETY: the kernel reads a number of this length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(0),
        )
    };
    if result == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOPROTOOPT) {
        return Ok(false);
    }
    Err(error)
}
