// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder in which unpacked images are kept. It contains:
//!
//! * 64 digits: an unpacked image, named by the digest of its configuration.
//! * `blobs/sha256`: layers as registries store them.
//! * `names`: which image a name referred to when it was pulled.
//! * `.part-*`: unfinished work. Its process holds a lock on it. A part without a lock was left by
//!   a process that was killed, and is removed.
//!
//! An entry under its final name is complete.

use super::digest;
use anyhow::Context;
use oci_spec::distribution::Reference;
use paravane_user_io::files;
use rustix::fs::{FlockOperation, flock, syncfs};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PART: &str = ".part-";
const NAMES: &str = "names";

/// The cache folder.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// The image that a name refers to.
#[derive(Debug, Serialize, Deserialize)]
struct Name {
    reference: String,
    image: String,
}

impl Cache {
    /// This user's cache.
    pub fn standard() -> anyhow::Result<Self> {
        Ok(Cache::at(files::cache("images")?.join("images")))
    }

    /// A cache in this folder.
    pub fn at(folder: PathBuf) -> Self {
        Cache { folder }
    }

    /// The folder's path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of the image with this configuration digest. It need not exist.
    pub fn image(&self, own: &str) -> anyhow::Result<PathBuf> {
        Ok(self.folder.join(digest::digits(own)?))
    }

    fn name(&self, reference: &Reference) -> anyhow::Result<PathBuf> {
        let own = digest::of(reference.whole().as_bytes());
        Ok(self.folder.join(NAMES).join(digest::digits(&own)?))
    }

    /// The image that a name referred to when it was last pulled.
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

    /// Records which image a name refers to.
    pub fn remember(&self, reference: &Reference, image: &str) -> anyhow::Result<()> {
        let name = Name {
            reference: reference.whole(),
            image: image.to_string(),
        };
        let work = self.work()?;
        let part = work.path().join("name");
        let complain = || part.display().to_string();
        let mut file = File::create(&part).with_context(complain)?;
        file.write_all(&serde_json::to_vec(&name)?)
            .and_then(|()| file.sync_all())
            .with_context(complain)?;
        self.keep(&part, &self.name(reference)?)
    }

    /// Moves a complete file to its place in the cache.
    pub fn keep(&self, part: &Path, place: &Path) -> anyhow::Result<()> {
        let folder = place.parent().unwrap_or(&self.folder);
        make(folder)?;
        fs::rename(part, place).with_context(|| format!("cannot write to {}", folder.display()))
    }

    /// Creates a folder for unfinished work.
    pub fn work(&self) -> anyhow::Result<Work> {
        make(&self.folder)?;
        let complain = || format!("cannot write to {}", self.folder.display());
        // The lock keeps other processes from cleaning up between the creation of the folder and
        // its own lock.
        let all = File::open(&self.folder).with_context(complain)?;
        flock(&all, FlockOperation::LockExclusive).with_context(complain)?;
        for entry in fs::read_dir(&self.folder).with_context(complain)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PART) {
                let held = File::open(entry.path()).is_ok_and(|folder| {
                    flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err()
                });
                if !held {
                    if let Err(error) = fs::remove_dir_all(entry.path()) {
                        let path = entry.path();
                        tracing::warn!("{}: cannot be removed: {error}", path.display());
                    }
                }
            }
        }
        // Mode 0700: files in it may have rights that are meant for the guest only, such as setuid.
        let folder = tempfile::Builder::new()
            .prefix(PART)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&self.folder)
            .with_context(complain)?;
        let lock = File::open(folder.path()).with_context(complain)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).with_context(complain)?;
        Ok(Work { folder, lock })
    }
}

fn make(folder: &Path) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot write to {}", folder.display()))
}

/// A folder in the cache for unfinished work. Dropping the value removes it.
#[derive(Debug)]
pub struct Work {
    folder: TempDir,
    lock: File,
}

impl Work {
    /// The folder's path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Moves the complete folder to its place, after its contents are on the host's disk: a power
    /// failure must not leave what looks whole. Succeeds if the place already has the same
    /// contents.
    pub fn finish(self, place: &Path, same: impl Fn(&Path) -> bool) -> anyhow::Result<()> {
        let folder = self.folder.path();
        syncfs(&self.lock).with_context(|| format!("cannot write to {}", folder.display()))?;
        match fs::rename(self.folder.path(), place) {
            Ok(()) => drop(self.folder.keep()),
            // Another process has finished the same image first.
            Err(_) if same(place) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot write to {}", place.display()));
            }
        }
        Ok(())
    }
}
