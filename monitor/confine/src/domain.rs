// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Landlock domain that has nothing: for the processes in which guest code runs.

use anyhow::Context;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope,
};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The newest version whose rights are asked for; older hosts are asked for what they know.
const NEWEST: ABI = ABI::V7;
/// The first version that keeps signals inside the domain.
pub const SIGNALS: u32 = 6;

/// The rules of a domain in which no file, socket or process outside of it can be reached by a name
/// or a number.
#[derive(Debug)]
pub struct Domain(OwnedFd);

impl Domain {
    /// Makes the rules: all that this host's Landlock handles, and no exception. None: the host has
    /// no Landlock.
    ///
    /// # Errors
    /// The host has Landlock and refuses the rules.
    pub fn closed() -> anyhow::Result<Option<Self>> {
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))
            .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST)))
            .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
            .and_then(Ruleset::create)
            .context("Landlock")?;
        Ok(Option::<OwnedFd>::from(rules).map(Domain))
    }

    /// Whether a thread can enter it here: a sandbox around this program may refuse that. Tried on
    /// a thread of its own, which does not come back from where it goes.
    pub fn can_be_entered(&self) -> bool {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: changes attributes of this thread, which ends.
                unsafe {
                    libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                        && enter(self.0.as_raw_fd())
                }
            });
            thread.join().unwrap_or(false)
        })
    }

    /// The descriptor of its rules.
    pub fn rules(self) -> OwnedFd {
        self.0
    }
}

/// Has the calling thread enter the domain with these rules; false, with errno: it cannot. A plain
/// system call, which may stand between fork and exec. The thread must have no_new_privs.
pub fn enter(rules: RawFd) -> bool {
    // SAFETY: takes plain numbers and restricts the calling thread.
    unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) == 0 }
}
