// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux guests, run by `paravane run`.

use crate::linux;
use crate::program::{self, Run};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;

/// A kernel to test in place of the built one.
const KERNEL: &str = "PARAVANE_TEST_KERNEL";
/// Whether the kernel that the program finds has been built.
static BUILT: Once = Once::new();

/// `paravane run` with these options. The caller may add more, and the command after `--`.
#[must_use]
pub fn command<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(options: I) -> Command {
    with(program::command(), options)
}

/// `paravane run` with these options, and with the hooks that only tests use.
pub fn command_with_hooks<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(options: I) -> Command {
    with(program::command_with_hooks(), options)
}

fn with<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut command: Command, options: I) -> Command {
    command.arg("run");
    match kernel() {
        Some(kernel) => drop(command.arg("--kernel").arg(kernel)),
        // Build it now, before a test measures time.
        None => BUILT.call_once(|| drop(linux::kernel())),
    }
    command.args(options);
    command
}

/// The kernel in `PARAVANE_TEST_KERNEL`. `None`: the program finds the built one.
#[must_use]
pub fn kernel() -> Option<PathBuf> {
    std::env::var_os(KERNEL).map(PathBuf::from)
}

/// Runs a command in a machine of its own.
pub fn run(words: &[&str]) -> Run {
    program::finish(command(["--"]).args(words))
}

/// Runs a script in a machine of its own.
pub fn shell(script: &str) -> Run {
    run(&["sh", "-c", script])
}
