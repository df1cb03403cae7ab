// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monitor's descriptors and memory that a folder takes, and the offsets of its writes.

use super::super::{Cache, Sharing};
use super::{Access, Fs, MKDIR, MKNOD, OPEN, ROOT, Sender, WRITE, bytes, named};
use std::fs;
use std::os::unix::fs::MetadataExt;

const OPENDIR: u32 = 27;
const SYMLINK: u32 = 6;

#[test]
fn without_room_no_file_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "x").unwrap();
    let sharing = Sharing {
        descriptors: 3,
        ..Access::Write.into()
    };
    let mut sender = Sender::new(Fs::new(folder.path(), "test", sharing).unwrap());
    let flags = bytes(&[libc::O_RDWR.unsigned_abs(), 0]);
    for (operation, body) in [
        (super::LOOKUP, b"file\0".to_vec()),
        (OPENDIR, bytes(&[0, 0])),
        (OPEN, flags),
        (SYMLINK, b"made\0file\0".to_vec()),
        (MKDIR, named(&[0o755, 0], "made")),
        (MKNOD, named(&[libc::S_IFREG | 0o644, 0, 0, 0], "made")),
        (super::LINK, named(&[1, 0], "made")),
        (
            super::CREATE,
            named(&[libc::O_RDWR.unsigned_abs(), 0o644, 0, 0], "made"),
        ),
    ] {
        let answer = sender.send(operation, ROOT, &body);
        assert_eq!(answer, Err(libc::EMFILE), "{operation}");
    }
    assert!(!folder.path().join("made").exists());
    sender.ok(super::GETATTR, ROOT, &[0; 16]);
}

/// On a file system whose times may be equal although the contents differ, the guest asks each time
/// that it opens a file, and keeps nothing.
#[test]
fn of_far_files_nothing_is_kept() {
    /// `fuse_attr.flags` in the answer to a lookup, and `open_flags` in that to an open.
    const ATTR_FLAGS: usize = 124;
    const OPEN_FLAGS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "x").unwrap();
    for local in [true, false] {
        let mut device = Fs::new(folder.path(), "test", Access::Write).unwrap();
        device.root.local = local;
        device.serving = device.root.serve().unwrap();
        let mut sender = Sender::new(device);
        let found = sender.ok(super::LOOKUP, ROOT, b"file\0");
        let word = |answer: &[u8], at| u32::from_le_bytes(answer[at..at + 4].try_into().unwrap());
        assert_eq!(word(&found, ATTR_FLAGS) >> 31 == 1, local, "needs no open");
        let node = super::long(&found, 0);
        let opened = sender.ok(OPEN, node, &bytes(&[0, 0]));
        assert_eq!(word(&opened, OPEN_FLAGS) & 2 == 2, local, "keeps contents");
    }
}

/// Numbers that are made for files would be kept for each file that the guest ever knew.
#[test]
fn a_node_has_the_number_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "x").unwrap();
    let mut sender = Sender::new(Fs::new(folder.path(), "test", Access::Write).unwrap());
    let number = fs::metadata(&path).unwrap().ino();
    assert!(
        number < 1 << 47,
        "a file system of the host with large numbers: {number}"
    );
    assert_eq!(sender.lookup("file") & ((1 << 47) - 1), number);
}

/// A guest that writes data back later sends the offset of each write, also for a file that a
/// program has opened to append to it.
#[test]
fn what_is_written_later_is_not_appended() {
    const READ: u32 = 15;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "old contents").unwrap();
    let sharing = Sharing {
        cache: Cache::Always,
        ..Access::Write.into()
    };
    let mut sender = Sender::new(Fs::new(folder.path(), "test", sharing).unwrap());
    let node = sender.lookup("file");
    let append = libc::O_RDWR | libc::O_APPEND;
    let handle = sender.open(node, append);
    // `struct fuse_read_in` and `struct fuse_write_in`.
    let request = |size: u32, flags: i32| {
        let mut body = handle.to_le_bytes().to_vec();
        body.extend(0u64.to_le_bytes());
        body.extend(bytes(&[size, 0, 0, 0, flags.unsigned_abs(), 0]));
        body
    };
    for flags in [0, append] {
        sender.ok(READ, node, &request(3, append));
        let mut write = request(3, flags);
        write.extend(b"new");
        sender.ok(WRITE, node, &write);
        assert_eq!(fs::read(&path).unwrap(), b"new contents", "{flags:o}");
    }
}
