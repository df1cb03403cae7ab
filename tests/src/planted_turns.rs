// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which planted faults of the conformance suite `make test` tries. `make test-release` tries all.
//!
//! The layers, the bridge and the conformance guest decide whether a fault is found. So the choice
//! is made from their sources: it is the same in each run of one tree, and another one when a
//! source changes.

use crate::conditions::is_long;
use crate::source_root;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::OnceLock;

/// One fault of this number is tried, in the mean.
const TURNS: u64 = 4;

/// Hashes the sources below a folder, whatever the order in which the host lists them.
fn hash_folder(folder: &Path) -> std::io::Result<u64> {
    let mut sum = 0u64;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let mut hasher = DefaultHasher::new();
        path.file_name().hash(&mut hasher);
        if path.is_dir() {
            hash_folder(&path)?.hash(&mut hasher);
        } else if matches!(
            path.extension().and_then(|e| e.to_str()),
            Some("c" | "h" | "S" | "rs" | "txt")
        ) {
            fs::read(&path)?.hash(&mut hasher);
        } else {
            continue;
        }
        sum = sum.wrapping_add(hasher.finish());
    }
    Ok(sum)
}

#[allow(clippy::unwrap_used)] // Sources that cannot be read fail the test.
fn sources() -> u64 {
    static SOURCES: OnceLock<u64> = OnceLock::new();
    *SOURCES.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        for folder in ["layers", "guest/conformance", "monitor/bridge/src"] {
            let hash = hash_folder(&source_root().join(folder));
            hash.map_err(|e| format!("{folder}: {e}"))
                .unwrap()
                .hash(&mut hasher);
        }
        hasher.finish()
    })
}

/// The turn of the fault with this name, below [`TURNS`].
fn turn(sources: u64, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (sources, name).hash(&mut hasher);
    hasher.finish() % TURNS
}

/// Whether it is the turn of a fault with this name.
///
/// # Panics
/// When the sources cannot be read.
#[must_use]
pub fn has_turn(fault: &str) -> bool {
    is_long() || turn(sources(), fault) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_turn() {
        let names = (0..100).map(|n| format!("FAULT_{n}"));
        for name in names {
            assert!((0..1000).any(|sources| turn(sources, &name) == 0));
            assert!((0..1000).any(|sources| turn(sources, &name) != 0));
        }
    }

    #[test]
    fn a_change_of_the_sources_changes_the_hash() {
        let folder = tempfile::tempdir().unwrap();
        let hash = || hash_folder(folder.path()).unwrap();
        let empty = hash();
        fs::create_dir(folder.path().join("calls")).unwrap();
        fs::write(folder.path().join("calls/lock.c"), "int a;").unwrap();
        let first = hash();
        fs::write(folder.path().join("calls/lock.c"), "int b;").unwrap();
        let second = hash();
        fs::write(folder.path().join("calls/lock.o"), "object").unwrap();
        assert!(empty != first && first != second && second == hash());
    }
}
