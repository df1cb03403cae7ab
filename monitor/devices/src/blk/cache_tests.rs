// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a disk does about the host's page cache.

use super::*;
use crate::page_cache::{lacks, waits_for_a_flush};
use crate::skip::skip;
use crate::test_guest::{FREE, Guest};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::Write;
use std::ops::Range;

const HEADER: u64 = FREE;
const STATUS: u64 = FREE + 64;
const DATA: u64 = FREE + 0x1000;
const MIB: u64 = 1 << 20;

/// A request for data of these bytes of the disk.
fn request(guest: &mut Guest, kind: u32, bytes: &Range<u64>) {
    let length = u32::try_from(bytes.end - bytes.start).unwrap();
    guest.write(HEADER, kind);
    guest.write(HEADER + 8, bytes.start / 512);
    let data = (DATA, length, kind == blk::VIRTIO_BLK_T_IN);
    guest.offer(0, &[(HEADER, 16, false), data, (STATUS, 1, true)]);
}

/// A file of 4 MiB that is not in the page cache. `None` in a file system that keeps it there, and
/// the test is skipped.
fn uncached() -> Option<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for sector in 0..4 * MIB / 512 {
        file.write_all(&[u8::try_from(sector % 251).unwrap(); 512])
            .unwrap();
    }
    file.as_file().sync_all().unwrap();
    fadvise(file.as_file(), 0, None, Advice::DontNeed).unwrap();
    let uncached = lacks(file.as_file(), &(0..4 * MIB));
    if !uncached {
        skip("this file system keeps all of a file in memory");
    }
    uncached.then_some(file)
}

/// Reads bytes by a disk without workers, which waits. Returns whether the page cache lacks them
/// then.
fn reading(file: &File, disk: &mut Block, bytes: &Range<u64>) -> bool {
    let mut guest = Guest::new(1);
    let mut driver = guest.driver(0);
    request(&mut guest, blk::VIRTIO_BLK_T_IN, bytes);
    disk.notified(&mut driver, 0).unwrap();
    assert_eq!(guest.used(0).len(), 1);
    assert_eq!(guest.read::<u8>(STATUS), 0);
    for at in (bytes.start..bytes.end).step_by(512) {
        let expected = u8::try_from(at / 512 % 251).unwrap();
        assert_eq!(guest.read::<u8>(DATA + at - bytes.start), expected);
    }
    lacks(file, bytes)
}

#[test]
fn a_large_read_of_what_is_not_cached_bypasses_the_cache() {
    let Some(file) = uncached() else {
        return;
    };
    let (path, file) = (file.path(), file.as_file());
    let mut disk = Block::new(path, Mode::Write, "").unwrap();
    assert!(reading(file, &mut disk, &(0..MIB)));
    assert!(!reading(file, &mut disk, &(2 * MIB..2 * MIB + (64 << 10))));
    drop(disk);
    let mut disk = Block::new(path, Mode::Write, "").unwrap().with(Heuristics {
        direct_reads: false,
        ..Heuristics::default()
    });
    assert!(!reading(file, &mut disk, &(0..MIB)));
}

#[test]
fn what_was_written_is_read() {
    let Some(file) = uncached() else {
        return;
    };
    let (path, file) = (file.path(), file.as_file());
    let mut disk = Block::new(path, Mode::Write, "").unwrap();
    let mut guest = Guest::new(1);
    let mut driver = guest.driver(0);
    guest.put(DATA, &[0xee; 512]);
    request(&mut guest, blk::VIRTIO_BLK_T_OUT, &(512..1024));
    disk.notified(&mut driver, 0).unwrap();
    request(&mut guest, blk::VIRTIO_BLK_T_IN, &(0..MIB));
    disk.notified(&mut driver, 0).unwrap();
    assert_eq!(guest.read::<u8>(STATUS), 0);
    let read = [0, 512, 1024].map(|at| guest.read::<u8>(DATA + at));
    assert_eq!(read, [0, 0xee, 2]);
    assert!(!lacks(file, &(0..4096)));
}

/// Without an early write, the host writes the data some seconds later.
#[test]
fn what_is_written_early_does_not_wait_for_the_flush() {
    let Some(file) = uncached() else {
        return;
    };
    for (early, tune) in [
        (true, (|disk| disk) as fn(Block) -> Block),
        (false, |disk| {
            disk.with(Heuristics {
                early_writes: false,
                ..Heuristics::default()
            })
        }),
    ] {
        let mut disk = tune(Block::new(file.path(), Mode::Write, "").unwrap());
        let mut guest = Guest::new(1);
        let mut driver = guest.driver(0);
        request(&mut guest, blk::VIRTIO_BLK_T_OUT, &(4096..8192));
        disk.notified(&mut driver, 0).unwrap();
        assert_eq!(guest.read::<u8>(STATUS), 0);
        assert_eq!(waits_for_a_flush(file.as_file(), &(4096..8192)), !early);
    }
}
