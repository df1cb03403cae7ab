// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a file has data, as the answers to a guest say, under the policy of the device's thread.

use super::super::super::Device;
use super::super::{Cache, Sharing};
use super::{Access, FREE, Fs, INIT, Sender, bytes, confined, long, request};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const RELEASE: u32 = 18;
const RELEASEDIR: u32 = 29;
const LSEEK: u32 = 46;
const MIB: u64 = 1 << 20;
const DATA: u32 = libc::SEEK_DATA as u32;
const HOLE: u32 = libc::SEEK_HOLE as u32;

/// A file of 8 MiB, the second of which is data.
fn sparse(folder: &Path) {
    let file = File::create(folder.join("sparse")).unwrap();
    file.set_len(8 * MIB).unwrap();
    file.write_all_at(&[1; 1 << 20], MIB).unwrap();
}

impl Sender {
    fn seek(&mut self, node: u64, handle: u64, offset: u64, whence: u32) -> Result<u64, i32> {
        let mut body = handle.to_le_bytes().to_vec();
        body.extend(offset.to_le_bytes());
        body.extend(bytes(&[whence, 0]));
        self.send(LSEEK, node, &body).map(|answer| long(&answer, 0))
    }
}

#[test]
fn holes_are_the_hosts_while_nothing_can_be_mapped() {
    let folder = tempfile::tempdir().unwrap();
    sparse(folder.path());
    confined(folder.path(), Access::Write, |sender| {
        let node = sender.lookup("sparse");
        let write = sender.open(node, libc::O_WRONLY);
        for handle in [0, write] {
            assert_eq!(sender.seek(node, handle, 0, DATA), Ok(MIB));
            assert_eq!(sender.seek(node, handle, MIB, HOLE), Ok(2 * MIB));
            assert_eq!(sender.seek(node, handle, 2 * MIB, DATA), Err(libc::ENXIO));
        }
        // The crate also closes a file by the request for folders.
        let both = [RELEASE, RELEASEDIR].map(|operation| {
            let both = sender.open(node, libc::O_RDWR);
            for handle in [0, write, both] {
                assert_eq!(sender.seek(node, handle, 5, DATA), Ok(5));
                assert_eq!(sender.seek(node, handle, 5, HOLE), Ok(8 * MIB));
                for whence in [DATA, HOLE] {
                    let end = sender.seek(node, handle, 8 * MIB, whence);
                    assert_eq!(end, Err(libc::ENXIO));
                }
            }
            let mut close = both.to_le_bytes().to_vec();
            close.extend([0; 16]);
            sender.ok(operation, node, &close);
            assert_eq!(sender.seek(node, write, 0, DATA), Ok(MIB));
            both
        });
        // What no Linux asks.
        for whence in [0, 1, 2, 5, u32::MAX] {
            assert_eq!(sender.seek(node, 0, 0, whence), Err(libc::EINVAL));
        }
        let other = node ^ 1 << 60;
        assert_eq!(sender.seek(other, 0, 0, DATA), Err(libc::ENOENT));
        for closed in both {
            assert_eq!(sender.seek(node, closed, 0, DATA), Err(libc::EBADF));
        }
        assert!(sender.seek(node, 0, u64::MAX, DATA).is_err());
    });
}

/// The two words of flags with which the device answers a guest that offers all.
fn flags(folder: &Path, cache: Cache, offered: u32) -> (u32, u32) {
    let sharing = Sharing {
        cache,
        ..Access::Write.into()
    };
    let fs = Fs::new(folder, "test", sharing).unwrap();
    let guest = super::Guest::new(2);
    let mut sender = Sender {
        driver: guest.driver(0),
        guest,
        fs,
    };
    // The header has a buffer of its own, as Linux sends it.
    let mut body = bytes(&[7, 41, 1 << 17, u32::MAX, offered]);
    body.resize(64, 0);
    let (length, answer) = request::put(&sender.guest, FREE, INIT, 0, &body);
    let parts = [
        (FREE, 40, false),
        (FREE + 40, length - 40, false),
        (answer, 16, true),
        (answer + 16, 64, true),
    ];
    sender.guest.offer(1, &parts);
    sender.fs.notified(&mut sender.driver, 1).unwrap();
    assert_eq!(sender.guest.used(1)[0].1, 80);
    assert_eq!(sender.guest.read::<i32>(answer + 4), 0);
    let word = |at| sender.guest.read::<u32>(answer + 16 + at);
    (word(12), word(32))
}

#[test]
fn shared_mappings_are_allowed_where_nothing_is_cached() {
    let folder = tempfile::tempdir().unwrap();
    let (more, mappings) = (1 << 30, 1 << 4);
    let (first, second) = flags(folder.path(), Cache::None, u32::MAX);
    assert_eq!((first & more, second), (more, mappings));
    let (_, second) = flags(folder.path(), Cache::None, !mappings);
    assert_eq!(second, 0);
    let (first, _) = flags(folder.path(), Cache::Auto, u32::MAX);
    assert_eq!(first & more, 0);
}
