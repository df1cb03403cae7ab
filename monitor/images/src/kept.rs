// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian roots in the user's cache.

use super::debian::{self, Format, IMAGE, ROOT, Request};
use super::oci::{Cache, Work};
use paravane_user_io::signals::Signals;
use paravane_user_io::text::hex;
use rustix::process::geteuid;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// A root file system in the user's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// A folder with its files. Where an ordinary user has made it, all of them belong to that
    /// user.
    pub folder: PathBuf,
    /// An ext4 image with the same files.
    pub image: PathBuf,
}

/// The root of a suite with these packages and those of every image, of this size in MiB. It is
/// made unless `cache` has it. Its name there depends on all of these, on how this program makes
/// images, and on whether this is root. Newer versions of the packages are only fetched when it is
/// made.
pub fn keep(
    cache: &Path,
    suite: &str,
    include: &[String],
    size: u32,
    signals: &Signals,
) -> anyhow::Result<Kept> {
    let place = place(cache, suite, include, size);
    let kept = Kept {
        folder: place.join(ROOT),
        image: place.join(IMAGE),
    };
    if place.is_dir() {
        return Ok(kept);
    }
    let request = Request {
        suite,
        include,
        size,
        format: Format::Ext4,
        file: &kept.image,
    };
    debian::check(&request)?;
    let work = work(cache)?;
    debian::make(&request, work.path(), signals)?;
    work.finish(&place, |place| place.is_dir())?;
    Ok(kept)
}

/// A folder for unfinished work in a cache, which is created if needed. Removes the rest of work
/// that was killed.
pub fn work(cache: &Path) -> anyhow::Result<Work> {
    Cache::at(cache.to_path_buf()).work()
}

/// The folder of a root in the cache.
fn place(cache: &Path, suite: &str, include: &[String], size: u32) -> PathBuf {
    let mut packages: Vec<&str> = include.iter().map(String::as_str).collect();
    packages.sort_unstable();
    packages.dedup();
    // Of root's folders an ordinary user can read little; of an ordinary user's, nothing is root's.
    let owner = if geteuid().is_root() {
        ""
    } else {
        "an ordinary user's"
    };
    let how = include_str!("debian.rs");
    let recipe = format!("{suite} {size} {packages:?} {how}{owner}");
    cache.join(hex(Sha256::digest(recipe).get(..16).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_that_is_there_is_not_made_again() {
        let cache = tempfile::tempdir().unwrap();
        let signals = Signals::install().unwrap();
        let keep = |packages: &[&str], size| {
            let packages: Vec<String> = packages.iter().map(ToString::to_string).collect();
            keep(cache.path(), "no suite", &packages, size, &signals)
        };
        // Such a suite cannot be made.
        assert!(keep(&["a"], 64).is_err());
        let name = place(cache.path(), "no suite", &["a".into(), "b".into()], 64);
        std::fs::create_dir(&name).unwrap();
        let kept = keep(&["b", "a", "b"], 64).unwrap();
        assert_eq!(kept.folder, name.join("root"));
        assert!(keep(&["b", "a"], 65).is_err() && keep(&["b"], 64).is_err());
    }
}
