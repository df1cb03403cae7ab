// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads beside the first one.

use anyhow::Context;
use paravane_confine::Files;
use std::sync::mpsc::channel;

/// Ends the program if its thread panics. vbusd may be killed at any moment: its state is on disk,
/// and clients come back. A vbusd without that thread would fail them for ever.
struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// Starts a thread that enters a policy, and gives up all but some files, before it works. It works
/// when this returns.
///
/// # Errors
/// The host has no thread for it, or refuses the policy.
pub fn start(
    name: &str,
    policy: &'static str,
    files: Files,
    work: impl FnOnce() + Send + 'static,
) -> anyhow::Result<()> {
    prepared(name, files, move || (policy, ()), move |()| work())
}

/// Starts such a thread that first creates what its policy does not admit, and then knows which
/// policy that is.
///
/// # Errors
/// As those of [`start`].
pub fn prepared<T>(
    name: &str,
    files: Files,
    prepare: impl FnOnce() -> (&'static str, T) + Send + 'static,
    work: impl FnOnce(T) + Send + 'static,
) -> anyhow::Result<()> {
    let (tell, told) = channel();
    let thread = std::thread::Builder::new().name(name.to_string());
    thread
        .spawn(move || {
            let (policy, made) = prepare();
            let entered = paravane_confine::enter(policy, &files);
            let go = entered.is_ok();
            // Fails only if the caller no longer waits.
            let _ = tell.send(entered);
            if go {
                let _abort = Abort;
                work(made);
            }
        })
        .context("cannot start a thread")?;
    told.recv().context("a thread ended")?
}
