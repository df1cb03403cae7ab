// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which planted faults `make test` tries. `make test-release` tries all.
//!
//! What finds a fault is a matter of the layers and of the conformance guest. So the choice is made
//! from their sources: it is the same in each run of one tree, and another one when they change.

use crate::source_root;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::OnceLock;

/// One fault of so many is tried.
const TURNS: u64 = 4;

/// Whether all are tried: in `make test-release`.
fn all() -> bool {
    std::env::var_os("PARAVANE_TEST_LONG").is_some()
}

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
            Some("c" | "h" | "S" | "txt")
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
        let folders = ["layers", "guest/conformance"].map(|name| source_root().join(name));
        let hashes = folders.map(|folder| hash_folder(&folder).unwrap());
        hashes[0].wrapping_add(hashes[1].rotate_left(1))
    })
}

/// Where the choice of something with this name falls, of so many.
fn chosen(sources: u64, name: &str, count: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (sources, name).hash(&mut hasher);
    hasher.finish() % count.max(1)
}

/// Whether it is the turn of a fault with this name.
///
/// # Panics
/// When the sources cannot be read.
#[must_use]
pub fn has_turn(fault: &str) -> bool {
    all() || chosen(sources(), fault, TURNS) == 0
}

/// Those of the faults of one test whose turn it is: one at least, if there are any.
///
/// # Panics
/// When the sources cannot be read.
#[must_use]
pub fn of_a_list(list: &str, faults: Vec<String>) -> Vec<String> {
    if all() || faults.is_empty() {
        return faults;
    }
    let first = chosen(sources(), list, faults.len() as u64);
    let chosen = faults.into_iter().skip(usize::try_from(first).unwrap_or(0));
    chosen.take(1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_turn() {
        let names = (0..100).map(|n| format!("FAULT_{n}"));
        for name in names {
            assert!((0..1000).any(|sources| chosen(sources, &name, TURNS) == 0));
            assert!((0..1000).any(|sources| chosen(sources, &name, TURNS) != 0));
        }
        assert_eq!(chosen(1, "", 0), 0);
    }

    #[test]
    fn one_of_a_list_is_tried_and_all_where_the_run_is_long() {
        let list: Vec<String> = ["A", "B", "C"].map(String::from).into();
        let some = of_a_list("time_step", list.clone());
        assert!(!some.is_empty() && some.iter().all(|fault| list.contains(fault)));
        assert_eq!(some.len() == list.len(), all());
        assert!(of_a_list("nothing", Vec::new()).is_empty());
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
