// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that the user names on the command line, and the folder for files that are kept.

use anyhow::{Context, bail};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// No kernel, layer image, busybox or archive comes near this size.
const MAX_FILE: u64 = 512 << 20;

/// The folder of this program in the user's cache: in `$XDG_CACHE_HOME` or `~/.cache`. It need not
/// exist. `what` names in the error message what is kept there.
///
/// # Errors
/// Neither variable is an absolute path.
pub fn cache(what: &str) -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_CACHE_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".cache")))
        .map(|base| base.join("paravane"))
        .with_context(|| format!("no folder for {what}: set HOME or XDG_CACHE_HOME"))
}

/// Reads a regular file of at most 512 MiB. `what` names its kind in error messages.
///
/// # Errors
/// The file cannot be opened or read, is not a regular file, or is too large.
pub fn read(path: &Path, what: &str) -> anyhow::Result<Vec<u8>> {
    let file = open(path, what)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {what} {}", path.display()))?;
    Ok(bytes)
}

/// Opens a regular file of at most 512 MiB. `what` names its kind in error messages.
///
/// # Errors
/// The file cannot be opened, is not a regular file, or is too large.
pub fn open(path: &Path, what: &str) -> anyhow::Result<File> {
    let context = || format!("cannot read {what} {}", path.display());
    let file = File::open(path).with_context(context)?;
    let metadata = file.metadata().with_context(context)?;
    if !metadata.is_file() {
        bail!(
            "cannot read {what} {}: not an ordinary file",
            path.display()
        );
    }
    if metadata.len() > MAX_FILE {
        bail!(
            "cannot read {what} {}: over {} MiB",
            path.display(),
            MAX_FILE >> 20
        );
    }
    Ok(file)
}
