// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room for writes that follow each other, in the file of a disk.

use super::ahead::Ahead;
use super::storage::{Raw, Storage};
use super::*;
use crate::skip::{skip, skip_part};
use crate::test_guest::{FREE, Guest};
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tempfile::NamedTempFile;

const HEADER: u64 = FREE;
const STATUS: u64 = FREE + 64;
const DATA: u64 = FREE + 0x1000;
const BLOCK: u64 = 4096;
const LENGTH: u64 = 4 << 20;

/// A disk in a new file.
struct Used {
    file: NamedTempFile,
    disk: Block,
    guest: Guest,
    driver: Driver,
}

impl Used {
    fn new(heuristics: Heuristics) -> Self {
        let file = NamedTempFile::new().unwrap();
        file.as_file().set_len(LENGTH).unwrap();
        let disk = Block::new(file.path(), Mode::Write, "").unwrap();
        let guest = Guest::new(1);
        Used {
            driver: guest.driver(0),
            disk: disk.with(heuristics),
            guest,
            file,
        }
    }

    fn request(&mut self, kind: u32, sector: u64, data: &[(u64, u32, bool)]) {
        self.guest.write(HEADER, kind);
        self.guest.write(HEADER + 8, sector);
        let mut chain = vec![(HEADER, 16, false)];
        chain.extend(data);
        chain.push((STATUS, 1, true));
        self.guest.offer(0, &chain);
        self.disk.notified(&mut self.driver, 0).unwrap();
        assert_eq!(self.guest.read::<u8>(STATUS), 0);
    }

    /// Writes blocks one after the other, with a flush after each.
    fn write_blocks(&mut self, count: u64) {
        for block in 0..count {
            let data = [(DATA, 4096, false)];
            self.request(blk::VIRTIO_BLK_T_OUT, block * BLOCK / 512, &data);
            self.request(blk::VIRTIO_BLK_T_FLUSH, 0, &[]);
        }
    }

    /// The bytes for which the host has room.
    fn room(&self) -> u64 {
        self.file.as_file().metadata().unwrap().blocks() * 512
    }
}

fn without() -> Heuristics {
    Heuristics {
        allocate_ahead: false,
        ..Heuristics::default()
    }
}

/// A disk in a file system with room that overwrites data in place; `None` in another one.
fn used(heuristics: Heuristics) -> Option<Used> {
    let used = Used::new(heuristics);
    let in_place = Ahead::of(used.file.as_file()).is_some();
    if !in_place {
        skip("the host allocates nothing ahead in this file system, or has no room to spare");
    }
    in_place.then_some(used)
}

#[test]
fn the_file_has_room_after_the_last_write() {
    let Some(mut used) = used(Heuristics::default()) else {
        return;
    };
    used.write_blocks(40);
    let room = used.room();
    assert!((41 * BLOCK..=81 * BLOCK).contains(&room), "{room}");
}

#[test]
fn without_the_heuristic_it_has_none() {
    let Some(mut used) = used(without()) else {
        return;
    };
    used.write_blocks(40);
    assert!(used.room() <= 41 * BLOCK, "{}", used.room());
}

/// A disk's file, and block writes that follow each other there.
struct Written {
    file: File,
    ahead: Ahead,
}

impl Written {
    fn new(zeroes: u64) -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len(LENGTH).unwrap();
        let ahead = Ahead::with(zeroes);
        Written { file, ahead }
    }

    /// Writes blocks, whose zeroes go to `file`.
    fn write(&self, file: &File, blocks: Range<u64>) {
        for start in blocks.map(|block| block * BLOCK) {
            self.ahead.flush();
            let write = || self.file.write_all_at(&[1; 4096], start);
            let bytes = start..start + BLOCK;
            self.ahead.write(file, &bytes, LENGTH, write).unwrap();
        }
    }
}

/// Whether the file system tells where blocks of 4 KiB have data; says by `skip` that it does not.
fn tells_holes(skip: fn(&str)) -> bool {
    let file = tempfile::tempfile().unwrap();
    file.set_len(LENGTH).unwrap();
    file.write_all_at(&[7; 4096], 8 << 10).unwrap();
    let tells = seek(&file, SeekFrom::Data(0)) == Ok(8 << 10)
        && seek(&file, SeekFrom::Hole(8 << 10)) == Ok(12 << 10);
    if !tells {
        skip("this file system does not tell holes of 4 KiB");
    }
    tells
}

#[test]
fn zeroes_end_where_their_number_does() {
    let written = Written::new(5 * BLOCK);
    if !tells_holes(skip) {
        return;
    }
    // Wants 1 block and 3 blocks.
    written.write(&written.file, 0..4);
    assert_eq!(written.ahead.left(), BLOCK);
    // Wants 7 after the last one.
    written.write(&written.file, 4..8);
    assert_eq!(written.ahead.left(), 0);
    let data_from = |block: u64| seek(&written.file, SeekFrom::Data(block * BLOCK));
    assert_eq!(data_from(8), Ok(8 * BLOCK));
    assert_eq!(data_from(9), Err(Errno::NXIO));
}

#[test]
fn after_an_error_there_are_no_more_zeroes() {
    let written = Written::new(LENGTH);
    if !tells_holes(skip) {
        return;
    }
    let read_only = format!("/proc/self/fd/{}", written.file.as_raw_fd());
    written.write(&File::open(read_only).unwrap(), 0..2);
    assert_eq!(written.ahead.left(), 0);
    written.write(&written.file, 2..100);
    let end = seek(&written.file, SeekFrom::Data(100 * BLOCK));
    assert_eq!(end, Err(Errno::NXIO));
}

#[test]
fn after_a_write_that_failed_there_are_no_zeroes() {
    let Written { file, ahead } = Written::new(LENGTH);
    let fail = || Err(io::ErrorKind::StorageFull.into());
    let error = ahead.write(&file, &(0..BLOCK), LENGTH, fail).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(ahead.left(), 0);
}

#[test]
fn what_a_seek_has_passed_is_remembered_until_it_is_written() {
    let written = Written::new(LENGTH);
    if !tells_holes(skip) {
        return;
    }
    let empty = |block: u64| written.ahead.empty_to(block * BLOCK);
    written.write(&written.file, 0..2);
    // Up to the end, from after the zeroes for block 2 on.
    assert_eq!((empty(2), empty(3)), (None, Some(u64::MAX)));
    written.write(&written.file, 2..4);
    assert_eq!((empty(6), empty(7)), (None, Some(u64::MAX)));
    // One that is not small is data, too.
    let bytes = 100 * BLOCK..200 * BLOCK;
    let ahead = &written.ahead;
    ahead
        .write(&written.file, &bytes, LENGTH, || Ok(()))
        .unwrap();
    assert_eq!((empty(99), empty(100)), (Some(100 * BLOCK), None));
    assert_eq!((empty(199), empty(200)), (None, Some(u64::MAX)));
}

#[test]
fn only_holes_are_filled() {
    let Written { file, ahead } = Written::new(0);
    file.write_all_at(&[7; 4096], 32 << 10).unwrap();
    let fill = |from: u64, to: u64| ahead.fill_hole(&file, from << 10..to << 10).unwrap();
    let lengths = [fill(8, 64), fill(32, 64), fill(4092, 4096)];
    let mut all = vec![1; 4 << 20];
    file.read_exact_at(&mut all, 0).unwrap();
    let data: Vec<_> = (0..all.len()).filter(|&at| all[at] != 0).collect();
    assert_eq!((data.len(), data[0]), (4096, 32 << 10));
    assert_eq!(file.metadata().unwrap().len(), LENGTH);
    if !tells_holes(skip_part) {
        return;
    }
    assert_eq!(lengths, [24 << 10, 0, 4 << 10]);
    let hole = |from| seek(&file, SeekFrom::Hole(from)).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(8 << 10));
    assert_eq!(hole(8 << 10), 36 << 10);
    assert_eq!(hole(4092 << 10), LENGTH);
}

/// What a driver does. Blocks are in a small part of the disk, so that they meet.
#[derive(Clone, Debug)]
enum Step {
    /// Writes blocks from here on, or where the last write ended, each with a flush before it.
    Write(Option<u64>, u64),
    Discard(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = (prop::option::weighted(0.3, 0..60u64), 1..4u64)
        .prop_map(|(at, count)| Step::Write(at, count));
    let discard = (0..60u64, 1..4u64).prop_map(|(at, count)| Step::Discard(at, count));
    prop::collection::vec(prop_oneof![8 => write, 1 => discard], 1..60)
}

proptest! {
    // Each flushes the host's disk up to 59 times.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_was_written_stays(steps in steps()) {
        let file = NamedTempFile::new().unwrap();
        file.as_file().set_len(LENGTH).unwrap();
        let raw = Raw::open(file.path(), true).unwrap().with_ahead(Ahead::with(LENGTH));
        let (mut model, mut next) = (vec![0; usize::try_from(LENGTH).unwrap()], 0);
        let place = |block: u64, count: u64| {
            let start = block * BLOCK;
            let number = |at: u64| usize::try_from(at).unwrap();
            (start, number(start)..number(start + count * BLOCK))
        };
        for (number, step) in (1u8..).zip(steps) {
            match step {
                Step::Write(at, count) => {
                    raw.flush().unwrap();
                    let (start, bytes) = place(at.unwrap_or(next), count);
                    model[bytes.clone()].fill(number);
                    raw.write_bytes(start, &model[bytes]).unwrap();
                    next = at.unwrap_or(next) + count;
                }
                Step::Discard(at, count) => {
                    let (start, bytes) = place(at, count);
                    raw.discard(start, count * BLOCK).unwrap();
                    raw.read_bytes(start, &mut model[bytes]).unwrap();
                }
            }
        }
        let mut all = vec![1; model.len()];
        raw.read_bytes(0, &mut all).unwrap();
        prop_assert!(all == model);
    }
}

/// A write has begun, and its data is not yet in the file: no one may take its place for a hole.
#[test]
fn zeroes_wait_for_a_write_under_way() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(LENGTH).unwrap();
    let ahead = Ahead::with(LENGTH);
    let (filled, put) = (AtomicBool::new(false), |block: u64, content: u8| {
        file.write_all_at(&[content; 4096], block * BLOCK)
    });
    let bytes = |block: u64| block * BLOCK..(block + 1) * BLOCK;
    std::thread::scope(|scope| {
        let (begun, second) = sync_channel(1);
        let write = || {
            scope.spawn(|| {
                let begun = begun;
                ahead.write(&file, &bytes(0), LENGTH, || put(0, 1)).unwrap();
                ahead.flush();
                let write = || {
                    begun.send(()).unwrap();
                    put(1, 1)
                };
                // Wants zeroes for block 2.
                ahead.write(&file, &bytes(1), LENGTH, write).unwrap();
                filled.store(true, Ordering::SeqCst);
            });
            second.recv().unwrap();
            std::thread::sleep(Duration::from_millis(50));
            assert!(!filled.load(Ordering::SeqCst));
            put(2, 2)
        };
        ahead.write(&file, &bytes(2), LENGTH, write).unwrap();
    });
    let mut all = [0; 3 * 4096];
    file.read_exact_at(&mut all, 0).unwrap();
    assert!(all[..8192] == [1; 8192] && all[8192..] == [2; 4096]);
}

/// Zeroes for one of them must not overwrite what the other has just written.
#[test]
fn two_writers_side_by_side_lose_nothing() {
    const ROUNDS: u64 = 1500;
    const BLOCKS: u64 = 80;
    // The second one has more, so that it still writes when zeroes for as many come.
    const FIRST: u64 = 32;
    let file = tempfile::tempfile().unwrap();
    let length = ROUNDS * BLOCKS * BLOCK;
    file.set_len(length).unwrap();
    let ahead = Ahead::with(length);
    let write = |block: u64, content: u8| {
        let start = block * BLOCK;
        let write = || file.write_all_at(&[content; 4096], start);
        let bytes = start..start + BLOCK;
        ahead.write(&file, &bytes, length, write).unwrap();
    };
    let round = |round: u64| round * BLOCKS;
    std::thread::scope(|scope| {
        // One that panics drops its ends, and the other does not wait for it.
        let (begin, begun) = sync_channel(0);
        let (end, ended) = sync_channel(0);
        let (ahead, write) = (&ahead, &write);
        scope.spawn(move || {
            for first in (0..ROUNDS).map(round) {
                begun.recv().unwrap();
                for block in first..first + FIRST {
                    ahead.flush();
                    write(block, 1);
                }
                end.send(()).unwrap();
            }
        });
        for first in (0..ROUNDS).map(round) {
            begin.send(()).unwrap();
            for block in (first + FIRST..first + BLOCKS).rev() {
                write(block, 2);
            }
            ended.recv().unwrap();
            let mut all = [[0; 4096]; 80];
            file.read_exact_at(all.as_flattened_mut(), first * BLOCK)
                .unwrap();
            for (block, one) in (0..).zip(&all) {
                let expected = if block < FIRST { 1 } else { 2 };
                assert!(one == &[expected; 4096], "block {}", first + block);
            }
            // The room of one round is enough, which may be memory.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            _ = fallocate(&file, flags, first * BLOCK, BLOCKS * BLOCK);
        }
    });
}
