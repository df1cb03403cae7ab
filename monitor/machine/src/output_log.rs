// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of a background machine, limited in size: the oldest output is dropped.
//!
//! The file `output` is the monitor's standard output and error. When it is full, it replaces
//! `output.1`, and a new file is started. So the last [`LIMIT`] bytes are always kept, and never
//! more than twice that.

use crate::store::Machine;
use anyhow::Context;
use paravane_user_io::stderr::say;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Size at which a file is full, in bytes.
pub const LIMIT: u64 = 16 << 20;

/// For a background monitor: starts a new file if standard output is the machine's file and full.
/// Where the host refuses that, the file grows to twice its size, and is then emptied.
pub fn turn(machine: &Machine) {
    let Some(size) = full(machine) else {
        return;
    };
    let Err(error) = start_new(&machine.output()) else {
        return;
    };
    if size >= 2 * LIMIT && rustix::fs::ftruncate(rustix::stdio::stdout(), 0).is_ok() {
        say(&format!(
            "paravane: the machine's output was dropped: cannot make a new file for it: {error}\n"
        ));
    }
}

/// For the restarter of a background machine: makes the machine's file standard output and error. A
/// monitor may have started a new one, which only that monitor has.
///
/// # Errors
/// The file cannot be opened.
pub fn follow(machine: &Machine) -> anyhow::Result<()> {
    let path = machine.output();
    let mut options = OpenOptions::new();
    let open = options.append(true).create(true).mode(0o600).open(&path);
    let file = open.with_context(|| path.display().to_string())?;
    rustix::stdio::dup2_stdout(&file)?;
    Ok(rustix::stdio::dup2_stderr(&file)?)
}

/// The size of the machine's file, if it is full and standard output.
fn full(machine: &Machine) -> Option<u64> {
    let output = rustix::fs::fstat(rustix::stdio::stdout()).ok()?;
    let size = u64::try_from(output.st_size).ok()?;
    if size < LIMIT {
        return None;
    }
    // Standard output of a foreground machine may be any file.
    let file = fs::metadata(machine.output()).ok()?;
    (file.ino() == output.st_ino && file.dev() == output.st_dev).then_some(size)
}

/// Replaces the file. The old one stays in place until there is a new one.
fn start_new(path: &Path) -> io::Result<()> {
    let made = path.with_extension("new");
    let mut options = OpenOptions::new();
    let new = options.append(true).create(true).mode(0o600).open(&made)?;
    // Left by an earlier try.
    new.set_len(0)?;
    let old = path.with_extension("1");
    fs::rename(path, &old)?;
    if let Err(error) = fs::rename(&made, path) {
        // Under its name, it is still found, and bounded.
        fs::rename(&old, path)?;
        return Err(error);
    }
    rustix::stdio::dup2_stdout(&new)?;
    Ok(rustix::stdio::dup2_stderr(&new)?)
}
