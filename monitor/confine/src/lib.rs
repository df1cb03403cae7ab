// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Confinement of the monitor's threads while a guest runs, and the seccomp policy language.
//!
//! After its setup, and before it reads anything that a guest has written, each thread enters its
//! seccomp policy (`monitor/policies/monitor.json`) and gives up the files that it does not need
//! ([`Files`], Landlock). It also gives up all capabilities but those that its policy lists. All of
//! this holds for the thread and for the threads that it creates, and cannot be undone.

mod closed_domain;
mod file_rules;
mod own_processes;
mod passed_files;
pub mod policy_language;
mod process_handles;
mod thread_policies;
mod violation;

pub use closed_domain::{Domain, SIGNALS as SIGNALS_SCOPED, enter as enter_domain};
pub use file_rules::{Files, landlock_version};
pub use own_processes::{OnlyOwn, only_own_processes};
pub use passed_files::pass_files;
pub use process_handles::{Kept, keep};
pub use violation::restore_terminal;

use anyhow::Context;
use rustix::thread::CapabilitySet;
use std::io;

/// The thread that breaks its policy.
#[cfg(feature = "test-hooks")]
static PLANTED: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Makes the thread of this name break its policy as soon as it has entered the policy.
///
/// # Errors
/// There is no such thread.
#[cfg(feature = "test-hooks")]
pub fn plant_violation(thread: &str) -> anyhow::Result<()> {
    thread_policies::name(thread)?;
    let _ = PLANTED.set(thread.to_string());
    Ok(())
}

/// Confines the calling thread. `thread` names its policy.
///
/// # Errors
/// The host does not allow it. The thread must not continue.
pub fn enter(thread: &str, files: &Files) -> anyhow::Result<()> {
    let complain = || format!("cannot confine the thread {thread}");
    let name = thread_policies::name(thread).with_context(complain)?;
    let policy = thread_policies::policy(thread).with_context(complain)?;
    violation::watch(name).with_context(complain)?;
    files.keep_only().with_context(complain)?;
    keep_capabilities(policy.capabilities).with_context(complain)?;
    seccompiler::apply_filter(&policy.filter).with_context(complain)?;
    #[cfg(feature = "test-hooks")]
    if PLANTED.get().is_some_and(|planted| planted == thread) {
        // SAFETY: requests a socket of an invalid family, which no policy admits.
        unsafe {
            libc::socket(-1, 0, 0);
        }
    }
    Ok(())
}

/// Drops all other capabilities of this thread, for good.
fn keep_capabilities(keep: CapabilitySet) -> io::Result<()> {
    let mut sets = rustix::thread::capabilities(None)?;
    if keep.contains(sets.effective | sets.permitted | sets.inheritable) {
        return Ok(());
    }
    sets.effective &= keep;
    sets.permitted &= keep;
    sets.inheritable &= keep;
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

#[cfg(test)]
mod capability_tests;
#[cfg(test)]
mod landlock_tests;
#[cfg(test)]
#[path = "../../../tests/src/skip.rs"]
mod skip;
#[cfg(test)]
mod tests;
