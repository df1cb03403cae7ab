// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Children that are forks of the monitor, in namespaces of their own.

use std::io;

/// Forks with flags of clone(2); 0 in the child. The child may only make system calls: other
/// threads may have held locks.
///
/// # Errors
/// The host gives no such namespace, or no process.
pub fn fork(flags: libc::c_int) -> io::Result<libc::pid_t> {
    // SAFETY: without CLONE_VM this is a fork: the child has a copy of the caller's memory and
    // stack.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            i64::from(flags | libc::SIGCHLD),
            0,
            0,
            0,
            0,
        )
    };
    match pid {
        0.. => libc::pid_t::try_from(pid).map_err(io::Error::other),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends a child of [`fork`].
pub fn exit(well: bool) -> ! {
    // SAFETY: ends this process without anything that the monitor does at its end.
    unsafe { libc::_exit(i32::from(!well)) }
}

/// Waits for a child of [`fork`]. Returns whether it ended with [`exit`] of true.
pub fn ended_well(child: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: the process is our child, and only this code waits for it.
    unsafe {
        while libc::waitpid(child, &raw mut status, 0) < 0 {
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return false;
            }
        }
    }
    status == 0
}
