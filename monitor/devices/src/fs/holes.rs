// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a file has data, and where it has holes (`SEEK_DATA` and `SEEK_HOLE` of lseek).
//!
//! The host knows this, except for data that the guest has not written back: a guest's kernel does
//! not write such data before it asks. A program that copies by the host's answer would lose the
//! data.
//!
//! * What a program has written through a shared mapping. It can map only a file that is open for
//!   reading and writing, and its kernel closes the file after it has written what the mapping
//!   changed. So a file that is open in this way has no holes for the guest ([`Mappable`]).
//! * With the cache `always`, what any program has written. The answer is then ENOSYS, and the
//!   guest's kernel takes every file for data.

use fuse_backend_rs::api::filesystem::Context;
use fuse_backend_rs::api::{BackFileSystem, VFS_MAX_INO, Vfs, VfsIndex};
use rustix::fs::SeekFrom;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The way to the folder's lseek, to which the crate's `Vfs` does not pass requests on.
pub struct Holes {
    folder: Arc<BackFileSystem>,
    index: VfsIndex,
}

impl Holes {
    /// Of what is mounted at the root. `None`: nothing is.
    pub fn new(vfs: &Vfs) -> Option<Self> {
        let (folder, index) = vfs.get_rootfs("/").ok()??;
        Some(Holes { folder, index })
    }

    /// Carries out a request, with the guest's number of the file.
    ///
    /// # Errors
    /// ENOENT if no such file can be; else the folder's.
    pub fn seek(
        &self,
        ctx: &Context,
        inode: u64,
        handle: u64,
        offset: u64,
        whence: u32,
    ) -> io::Result<u64> {
        let number = match inode {
            1 => 1,
            _ if inode & !VFS_MAX_INO == u64::from(self.index) << 56 => inode & VFS_MAX_INO,
            _ => return Err(io::Error::from_raw_os_error(libc::ENOENT)),
        };
        self.folder.lseek(ctx, number, handle, offset, whence)
    }
}

/// What is looked for, from which offset on. The guest's kernel does the other kinds itself.
///
/// # Errors
/// EINVAL for these.
pub fn wanted(offset: u64, whence: u32) -> io::Result<SeekFrom> {
    match i32::try_from(whence) {
        Ok(libc::SEEK_DATA) => Ok(SeekFrom::Data(offset)),
        Ok(libc::SEEK_HOLE) => Ok(SeekFrom::Hole(offset)),
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// The answer for a file of `size` bytes without holes: there is one at the end of each file.
///
/// # Errors
/// ENXIO if the offset is not in the file.
pub fn without(wanted: SeekFrom, size: u64) -> io::Result<u64> {
    match wanted {
        SeekFrom::Data(offset) if offset < size => Ok(offset),
        SeekFrom::Hole(offset) if offset < size => Ok(size),
        _ => Err(io::Error::from_raw_os_error(libc::ENXIO)),
    }
}

/// The most files of a [`Mappable`]. There are no more than the folder has descriptors, since
/// whatever closes a file removes it there. But a guest can close a file just before it gets the
/// answer with it, and then it stays.
const MOST: usize = 1 << 18;

/// Files that the guest has open for reading and writing.
#[derive(Debug, Default)]
pub struct Mappable(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// Node and handle of each.
    files: BTreeSet<(u64, u64)>,
    /// There are or were more than [`MOST`]: any file may be one.
    any: bool,
}

impl Mappable {
    /// A file was opened with these flags of open().
    pub fn opened(&self, inode: u64, handle: Option<u64>, flags: u32) {
        let both = libc::O_RDWR.unsigned_abs();
        if let Some(handle) = handle.filter(|_| flags & libc::O_ACCMODE.unsigned_abs() == both) {
            let mut open = self.open();
            if open.files.len() < MOST {
                open.files.insert((inode, handle));
            } else {
                open.any = true;
            }
        }
    }

    /// A file was closed.
    pub fn closed(&self, inode: u64, handle: u64) {
        self.open().files.remove(&(inode, handle));
    }

    /// Whether this file is open so.
    pub fn contains(&self, inode: u64) -> bool {
        let open = self.open();
        let mut handles = open.files.range((inode, 0)..=(inode, u64::MAX));
        open.any || handles.next().is_some()
    }

    /// All files were closed.
    pub fn clear(&self) {
        *self.open() = Open::default();
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        // No panic is possible while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guest closes files before it knows their handles.
    #[test]
    fn what_was_closed_too_soon_takes_bounded_memory() {
        let open = Mappable::default();
        let (both, most) = (libc::O_RDWR.unsigned_abs(), MOST as u64);
        for handle in 0..most {
            open.opened(7, Some(handle), both);
        }
        assert!(open.contains(7) && !open.contains(8));
        open.opened(9, Some(most), both);
        assert_eq!(open.open().files.len(), MOST);
        // None may be missed: its holes would be those of the host.
        assert!(open.contains(8) && open.contains(9));
        open.clear();
        assert!(!open.contains(7) && !open.contains(8));
    }
}
