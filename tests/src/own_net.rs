// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network namespace of a test's own, in which it may make taps.

use crate::skip::skip;
use crate::{program, vm};
use std::process::Command;

/// Runs a script in a network namespace of its own. Its arguments are a folder, and the words for a
/// machine. `None`: this host has no
/// taps, and the test is skipped.
///
/// # Panics
/// When the host has no temporary folder.
#[must_use]
#[allow(clippy::unwrap_used)] // A failed setup fails the test.
pub fn in_namespace(script: &str) -> Option<program::Run> {
    let root = rustix::process::geteuid().is_root();
    let open = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    if let Err(error) = open {
        skip(&format!("/dev/net/tun: {error}"));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let own = vm::command([""; 0]);
    let mut command = Command::new("unshare");
    command.args(if root {
        &["--net"][..]
    } else {
        &["--net", "--map-root-user"]
    });
    command
        .args(["sh", "-c", script, "sh"])
        .arg(folder.path())
        .arg(own.get_program());
    Some(program::finish(command.args(own.get_args())))
}
