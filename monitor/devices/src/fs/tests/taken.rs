// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a folder takes of the monitor's descriptors and memory, and where it writes.

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

/// `sync` in the guest reaches the host's disk.
#[test]
fn everything_is_written_on_request() {
    let folder = tempfile::tempdir().unwrap();
    for (access, answer) in [
        (Access::Write, Ok(())),
        // Nothing can have been written.
        (Access::ReadOnly, Err(libc::ENOSYS)),
    ] {
        let mut sender = Sender::new(Fs::new(folder.path(), "test", access).unwrap());
        let said = sender.send(super::super::place::SYNCFS, ROOT, &[0; 8]);
        assert_eq!(said.map(drop), answer, "{access:?}");
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

/// A guest that writes later than its programs says the place of each write, also in a file that a
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
