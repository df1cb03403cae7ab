// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What keeps code that has taken over a monitor from the memory and the files of other processes
//! of its user, such as the monitors of other machines.
//!
//! The watch may open any file for reading, and the host's kernel lets a process read the memory
//! and open the files of another one of the same user (`/proc/PID/mem`, `/proc/PID/fd`). Landlock
//! has the kernel refuse that for processes outside of a domain. A domain can be entered without
//! effect on files since version 6, which scopes abstract sockets. The processes of the machine are
//! in this domain, because they are made by a thread that has entered it.
//!
//! On older hosts this process protects itself instead: it is not dumpable, so other processes of
//! its user may not look at it. Root may.

use super::file_rules::landlock_version;
use anyhow::Context;
use landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};
use std::io;

/// The first ABI version that scopes abstract sockets.
const SCOPES: u32 = 6;

/// How far [`only_own_processes`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnlyOwn {
    /// Nothing is left to do.
    Entered,
    /// The host has no such domains. [`hide`](OnlyOwn::hide) does something.
    Unknown,
}

/// Keeps the calling thread, and the threads and processes that it makes, from the memory and files
/// of all other processes, and from their abstract sockets, for good. They also have no_new_privs
/// then. To be called before there is a thread or a process of the machine.
///
/// # Errors
/// The host has such domains and refuses this one.
pub fn only_own_processes() -> anyhow::Result<OnlyOwn> {
    if landlock_version() < SCOPES {
        return Ok(OnlyOwn::Unknown);
    }
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::AbstractUnixSocket)
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self)
        .context("Landlock")?;
    Ok(OnlyOwn::Entered)
}

impl OnlyOwn {
    /// Where the host has no such domains, makes this process one that others of its user may not
    /// look at. Its children must have been made.
    ///
    /// # Errors
    /// The host's.
    pub fn hide(self) -> anyhow::Result<()> {
        if self == OnlyOwn::Entered {
            return Ok(());
        }
        // SAFETY: changes an attribute of this process.
        if unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) } == 0 {
            return Ok(());
        }
        Err(io::Error::last_os_error()).context("cannot hide the monitor's memory")
    }
}
