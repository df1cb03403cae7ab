// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Landlock domain without any rights, for the processes in which guest code runs.

use anyhow::Context;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope,
};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The newest Landlock ABI whose rights the domain handles. An older host handles those that it
/// knows.
const NEWEST: ABI = ABI::V7;
/// The first ABI version that scopes signals to the domain.
pub const SIGNALS: u32 = 6;

/// The rules of a domain that reaches no file, socket or process outside of itself by name or
/// number.
#[derive(Debug)]
pub struct Domain(OwnedFd);

impl Domain {
    /// Creates the rules: everything that this host's Landlock handles, without exceptions. Returns
    /// `None` on a host without Landlock.
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

    /// Reports whether a thread can enter the domain here: a sandbox around this program may refuse
    /// that. A thread of its own tries it, because a thread cannot leave a domain.
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

    /// The descriptor of the rules.
    pub fn rules(self) -> OwnedFd {
        self.0
    }
}

/// Makes the calling thread enter the domain with these rules. Returns false and sets errno on
/// failure. This is one plain system call, so that a child may make it between fork and exec. The
/// thread must have no_new_privs.
pub fn enter(rules: RawFd) -> bool {
    // SAFETY: takes plain numbers and restricts the calling thread.
    unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) == 0 }
}
