// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of disks. They are in the folder `disks` of vbusd's own, the only one in which it may
//! open files.

use super::pool::{Mail, Message};
use super::ring::Operation;
use paravane_vbus::devices::block::SECTOR;
use paravane_vbus::{Error, Kind, Name};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, fcntl_setfl, flock, fstat, open};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The files that this process has open as disks, by the numbers of their file system and inode.
static OPEN: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

fn lock_open() -> MutexGuard<'static, Vec<(u64, u64)>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open file, locked as machines lock theirs.
#[derive(Debug)]
pub struct Image {
    pub file: File,
    /// Not used twice.
    pub id: u64,
    /// A ring has it, too.
    pub in_ring: AtomicBool,
    /// The file system cannot say whether a request would wait for the disk.
    pub always_waits: AtomicBool,
    /// A flush has failed: see [`Image::settles`].
    lost: AtomicBool,
    path: PathBuf,
    /// Its element of [`OPEN`].
    place: (u64, u64),
    thread: Mail,
}

/// Whether a disk of this process has this file of the folder.
pub fn is_open(folder: &Path, name: &Name) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = open(folder.join(name.as_str()), flags, Mode::empty());
    let found = file.and_then(place_of);
    found.is_ok_and(|place| lock_open().contains(&place))
}

/// The numbers of a file's file system and inode.
fn place_of(file: impl AsFd) -> Result<(u64, u64), Errno> {
    let found = fstat(file)?;
    Ok((found.st_dev, found.st_ino))
}

impl Drop for Image {
    fn drop(&mut self) {
        let mut open = lock_open();
        if let Some(at) = open.iter().position(|place| *place == self.place) {
            open.swap_remove(at);
        }
        drop(open);
        if self.in_ring.load(Ordering::Acquire) {
            // The ring keeps the file open a little longer, and the lock belongs to the open file.
            // An error leaves it locked as long.
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
        self.thread.send(Message::Gone(self.id));
    }
}

impl Image {
    /// Opens a file in the folder, for this thread.
    ///
    /// # Errors
    /// There is none, or it is no ordinary file of whole sectors. [`Kind::Busy`]: another program
    /// has it locked.
    pub fn open(folder: &Path, name: &Name, read_only: bool, thread: &Mail) -> Result<Self, Error> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let path = folder.join(name.as_str());
        let (access, operation) = if read_only {
            (OFlags::RDONLY, FlockOperation::NonBlockingLockShared)
        } else {
            (OFlags::RDWR, FlockOperation::NonBlockingLockExclusive)
        };
        let shown = path.display().to_string();
        let host = |error: Errno| Error::new(Kind::Host, format!("{shown}: {error}"));
        // A FIFO must not block, and a link may lead elsewhere.
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = open(&path, flags, Mode::empty()).map_err(host)?;
        match flock(&file, operation) {
            Ok(()) => {}
            Err(Errno::NOLCK | Errno::OPNOTSUPP) => {
                if !read_only {
                    tracing::warn!(
                        "{shown}: its file system has no locks: let no other program use it"
                    );
                }
            }
            Err(Errno::WOULDBLOCK) => {
                let text = format!("{shown}: another disk or program uses it");
                return Err(Error::new(Kind::Busy, text));
            }
            Err(error) => return Err(host(error)),
        }
        let place = place_of(&file).map_err(host)?;
        lock_open().push(place);
        let image = Image {
            file: file.into(),
            id: LAST.fetch_add(1, Ordering::Relaxed),
            in_ring: AtomicBool::new(false),
            always_waits: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            path,
            place,
            thread: thread.clone(),
        };
        image.sectors()?;
        // The flag was for the open alone. A ring takes it for a wish that nothing waits: on a file
        // system that cannot say whether a request would wait (tmpfs, FUSE, NFS) it answers EAGAIN,
        // and leaves the wait to the thread that all disks share.
        fcntl_setfl(&image.file, OFlags::empty()).map_err(host)?;
        Ok(image)
    }

    /// Whether to report success to the client, for a request that was `done` or not.
    ///
    /// A flush that has failed fails all that follow. The host reports data that it could not write
    /// once for each open file, then treats its pages as written, and tries no more. But all
    /// clients share the open file, and what was lost may be of any of them. The contents of the
    /// disk are unknown until it is opened again.
    pub fn settles(&self, operation: Operation, done: bool) -> bool {
        if operation != Operation::Flush {
            return done;
        }
        if !done {
            self.lost.store(true, Ordering::Relaxed);
        }
        !self.has_lost()
    }

    /// Whether a flush has failed.
    pub fn has_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Its size now.
    ///
    /// # Errors
    /// It is no ordinary file, or has no whole sectors.
    pub fn sectors(&self) -> Result<u64, Error> {
        let path = self.path.display();
        let host = |error: Errno| Error::new(Kind::Host, format!("{path}: {error}"));
        let status = fstat(&self.file).map_err(host)?;
        let size = u64::try_from(status.st_size).unwrap_or(0);
        let ordinary = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
        if !ordinary || size == 0 || !size.is_multiple_of(SECTOR) {
            let text = format!("{path} is no disk: it needs an ordinary file of whole sectors");
            return Err(Error::new(Kind::Invalid, text));
        }
        Ok(size / SECTOR)
    }
}
