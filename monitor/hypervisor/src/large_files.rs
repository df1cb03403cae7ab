// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of guest memory for which the host uses large pages from the first touch.
//!
//! Large pages of a memfd need the administrator (`shmem_enabled`). A tmpfs decides by itself, by
//! its mount option `huge=`, and an ordinary user may mount one in a user namespace. This one is
//! attached to no directory: it lives as long as its files. See tmpfs(5), fsmount(2).

use crate::fork;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A file system in the host's memory.
#[derive(Debug)]
pub struct LargeFiles {
    mount: OwnedFd,
}

impl LargeFiles {
    /// Mounts a file system of `size` bytes.
    ///
    /// # Errors
    /// The host gives this user none.
    pub fn new(size: u64) -> io::Result<Self> {
        let size = CString::new(size.to_string())?;
        let mount = match mount(&size) {
            Ok(mount) => mount,
            Err(_) => mount_apart(&size)?,
        };
        Ok(LargeFiles { mount })
    }

    /// A new file of this length, without a name. It has no seals, which a tmpfs does not know: the
    /// filters of the processes that have its descriptor keep its length.
    ///
    /// # Errors
    /// The host gives none.
    pub fn file(&self, length: u64) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(&self.mount, c".", flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::ftruncate(&file, length)?;
        Ok(File::from(file))
    }
}

/// Only system calls, without allocations: a forked child calls this, too.
fn mount(size: &CStr) -> Result<OwnedFd, Errno> {
    let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, c"huge", c"always")?;
    fsconfig_set_string(&context, c"size", size)?;
    fsconfig_create(&context)?;
    // Programs of the guest are executed from it.
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Mounts in a user namespace. Only a process with one thread may enter one, so a child does it. It
/// shares this process's descriptors and leaves the file system in one of them. This user is the
/// only one in the namespace, as whom the child, and later this process, makes files.
fn mount_apart(size: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: these calls only return numbers.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let maps = [
        (c"/proc/self/setgroups", c"deny".to_owned()),
        (
            c"/proc/self/uid_map",
            CString::new(format!("{user} {user} 1"))?,
        ),
        (
            c"/proc/self/gid_map",
            CString::new(format!("{group} {group} 1"))?,
        ),
    ];
    let place = OwnedFd::from(File::open("/dev/null")?);
    match fork::fork(libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_FILES)? {
        0 => fork::exit(in_child(&maps, size, place.as_raw_fd()).is_ok()),
        child if fork::ended_well(child) => Ok(place),
        _ => Err(io::Error::other("a user namespace may mount no tmpfs")),
    }
}

fn in_child(maps: &[(&CStr, CString)], size: &CStr, place: RawFd) -> Result<(), Errno> {
    for (path, text) in maps {
        let file = rustix::fs::open(*path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, text.to_bytes())?;
    }
    let mount = mount(size)?;
    // SAFETY: the descriptor belongs to the caller, which waits for this process.
    if unsafe { libc::dup3(mount.as_raw_fd(), place, libc::O_CLOEXEC) } < 0 {
        return Err(Errno::BADF);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    const LENGTH: u64 = 4 << 20;

    fn is_a_file(files: &LargeFiles) {
        let file = files.file(LENGTH).unwrap();
        file.write_all_at(b"abc", LENGTH - 3).unwrap();
        let mut bytes = [0; 6];
        file.read_exact_at(&mut bytes, LENGTH - 6).unwrap();
        assert_eq!(&bytes, b"\0\0\0abc");
        let metadata = file.metadata().unwrap();
        // No large pages where the host has turned them off for everybody.
        println!("{} KiB for a page", metadata.blocks() / 2);
        assert_eq!((metadata.len(), metadata.nlink()), (LENGTH, 0));
        // A file that became longer would find no memory.
        let all = vec![1; usize::try_from(LENGTH).unwrap()];
        file.write_all_at(&all, 0).unwrap();
        assert!(file.write_all_at(b"abc", LENGTH).is_err());
    }

    #[test]
    fn both_ways_to_mount_make_files() {
        let size = CString::new(LENGTH.to_string()).unwrap();
        for mount in [mount(&size).map_err(Into::into), mount_apart(&size)] {
            match mount {
                Ok(mount) => is_a_file(&LargeFiles { mount }),
                Err(error) => println!("skipped: {error}"),
            }
        }
        assert!(mount_apart(c"no size").is_err());
    }
}
