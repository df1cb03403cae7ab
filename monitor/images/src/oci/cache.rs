// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder in which images are kept.
//!
//! | in it | |
//! | --- | --- |
//! | 64 digits | an image, unpacked: the digest of its configuration |
//! | `blobs/sha256` | layers as registries have them |
//! | `names` | which image a name meant when it was pulled |
//! | `.part-*` | what is being made. Who makes it holds a lock on it; what nobody holds was left by somebody who was killed, and goes |
//!
//! Whatever has its name is whole.

use super::digest;
use anyhow::Context;
use oci_spec::distribution::Reference;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PART: &str = ".part-";
const NAMES: &str = "names";

/// The folder.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// What a name meant.
#[derive(Debug, Serialize, Deserialize)]
struct Name {
    reference: String,
    image: String,
}

impl Cache {
    /// This user's.
    pub fn standard() -> anyhow::Result<Self> {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|p| p.is_absolute())
        };
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        let base = base.context("no place for images: set HOME or XDG_CACHE_HOME")?;
        Ok(Cache::at(base.join("paravane/images")))
    }

    /// That folder.
    pub fn at(folder: PathBuf) -> Self {
        Cache { folder }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the image of a configuration's digest is, or is to be.
    pub fn image(&self, own: &str) -> anyhow::Result<PathBuf> {
        Ok(self.folder.join(digest::digits(own)?))
    }

    fn name(&self, reference: &Reference) -> anyhow::Result<PathBuf> {
        let own = digest::of(reference.whole().as_bytes());
        Ok(self.folder.join(NAMES).join(digest::digits(&own)?))
    }

    /// The image that a name meant when it was pulled last.
    pub fn known(&self, reference: &Reference) -> anyhow::Result<Option<String>> {
        let path = self.name(reference)?;
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.with_context(|| path.display().to_string())?,
        };
        let name: Name = serde_json::from_slice(&bytes)
            .with_context(|| format!("{}: damaged: remove it", path.display()))?;
        Ok(Some(name.image))
    }

    /// Notes what a name means.
    pub fn remember(&self, reference: &Reference, image: &str) -> anyhow::Result<()> {
        let name = Name {
            reference: reference.whole(),
            image: image.to_string(),
        };
        let work = self.work()?;
        let part = work.path().join("name");
        fs::write(&part, serde_json::to_vec(&name)?).with_context(|| part.display().to_string())?;
        self.keep(&part, &self.name(reference)?)
    }

    /// Gives a file that is whole its place in a folder of the cache.
    pub fn keep(&self, part: &Path, place: &Path) -> anyhow::Result<()> {
        let folder = place.parent().unwrap_or(&self.folder);
        make(folder)?;
        fs::rename(part, place).with_context(|| format!("cannot write to {}", folder.display()))
    }

    /// A new folder to work in.
    pub fn work(&self) -> anyhow::Result<Work> {
        make(&self.folder)?;
        let complain = || format!("cannot write to {}", self.folder.display());
        // Nobody else tidies between a folder's making and its lock.
        let all = File::open(&self.folder).with_context(complain)?;
        flock(&all, FlockOperation::LockExclusive).with_context(complain)?;
        for entry in fs::read_dir(&self.folder).with_context(complain)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PART) {
                let held = File::open(entry.path()).is_ok_and(|folder| {
                    flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err()
                });
                if !held {
                    // What cannot be removed is in nobody's way.
                    let _ = fs::remove_dir_all(entry.path());
                }
            }
        }
        // 0700: what is in it may have rights that are the guest's business alone.
        let folder = tempfile::Builder::new()
            .prefix(PART)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&self.folder)
            .with_context(complain)?;
        let lock = File::open(folder.path()).with_context(complain)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).with_context(complain)?;
        Ok(Work {
            folder,
            _lock: lock,
        })
    }
}

fn make(folder: &Path) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot write to {}", folder.display()))
}

/// A folder in the cache for what is not whole; it goes with this value.
#[derive(Debug)]
pub struct Work {
    folder: TempDir,
    _lock: File,
}

impl Work {
    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// It is whole, and gets its place, unless that is taken by the same.
    pub fn finish(self, place: &Path, same: impl Fn(&Path) -> bool) -> anyhow::Result<()> {
        match fs::rename(self.folder.path(), place) {
            Ok(()) => drop(self.folder.keep()),
            // Somebody else was faster, with the same.
            Err(_) if same(place) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot write to {}", place.display()));
            }
        }
        Ok(())
    }
}
