// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What keeps the signals of a machine's processes inside the machine.
//!
//! vCPUs interrupt each other with signals between processes, and guest code can send such a signal
//! to any id. A seccomp filter does not know to which process an id belongs. So something else must
//! protect other processes of the same user; the host decides which of three ways works.

use crate::fork;
use crate::process::procfs;
use paravane_confine::{self as confine, Domain};
use std::io;

/// What keeps a machine's signals inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalScope {
    /// Landlock: the host kernel refuses signals to processes outside the machine's domain. From
    /// Linux 6.12 on.
    Landlock,
    /// The machine's processes have a PID namespace of their own: other processes have no ids in
    /// it.
    PidNamespace,
    /// The processes may not send signals. They ask the monitor to do it, which is slower.
    Monitor,
}

impl SignalScope {
    /// The best way that works on this host. It is tried, because a sandbox around this program may
    /// refuse what the kernel offers.
    pub fn of_this_host() -> Self {
        if landlock_works() {
            SignalScope::Landlock
        } else if namespace_works() {
            SignalScope::PidNamespace
        } else {
            SignalScope::Monitor
        }
    }

    /// The word for it in `paravane inspect`.
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

/// The monitor must also be able to learn the host's ids of threads.
fn namespace_works() -> bool {
    if procfs::innermost_id("/proc/self/status").is_none() {
        return false;
    }
    match fork_apart() {
        Ok(0) => fork::exit(true),
        Ok(child) => fork::ended_well(child),
        Err(_) => false,
    }
}

/// Forks a child that is process 1 of a new PID namespace; 0 in the child. An ordinary user gets
/// one only together with a user namespace. The child may only make system calls: other threads may
/// have held locks.
///
/// # Errors
/// The host gives no such namespace, or no process.
pub fn fork_apart() -> io::Result<libc::pid_t> {
    fork::fork(libc::CLONE_NEWUSER | libc::CLONE_NEWPID).or_else(|_| fork::fork(libc::CLONE_NEWPID))
}
