// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel is the same to the byte, wherever and whenever it is built.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{linux, program};
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a kernel that come from compilation.
const FILES: [&str; 4] = ["vmlinux", "bzImage", "config", "modules.builtin"];
/// The words in place of user, host and date.
const BANNER: &str = " (build@paravane) ";
const DAY: &str = "#1 SMP 1970-01-01 00:00:00 UTC";

/// The folder of the cached kernel.
fn folder() -> PathBuf {
    linux::kernel().parent().unwrap().to_path_buf()
}

#[test]
fn nothing_of_day_or_place_is_in_it() {
    let folder = folder();
    // The tree in which it was built lies beside it.
    let cache = folder.parent().unwrap().to_str().unwrap();
    for name in ["vmlinux", "bzImage"] {
        let file = fs::read(folder.join(name)).unwrap();
        let text = String::from_utf8_lossy(&file);
        assert!(
            text.contains(BANNER) && text.contains(DAY),
            "{name}: user, host and day are not the fixed ones"
        );
        for place in [cache, "paravane/kernel/work"] {
            assert!(!text.contains(place), "{name} has {place} in it");
        }
    }
}

/// The cached kernel may have been built step by step; this one is not. It is built in another
/// place, in surroundings that differ in everything that a build could depend on.
#[test]
#[ignore = "half an hour: make test-release"]
fn another_build_has_the_same_bytes() {
    let first = folder();
    let cache = tempfile::Builder::new()
        .prefix("another-place-of-another-length-")
        .tempdir()
        .unwrap();
    let built = program::finish_within(
        program::command()
            .args(["kernel", "build", "--jobs", "3"])
            .env("XDG_CACHE_HOME", cache.path())
            .env("TZ", "Pacific/Auckland")
            .env("LANG", "C.UTF-8")
            .env("USER", "somebody")
            .env("LOGNAME", "somebody")
            .env("HOSTNAME", "somewhere")
            .env("KBUILD_BUILD_USER", "somebody")
            .env("KBUILD_BUILD_HOST", "somewhere")
            .env("CCACHE_BASEDIR", cache.path())
            .env_remove("KBUILD_BUILD_TIMESTAMP"),
        program::LONGEST_OF_ALL,
    );
    let run = built.unwrap();
    assert_eq!(run.code, 0, "{run:?}");
    // The line includes the duration.
    println!("{}", run.last_line());
    let second = PathBuf::from(run.last_line().rsplit_once("): ").unwrap().1);
    assert_ne!(first, second);
    let different: Vec<_> = FILES
        .iter()
        .filter_map(|name| difference(&first, &second, name))
        .collect();
    if !different.is_empty() {
        // To find the reason, look at the files beside the results.
        let kept = cache.keep();
        panic!(
            "{different:?}: {} and {} (of {})",
            first.display(),
            second.display(),
            kept.display()
        );
    }
}

/// The offsets at which two files of a name differ.
fn difference(first: &Path, second: &Path, name: &str) -> Option<String> {
    let (one, other) = (
        fs::read(first.join(name)).unwrap(),
        fs::read(second.join(name)).unwrap(),
    );
    let at = one.iter().zip(&other).position(|(a, b)| a != b);
    (one != other).then(|| {
        format!(
            "{name}: {} and {} bytes, the first difference is at {at:?}",
            one.len(),
            other.len()
        )
    })
}
