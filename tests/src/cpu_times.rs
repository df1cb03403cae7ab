// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The times that a guest's kernel accounts for its CPUs.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::{linux, source_root};
use std::path::PathBuf;
use tempfile::TempDir;

/// A folder of the host with a program for guests, and the option that mounts it at /t.
#[derive(Debug)]
pub struct Program {
    _folder: TempDir,
    /// The value of `--volume`.
    pub volume: String,
}

/// Compiles `tests/guest/NAME`: the guest finds it as `/t/NAME`.
///
/// # Panics
/// When it does not compile.
#[must_use]
pub fn program(name: &str) -> Program {
    let folder = tempfile::tempdir().unwrap();
    let source: PathBuf = source_root().join("tests/guest").join(name);
    linux::compile(&source, &folder.path().join(name));
    Program {
        volume: format!("{}:/t:ro", folder.path().display()),
        _folder: folder,
    }
}

/// The times of a CPU in percent of what has passed, as the program `times` prints them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// All columns of `/proc/stat` together.
    pub sum: f64,
    /// Stolen time.
    pub stolen: f64,
    /// User time.
    pub user: f64,
}

/// The shares of all CPUs, in the order of the text.
#[must_use]
pub fn shares(text: &str) -> Vec<Shares> {
    let share = |line: &str| {
        let words: Vec<&str> = line.strip_prefix("cpu")?.split_whitespace().collect();
        // cpuN SUM stolen PERCENT user PERCENT ...
        let after = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1)?.parse().ok()
        };
        Some(Shares {
            sum: words.get(1)?.parse().ok()?,
            stolen: after("stolen")?,
            user: after("user")?,
        })
    };
    text.lines().filter_map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cpus_are_read_and_others_are_not() {
        let text = "begun\ncpu1 99.50 stolen 20.00 user 30.25 system 1.00 idle 48.25\n\
                    backwards 0\ncpu2 bad\n";
        let one = Shares {
            sum: 99.5,
            stolen: 20.0,
            user: 30.25,
        };
        assert_eq!(shares(text), [one]);
    }
}
