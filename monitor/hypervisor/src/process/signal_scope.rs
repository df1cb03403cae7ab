// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far the signals of a machine's processes reach: as far as the machine.
//!
//! vCPUs interrupt each other by a signal from process to process, and guest code can send it with
//! any number. The host's seccomp cannot tell whose number it is. So something else keeps other
//! processes of the same user out of reach; which of three ways it is depends on the host.

use crate::process::procfs;
use paravane_confine::{self as confine, Domain};
use std::io;

/// What keeps a machine's signals inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalScope {
    /// Landlock: the host's kernel refuses signals to whoever is not in the machine's domain. From
    /// Linux 6.12 on.
    Landlock,
    /// The machine's processes have a namespace of process ids of their own: there are no numbers
    /// for others.
    PidNamespace,
    /// Its processes may send no signal at all. They ask the monitor, which does it for them:
    /// slower.
    Monitor,
}

impl SignalScope {
    /// The best one that this host gives. It is tried, not looked up: a sandbox around this program
    /// may refuse what the kernel has.
    pub fn of_this_host() -> Self {
        if landlock_works() {
            SignalScope::Landlock
        } else if namespace_works() {
            SignalScope::PidNamespace
        } else {
            SignalScope::Monitor
        }
    }

    /// A word for programs.
    pub fn word(self) -> &'static str {
        match self {
            SignalScope::Landlock => "landlock",
            SignalScope::PidNamespace => "pid-namespace",
            SignalScope::Monitor => "monitor",
        }
    }
}

fn landlock_works() -> bool {
    confine::landlock_version() >= confine::SIGNALS_SCOPED
        && matches!(Domain::closed(), Ok(Some(domain)) if domain.can_be_entered())
}

/// The monitor has to find out the host's numbers of threads, too.
fn namespace_works() -> bool {
    if procfs::innermost_id("/proc/self/status").is_none() {
        return false;
    }
    match fork_apart() {
        // SAFETY: ends the child, which has done nothing.
        Ok(0) => unsafe { libc::_exit(0) },
        Ok(child) => {
            let mut status = 0;
            // SAFETY: the process is our child, and nobody else waits for it.
            unsafe {
                while libc::waitpid(child, &raw mut status, 0) < 0
                    && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
                {
                }
            }
            status == 0
        }
        Err(_) => false,
    }
}

/// Forks a child that is process 1 of a new namespace of process ids; 0 in the child. An ordinary
/// user gets that only together with a user namespace. The child may only make system calls: other
/// threads may have held locks.
///
/// # Errors
/// The host gives no such namespace, or no process.
pub fn fork_apart() -> io::Result<libc::pid_t> {
    for namespaces in [libc::CLONE_NEWUSER | libc::CLONE_NEWPID, libc::CLONE_NEWPID] {
        // SAFETY: without CLONE_VM it is a fork: the child has a copy of the caller's memory and
        // stack.
        let pid = unsafe {
            libc::syscall(
                libc::SYS_clone,
                i64::from(namespaces | libc::SIGCHLD),
                0,
                0,
                0,
                0,
            )
        };
        if pid >= 0 {
            return libc::pid_t::try_from(pid).map_err(io::Error::other);
        }
    }
    Err(io::Error::last_os_error())
}
