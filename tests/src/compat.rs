// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Debian in which the suites of `tests/compat` run: with compilers, interpreters, stress-ng.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::{debian, program, source_root};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A folder for roots and logs in place of the user's cache.
const FOLDER: &str = "PARAVANE_TEST_COMPAT";

/// The folder of the recipe and the suites.
#[must_use]
pub fn source() -> PathBuf {
    source_root().join("tests/compat")
}

fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return folder.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"),
        PathBuf::from,
    );
    cache.join("paravane/compat")
}

/// The folder with the Debian: `root`, and `root.ext4` with the same files. It is made again if its
/// recipe has changed, for which this needs root and a package mirror.
///
/// # Panics
/// When it cannot be made.
#[must_use]
pub fn prepared() -> PathBuf {
    let (folder, script) = (folder(), source().join("prepare.sh"));
    let _alone = debian::lock(&folder, "prepared");
    let (made_by, now) = (
        folder.join("prepared"),
        fs::read_to_string(&script).unwrap(),
    );
    if fs::read_to_string(&made_by).ok().as_ref() != Some(&now) {
        let done = Command::new(&script)
            .arg(program::path())
            .arg(&folder)
            .status()
            .unwrap();
        assert!(done.success(), "{}: {done}", script.display());
        fs::write(made_by, now).unwrap();
    }
    folder
}
