// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room for writes that follow each other, in the file of a disk.

use super::ahead::Ahead;
use super::storage::{Raw, Storage};
use super::*;
use crate::skip::skip;
use crate::test_guest::{FREE, Guest};
use proptest::prelude::*;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Barrier;
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

/// A disk in a file system that overwrites data in place; `None` in another one.
fn used(heuristics: Heuristics) -> Option<Used> {
    let used = Used::new(heuristics);
    let in_place = Ahead::of(used.file.as_file()).is_some();
    if !in_place {
        skip("this file system allocates other blocks for each write");
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
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_written_stays(steps in steps()) {
        let file = NamedTempFile::new().unwrap();
        file.as_file().set_len(LENGTH).unwrap();
        let raw = Raw::open(file.path(), true).unwrap();
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

/// Zeroes for one of them must not overwrite what the other has just written.
#[test]
fn two_writers_side_by_side_lose_nothing() {
    const ROUNDS: u64 = 1500;
    const HALF: u64 = 32;
    let file = tempfile::tempfile().unwrap();
    let length = ROUNDS * 2 * HALF * BLOCK;
    file.set_len(length).unwrap();
    let ahead = Ahead::default();
    let write = |block: u64, content: u8| {
        let start = block * BLOCK;
        let _order = ahead.write(&file, &(start..start + BLOCK), length);
        file.write_all_at(&[content; 4096], start).unwrap();
    };
    let (round, meet) = (|round: u64| round * 2 * HALF, Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for first in (0..ROUNDS).map(round) {
                meet.wait();
                for block in first..first + HALF {
                    ahead.flush();
                    write(block, 1);
                }
            }
        });
        for first in (0..ROUNDS).map(round) {
            meet.wait();
            for block in (first + HALF..first + 2 * HALF).rev() {
                write(block, 2);
            }
        }
    });
    for block in 0..ROUNDS * 2 * HALF {
        let mut one = [0; 4096];
        file.read_exact_at(&mut one, block * BLOCK).unwrap();
        let expected = if block % (2 * HALF) < HALF { 1 } else { 2 };
        assert_eq!(one, [expected; 4096], "block {block}");
    }
}
