// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folders that this process shares, and whether two of them may have the same files.

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All of them, each as often as it is shared.
static SHARED: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

/// A folder in the list of those that this process shares.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shared {
    path: PathBuf,
    /// The numbers of its file system and of the mount, if the host reports them.
    place: Option<(u64, u64)>,
}

impl Shared {
    /// Whether the two may have the same files.
    fn meets(&self, other: &Shared) -> bool {
        // By another mount the same files have other paths.
        let mounted_twice = match (self.place, other.place) {
            (Some((device, mount)), Some((same, other))) => device == same && mount != other,
            _ => false,
        };
        mounted_twice || other.path.starts_with(&self.path) || self.path.starts_with(&other.path)
    }
}

/// Keeps a folder in that list.
#[derive(Debug)]
pub struct Listed(Shared);

impl Listed {
    /// `path` is absolute and without symbolic links.
    pub fn new(path: &Path) -> Self {
        let wanted = StatxFlags::MNT_ID;
        let found = statx(CWD, path, AtFlags::empty(), wanted);
        let place = found
            .ok()
            .filter(|found| found.stx_mask & wanted.bits() != 0);
        let listed = Listed(Shared {
            path: path.to_path_buf(),
            place: place.map(|found| {
                let device = makedev(found.stx_dev_major, found.stx_dev_minor);
                (device, found.stx_mnt_id)
            }),
        });
        lock_shared().push(listed.0.clone());
        listed
    }

    /// Whether no other volume of this process has files of this one.
    pub fn is_alone(&self) -> bool {
        let all = lock_shared();
        all.iter().filter(|other| self.0.meets(other)).count() == 1
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut all = lock_shared();
        if let Some(at) = all.iter().position(|other| *other == self.0) {
            all.swap_remove(at);
        }
    }
}

fn lock_shared() -> MutexGuard<'static, Vec<Shared>> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_in_each_other_are_not_alone() {
        let one = Listed::new(Path::new("/shared/one"));
        let two = Listed::new(Path::new("/shared/oneandtwo"));
        assert!(one.is_alone() && two.is_alone());
        let inner = Listed::new(Path::new("/shared/one/inner"));
        assert!(!one.is_alone() && !inner.is_alone() && two.is_alone());
        drop(inner);
        assert!(one.is_alone());
        let at = |path: &str, place| Shared {
            path: PathBuf::from(path),
            place: Some(place),
        };
        let a = at("/a", (1, 1));
        assert!(a.meets(&at("/b", (1, 2))), "mounted twice");
        assert!(!a.meets(&at("/b", (1, 1))) && !a.meets(&at("/b", (2, 2))));
    }
}
