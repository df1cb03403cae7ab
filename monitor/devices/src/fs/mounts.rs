// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a file system is mounted in a shared folder that may be slow: a network's, or one that
//! another program serves.
//!
//! The first access to such a place waits for as long as its server is silent. Before this access,
//! the device cannot know that the place is on another file system. So the host's list of mounts is
//! read before the guest's first request, and again whenever the host says that it has changed.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// File systems of the host's own disks and memory, as the list of mounts has them.
const LOCAL: [&[u8]; 11] = [
    b"ext2",
    b"ext3",
    b"ext4",
    b"xfs",
    b"btrfs",
    b"f2fs",
    b"tmpfs",
    b"ramfs",
    b"overlay",
    b"squashfs",
    b"erofs",
];
/// The most bytes of the list that are read. A longer one counts as one with a far file system.
const MOST: usize = 4 << 20;

/// The host's list of mounts.
#[derive(Debug)]
pub struct Mounts(File);

impl Mounts {
    /// Opens the list for this thread's view of the host.
    ///
    /// # Errors
    /// The host's error.
    pub fn new() -> io::Result<Self> {
        Ok(Mounts(File::open("/proc/thread-self/mountinfo")?))
    }

    /// Whether it has changed since the last call, or cannot be asked.
    pub fn changed(&self) -> bool {
        let mut files = [PollFd::new(&self.0, PollFlags::PRI)];
        let asked = poll(&mut files, Some(&Timespec::default()));
        asked.map_or(true, |ready| ready > 0)
    }

    /// Whether something that may be far is mounted below a folder, or the list cannot be read.
    pub fn far_below(&self, folder: &Path) -> bool {
        self.read().map_or(true, |list| far_below(&list, folder))
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        let (mut list, mut part) = (Vec::new(), vec![0; 64 << 10]);
        while list.len() < MOST {
            match self.0.read_at(&mut part, list.len() as u64)? {
                0 => return Ok(list),
                read => list.extend_from_slice(part.get(..read).unwrap_or_default()),
            }
        }
        Err(io::ErrorKind::FileTooLarge.into())
    }
}

/// Whether a list of mounts, as text, has one below the folder that may be far.
fn far_below(list: &[u8], folder: &Path) -> bool {
    list.split(|byte| *byte == b'\n').any(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let (place, kind) = (
            fields.nth(4),
            fields.skip_while(|field| *field != b"-").nth(1),
        );
        let (Some(place), Some(kind)) = (place, kind) else {
            return false;
        };
        let place = plain(place);
        let place = Path::new(std::ffi::OsStr::from_bytes(&place));
        place != folder && place.starts_with(folder) && !LOCAL.contains(&kind)
    })
}

/// A path without the list's escapes: a backslash and three octal digits.
fn plain(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'\\').then(|| {
            let digits = std::str::from_utf8(after.get(..3)?).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        if let Some(byte) = escaped.flatten() {
            plain.push(byte);
            rest = &after[3..];
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn what_is_far_is_found_below_the_folder_only() {
        let list = b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
            30 22 0:25 / /srv/a\\040b/far rw - fuse.sshfs host: rw\n\
            31 22 0:26 / /srv/near rw,nosuid shared:3 master:1 - tmpfs tmpfs rw\n\
            32 22 0:27 / /srv/itself rw - nfs4 host:/ rw\n\
            short line\n";
        for (folder, far) in [
            ("/", true),
            ("/srv", true),
            ("/srv/a b", true),
            ("/srv/a", false),
            ("/srv/near", false),
            ("/srv/itself", false),
            ("/home", false),
        ] {
            assert_eq!(far_below(list, Path::new(folder)), far, "{folder}");
        }
        assert_eq!(plain(b"a\\134b\\04"), b"a\\b\\04");
    }

    /// Runs as root: a later mount is noticed.
    #[test]
    fn a_new_mount_is_noticed() {
        if !rustix::process::geteuid().is_root() {
            crate::skip::skip("only root can mount");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        std::fs::create_dir(path.join("far")).unwrap();
        // On a thread with mounts of its own.
        let looks = std::thread::spawn(move || {
            let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap();
            // SAFETY: changes this thread's view of the host's mounts, and only that.
            unsafe {
                assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
                let (root, none) = (c"/".as_ptr(), std::ptr::null());
                let private = libc::MS_REC | libc::MS_PRIVATE;
                assert_eq!(libc::mount(none, root, none, private, none.cast()), 0);
            }
            let mounts = Mounts::new().unwrap();
            let before = (mounts.changed(), mounts.far_below(&path));
            let at = text(&path.join("far"));
            // SAFETY: as above.
            let done = unsafe {
                let kind = c"proc".as_ptr();
                libc::mount(kind, at.as_ptr(), kind, 0, std::ptr::null())
            };
            assert_eq!(done, 0);
            let after = (mounts.changed(), mounts.far_below(&path));
            (before, after, mounts.changed())
        });
        let seen = looks.join().unwrap();
        assert_eq!(seen, ((false, false), (true, true), false));
    }
}
